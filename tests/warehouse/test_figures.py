"""What Prometheus is told of the cluster: devices that add up, bounded labels, nothing for what is not known."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.warehouse.test_server import Running
from warehouse import figures
from warehouse.access import Role
from warehouse.contract.settings import Settings
from warehouse.figures import Figures
from warehouse.sight import Sight

HOUR = 3600.0
HOSTILE = 'x"}\n# HELP evil {1} <script>' + "é" * 500


def seconds(**parts: float | None) -> dict[str, float | None]:
    names = ("allocated", "used", "held_idle", "no_process", "with_process", "gaps", "unknown")
    return {**dict.fromkeys((*names, "capacity", "unallocated", "down", "unreported"), None), **parts}


FLEET = seconds(
    capacity=8 * HOUR,
    allocated=5 * HOUR,
    used=3 * HOUR,
    held_idle=1.5 * HOUR,
    no_process=1 * HOUR,
    with_process=0.0,
    gaps=0.5 * HOUR,
    unknown=0.5 * HOUR,
    unallocated=2 * HOUR,
    down=1 * HOUR,
    unreported=0.0,
)


def account(key: str | None, held: float, used: float | None = None) -> dict[str, Any]:
    idle = None if used is None else held - used
    return {"key": key, "gpu_seconds": seconds(allocated=held, used=used, held_idle=idle, unknown=0.0)}


class Answers:
    """Answers by hand."""

    def __init__(self) -> None:
        self.rows = [account("ml", 3 * HOUR, 2 * HOUR), account(None, HOUR), account("a", HOUR, HOUR)]
        self.families = [
            {"family_id": "f1", "label": HOSTILE, "gpu_seconds": seconds(allocated=9.0, used=4.0, held_idle=5.0)},
            {"family_id": "f2", "label": "eval", "gpu_seconds": seconds(allocated=7.0)},
        ]
        self.advice = [
            {"recommendation_id": "r1", "remedy": "fuse", "saving_gpu_seconds": {"low": 1, "likely": None, "high": 9}},
            {"recommendation_id": "r2", "remedy": "release", "saving_gpu_seconds": {"low": 1, "likely": 2, "high": 3}},
            {"recommendation_id": "r3", "remedy": "fuse", "saving_gpu_seconds": {"low": 0, "likely": 1, "high": 2}},
        ]
        self.asked: list[tuple[str, dict[str, str]]] = []

    def all(self) -> dict[str, Any]:
        def answer(question: str, document: dict[str, Any]) -> Any:
            def give(_store: Sight, _settings: Settings, parameters: Mapping[str, str]) -> dict[str, Any]:
                self.asked.append((question, dict(parameters)))
                return document

            return give

        waste = {"gpu_seconds": FLEET, "coverage_ratio": 0.9, "rows": self.rows}
        return {
            "waste": answer("waste", waste),
            "families": answer("families", {"families": self.families}),
            "recommend": answer("recommend", {"recommendations": self.advice}),
        }


def told(answers: Answers, settings: Settings | None = None) -> bytes:
    """Give the page of figures that were worked out once."""
    source: Any = None
    found = Figures(source, answers.all(), settings or Settings())
    found.refresh()
    found._tried_at = float("inf")
    registry = CollectorRegistry(auto_describe=False)
    registry.register(found)
    return generate_latest(registry)


def samples(page: bytes, name: str) -> dict[tuple[str, ...], float]:
    """Give the samples of a metric by the values of their labels, in order of their names."""
    return {
        tuple(sample.labels.values()): sample.value
        for metric in text_string_to_metric_families(page.decode())
        for sample in metric.samples
        if sample.name == name
    }


def test_the_devices_of_the_fleet_add_up_to_its_capacity() -> None:
    fleet = samples(told(Answers()), "trueload_fleet_devices")
    assert fleet == {
        ("used",): 3.0,
        ("no_process",): 1.0,
        ("with_process",): 0.0,
        ("gaps",): 0.5,
        ("unknown",): 0.5,
        ("unallocated",): 2.0,
        ("down",): 1.0,
        ("unreported",): 0.0,
    }
    assert sum(fleet.values()) == 8.0


def test_what_is_not_known_has_no_sample() -> None:
    page = told(Answers())
    accounts = samples(page, "trueload_account_devices")
    assert accounts[("ml", "held_idle")] == 1.0
    assert ("", "used") not in accounts
    assert accounts[("", "unknown")] == 0.0
    assert samples(page, "trueload_family_gpu_seconds") == {
        ("f1", "allocated"): 9.0,
        ("f1", "used"): 4.0,
        ("f1", "held_idle"): 5.0,
        ("f2", "allocated"): 7.0,
    }
    savings = samples(page, "trueload_recommendation_saving_gpu_seconds")
    assert ("likely", "r1", "fuse") not in savings
    assert savings[("high", "r1", "fuse")] == 9.0


def test_advice_is_counted_by_remedy() -> None:
    assert samples(told(Answers()), "trueload_recommendations") == {("fuse",): 2.0, ("release",): 1.0}


def test_there_are_never_more_series_than_the_setting_allows() -> None:
    answers = Answers()
    answers.rows = [account(f"a{at}", HOUR * (at + 1), HOUR) for at in range(50)]
    answers.families = [{**answers.families[0], "family_id": f"f{at}"} for at in range(50)]
    answers.advice = [{**answers.advice[1], "recommendation_id": f"r{at}"} for at in range(50)]
    page = told(answers, Settings({"metrics.figures_rows": 2}))
    held = samples(page, "trueload_account_devices")
    assert {name for name, _ in held} == {"a49", "a48", figures.OTHERS}
    assert held[(figures.OTHERS, "used")] == pytest.approx(48.0)
    assert len(samples(page, "trueload_family_info")) == 2
    assert {name for _, name, _ in samples(page, "trueload_recommendation_saving_gpu_seconds")} == {"r0", "r1"}
    assert samples(page, "trueload_families") == {(): 50.0}


def test_what_a_person_wrote_stays_in_its_label_and_is_cut() -> None:
    page = told(Answers())
    [(family, label)] = [key for key in samples(page, "trueload_family_info") if key[0] == "f1"]
    assert (family, label) == ("f1", HOSTILE[: figures.LONGEST_LABEL])
    assert not any(line.startswith("# HELP evil") for line in page.decode().splitlines())


def test_promtool_finds_nothing_to_complain_of(tmp_path: Path) -> None:
    page = tmp_path / "page"
    page.write_bytes(told(Answers()))
    with page.open("rb") as file:
        ran = subprocess.run(
            ["promtool", "check", "metrics"], stdin=file, capture_output=True, text=True, check=False, timeout=60
        )
    assert (ran.returncode, ran.stdout + ran.stderr) == (0, "")


def test_an_answer_that_fails_leaves_what_was_known(caplog: pytest.LogCaptureFixture) -> None:
    answers = Answers()
    source: Any = None
    found = Figures(source, answers.all(), Settings())
    found.refresh()
    known = found._told

    def broken(*_given: object) -> dict[str, Any]:
        raise RuntimeError("no")

    found.answers = {**found.answers, "waste": broken}
    found.refresh()
    assert found._told is known
    assert "could not be worked out" in caplog.text


def test_a_scrape_waits_for_nothing_and_the_next_is_told(tmp_path: Path) -> None:
    answers = Answers()
    server = Running(tmp_path / "data", answers.all())
    try:
        for _ in range(400):
            answer = server.client(Role.OPERATOR)._pool.request(
                "GET",
                f"{server.url}/metrics",
                headers={"Authorization": f"Bearer {server.tokens.by_role[Role.OPERATOR]}"},
            )
            if samples(answer.data, "trueload_fleet_devices"):
                break
            time.sleep(0.02)
        else:
            pytest.fail("no scrape was told anything")
        assert [question for question, _ in answers.asked] == ["waste", "families", "recommend"]
        assert answers.asked[0][1]["by"] == "account"
    finally:
        server.stop()
