"""Rules and dashboards name what the agent and the server really expose, and promtool agrees with the rules."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from collector import exporter_metrics
from collector.aggregate import Moment
from collector.driver import Driver, KnownDevice
from collector.job_source import Holding
from collector.recent import Recent
from collector.source import Reading
from collector.spool import Bounds, Spool
from collector.steps_seen import StepsSeen
from collector.sweep import SourceHealth
from tests.warehouse.test_figures import Answers
from tests.warehouse.test_server import Running
from warehouse import figures
from warehouse.access import Role
from warehouse.contract.metrics import CATALOGUE
from warehouse.contract.model import ProcessSample

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "trueload.rules.yaml"
DASHBOARDS = sorted((DEPLOY / "grafana").glob("*.json"))
NAME = re.compile(r"\b(trueload[a-z0-9_:]+)\b(\{[^}]*\})?")
LABEL = re.compile(r'([a-z_]+)\s*(?:=~|!~|!=|=)\s*"')
OF_PROMETHEUS = {"instance", "job", "le"}
SUFFIXES = ("_bucket", "_sum", "_count")


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["promtool", *arguments], capture_output=True, text=True, check=False, timeout=120, cwd=RULES.parent
    )


def test_the_rules_are_rules() -> None:
    ran = promtool("check", "rules", RULES.name)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_each_rule_does_what_its_unit_test_says() -> None:
    ran = promtool("test", "rules", "trueload.rules.test.yaml")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def _of_agent(folder: Path) -> Iterator[Metric]:
    """Give all that an agent can expose: each metric of the catalogue, with a job that holds the device."""
    driver = Driver()
    driver.devices = (KnownDevice("GPU-a", 0, None, "A100", 80 * 1024**3, "00000000:01:00.0"),)
    recent = Recent(interval_seconds=1.0, history_seconds=60.0)
    recent.add(Moment(1000.0, 0.0), {"nvml": [Reading("GPU-a", {metric.name: 0.5 for metric in CATALOGUE})]})
    recent.add(Moment(1001.0, 1.0), {"nvml": [Reading("GPU-a", {metric.name: 0.5 for metric in CATALOGUE})]})
    held = [Holding("c/a#0:1", "GPU-a", 1.0, None, source="kubelet")]
    health = {"nvml": SourceHealth(10, Counter({"ValueError": 2}), 0.5, 0.1)}
    shipper: Any = _Shipped()
    steps = StepsSeen()
    steps.take([ProcessSample("c", "n", "GPU-a", 1, 1.0, 10.0, "t", attempt_key="c/a#0:1", steps_total=5)])
    with Spool(folder / "spool", "n", Bounds(10**9, 1e9)) as spool:
        subject = exporter_metrics.Subject(
            "n", "1", ("nvml",), driver, recent, spool, health, held, {}, shipper, 1e9, 5, steps
        )
        yield from exporter_metrics.device_families(subject)
        yield from exporter_metrics.job_families(subject, 1000.0)
        yield from exporter_metrics.agent_families(subject)


class _Shipped:
    """What the exporter reads of a shipper."""

    shipped_total = refused_total = failed_total = lost_by_server_total = 0
    clock = None
    last_success_at = 1.0


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Give every metric that agent and server expose with the labels it may have."""
    folder = tmp_path_factory.mktemp("exposed")
    found: dict[str, set[str]] = {}

    def note(families: Iterable[Metric]) -> None:
        for family in families:
            names = {sample.name for sample in family.samples} or {family.name}
            if family.type == "counter":
                names.add(f"{family.name}_total")
            for name in names:
                found.setdefault(name, set()).update(*(sample.labels for sample in family.samples))

    note(_of_agent(folder))
    note(_of_server(folder))
    return found


def _of_server(folder: Path) -> Iterator[Metric]:
    server = Running(folder / "data", Answers().all())
    try:
        headers = {"Authorization": f"Bearer {server.tokens.by_role[Role.OPERATOR]}"}
        pool = server.client()._pool
        page = pool.request("GET", f"{server.url}/metrics", headers=headers).data.decode()
    finally:
        server.stop()
    yield from text_string_to_metric_families(page)
    answers = Answers()
    waste, families, recommend = (answers.all()[name] for name in ("waste", "families", "recommend"))
    nothing: Any = None
    yield from figures.families(
        figures.Told(1.0, 1.0, *(answer(nothing, nothing, {}) for answer in (waste, families, recommend))), 20
    )
    gauges = ("accounting_age_seconds", "clocks_off", "clock_ahead_max_seconds", "clock_behind_max_seconds")
    for name in gauges:  # told only where there are senders; observe.py has their names
        assert f'"{name}"' in (DEPLOY.parent / "warehouse" / "observe.py").read_text(encoding="utf-8")
        metric = Metric(f"trueload_server_{name}", "", "gauge")
        metric.add_sample(metric.name, {}, 1.0)
        yield metric


def _recorded() -> set[str]:
    return set(re.findall(r"record: (\S+)", RULES.read_text(encoding="utf-8")))


def _expressions() -> Iterator[tuple[str, str]]:
    text = RULES.read_text(encoding="utf-8")
    for block in re.findall(r"expr: (?:>-\n)?((?:.+\n(?:\s{10,}.+\n)*))", text):
        yield RULES.name, block
    for path in DASHBOARDS:
        document = json.loads(path.read_text(encoding="utf-8"))
        for panel in document["panels"]:
            for target in panel["targets"]:
                yield path.name, target["expr"]
        for variable in document["templating"]["list"]:
            if variable["type"] == "query":
                yield path.name, variable["query"]["query"]


def test_every_metric_and_label_that_is_named_is_exposed(exposed: dict[str, set[str]]) -> None:
    recorded = _recorded()
    seen = 0
    for where, expression in _expressions():
        for name, matchers in NAME.findall(expression):
            if name in recorded:
                continue
            base = next(
                (name.removesuffix(end) for end in SUFFIXES if name not in exposed and name.endswith(end)), name
            )
            known = exposed.get(name) or exposed.get(base)
            assert name in exposed or base in exposed, f"{where}: {name} is exposed by nobody"
            for label in LABEL.findall(matchers):
                assert label in (known or set()) | OF_PROMETHEUS, f"{where}: {name} has no label {label}"
            seen += 1
    assert seen > 50


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_is_whole(path: Path) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    panels = document["panels"]
    assert document["uid"].startswith("trueload-")
    assert document["schemaVersion"] >= 39
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["title"], panel["id"]
        assert panel["description"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"
        if panel["type"] == "timeseries":
            assert panel["fieldConfig"]["defaults"]["custom"]["spanNulls"] is False, "a gap is drawn as a gap"
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(place["x"] + dx, place["y"] + dy) for dx in range(place["w"]) for dy in range(place["h"])}
        assert not cells & taken, f"{panel['title']} lies over another panel"
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_no_dashboard_asks_by_the_address_of_an_agents_pod() -> None:
    for where, expression in _expressions():
        if where.endswith(".json"):
            assert 'instance="' not in expression
            assert 'instance=~"' not in expression
