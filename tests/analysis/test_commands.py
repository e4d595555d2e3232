"""The commands of the judgement: what they ask, what they print, how they end."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pydantic import TypeAdapter

from analysis import benchmark, commands
from analysis.account import GpuSeconds, as_document
from analysis.benchmark import Bar, Benchmark, BenchRequest, BenchResult
from warehouse.client import Composition
from warehouse.contract.documents import BenchDocument
from warehouse.contract.errors import BadUseError, NotFoundError
from warehouse.contract.settings import Settings

HOUR = 3600.0
HOSTILE = "[bold red]x[/] \x1b[31m\u202e=cmd"
SECONDS = as_document(GpuSeconds(10 * HOUR, 1 * HOUR, 0.0, 6 * HOUR, 3 * HOUR, None, None, None))
ACCOUNT = {"gpu_seconds": SECONDS, "used_ratio": 2 / 3, "coverage_ratio": 0.9}
WINDOW = {"since": "2026-11-02T00:00:00Z", "until": "2026-11-09T00:00:00Z", "zone": "UTC", "rung": "gpu_bound"}
WASTE = {**WINDOW, **ACCOUNT, "by": "user", "jobs": 3, "attempts": 4, "rows": [{"key": HOSTILE, "jobs": 3, **ACCOUNT}]}
FAMILIES = {
    "families": [
        {
            "family_id": "f-1",
            "label": HOSTILE,
            "reason": f"same user ada, all named “{HOSTILE}”",
            "varies": ["seed in the name"],
            "members": ["c/1#0", "c/2#0"],
            "attempts": 2,
            **ACCOUNT,
        }
    ],
    "ungrouped": ["c/3#0"],
    "share_of_gpu_seconds": {
        "repetitive_single_gpu": 0.46,
        "isolated_single_gpu": 0.54,
        "multi_gpu": 0.0,
        "interactive_or_other": 0.0,
    },
}
ADVICE = {
    "recommendation_id": "r-1",
    "subject": {"kind": "job", "id": "c/1#0"},
    "remedy": "release",
    "title": f"Give back GPUs that are held idle: {HOSTILE}",
    "saving_gpu_seconds": {"low": HOUR, "likely": 2 * HOUR, "high": 3 * HOUR},
    "money": {"low": 2.0, "likely": 4.0, "high": 6.0, "currency": "CHF"},
    "confidence": "modelled",
    "how": "by rule",
    "rung": "gpu_bound",
    "evidence": ["idle for 3 h"],
    "action": "scancel 1\n# and a rule",
    "risks": ["state is lost"],
    "excludes": ["r-2"],
}
BOUND = {
    **ADVICE,
    "title": "Run repeats on fewer cards",
    "saving_gpu_seconds": {"low": 0.0, "likely": None, "high": 30 * HOUR},
    "money": {"low": None, "likely": None, "high": None, "currency": None},
}
REFUSED = {
    "subject": {"kind": "job", "id": "c/9#0"},
    "remedy": "release",
    "reason": "Only means.",
    "needs": ["samples"],
}
RECOMMEND = {**WINDOW, "recommendations": [ADVICE, BOUND], "refusals": [REFUSED, REFUSED]}
JOB: dict[str, Any] = {
    "job": {"job_key": "c/1#0", "name": HOSTILE, "user": "ada", "image": None},
    "attempts": [
        {
            "attempt": "c/1#0:5",
            "start_at": "2026-11-02T00:00:00Z",
            "end_at": None,
            "node": "n1",
            "devices": ["GPU-a"],
            "state": "running",
            "gpu_seconds": SECONDS,
            "ladder": {
                "gpu_bound_ratio": {"value": 0.31, "source": "kernels", "coverage_ratio": 0.9},
                "sm_active_ratio": {"value": None, "source": None, "coverage_ratio": None},
            },
            "inflation_ratio": 0.6,
        }
    ],
    "findings": [{"title": "The driver says 91 %"}],
    "family_id": None,
}
ANSWERS: dict[str, dict[str, Any]] = {
    "waste": WASTE,
    "families": FAMILIES,
    "recommend": RECOMMEND,
    "job": JOB,
    "analyze": {"jobs": 3, "families": {"count": 1}},
}
COMMANDS = {
    "waste": (commands.waste_command, []),
    "families": (commands.families_command, []),
    "recommend": (commands.recommend_command, []),
    "job": (commands.job_command, ["1"]),
    "analyze": (commands.analyze_command, []),
}


class Stub:
    """A client that remembers what it was asked."""

    def __init__(self, answers: Mapping[str, dict[str, Any]] = ANSWERS) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.opened: list[tuple[Path, bool]] = []
        self.closed = 0
        self.answers = answers

    def ask(self, question: str, parameters: Mapping[str, str]) -> dict[str, object]:
        self.asked.append((question, dict(parameters)))
        if question not in self.answers:
            raise NotFoundError("no job 1")
        return self.answers[question]

    def close(self) -> None:
        self.closed += 1


def invoke(name: str, *arguments: str, stub: Stub | None = None) -> Result:
    client = stub or Stub()
    command, given = COMMANDS.get(name, (commands.bench_command, []))

    def open_client(data: Path, create: bool) -> Any:
        client.opened.append((data, create))
        return client

    composition = Composition(open_client, Settings, lambda: (), dict, lambda *_asked: {}, benchmark.benchmarks)
    return CliRunner().invoke(command, [*given, *arguments], obj=composition)


@pytest.mark.parametrize("name", COMMANDS)
def test_json_is_the_answer_and_nothing_else(name: str) -> None:
    result = invoke(name, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == ANSWERS[name]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_question_opens_the_named_store_without_creating_it_and_lets_go(name: str, tmp_path: Path) -> None:
    stub = Stub()
    invoke(name, "--data", str(tmp_path), stub=stub)
    assert stub.opened == [(tmp_path, False)]
    assert stub.closed == 1


def test_only_what_was_said_is_asked() -> None:
    stub = Stub()
    invoke("waste", "--by", "user", "--week", "2026-W44", "--rung", "gpu_bound", stub=stub)
    invoke("job", "--zone", "Europe/Berlin", stub=stub)
    assert stub.asked == [
        ("waste", {"by": "user", "week": "2026-W44", "rung": "gpu_bound"}),
        ("job", {"id": "1", "zone": "Europe/Berlin"}),
    ]


@pytest.mark.parametrize("name", ["waste", "families", "recommend", "job"])
def test_hostile_names_are_shown_as_text_and_never_steer_the_terminal(name: str) -> None:
    shown = invoke(name).stdout
    assert "[bold red]x[/]" in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown


def test_waste_shows_hours_percent_and_what_is_not_known() -> None:
    shown = invoke("waste", "--by", "user").stdout
    row = next(line for line in shown.splitlines() if line.lstrip("│ ").startswith("all"))
    cells = [cell.strip() for cell in row.strip("│").split("│")]
    assert cells == ["all", "3", "10.0", "6.0", "3.0", "—", "—", "—", "1.0", "0.0", "66.7 %", "90.0 %"]
    assert "Busy by gpu_bound (share of time in which a kernel ran); coverage 90.0 %" in shown
    assert "2026-11-02T00:00:00Z to 2026-11-09T00:00:00Z, zone UTC" in shown


def test_accounting_alone_is_called_so() -> None:
    blind = {**WASTE, "rung": None, "used_ratio": None, "coverage_ratio": 0.0}
    shown = invoke("waste", stub=Stub({"waste": blind})).stdout
    assert "Use: not known, from accounting alone" in shown


def test_where_nobody_measured_the_lack_of_advice_says_what_is_missing() -> None:
    blind = {**RECOMMEND, "rung": None, "recommendations": [], "refusals": []}
    shown = " ".join(invoke("recommend", stub=Stub({"recommend": blind})).stdout.split())
    assert "No advice: nothing says how busy the GPUs were. Measure them (`trueload agent run`)" in shown
    busy = invoke("recommend", stub=Stub({"recommend": {**blind, "rung": "driver_util"}})).stdout
    assert "No change would give back enough GPU time" in busy


def test_an_attempt_without_measures_says_so_instead_of_an_empty_table() -> None:
    blind: dict[str, Any] = copy.deepcopy(JOB)
    blind["attempts"][0]["ladder"] = {}
    assert "c/1#0:5: nothing says how busy its GPUs were." in invoke("job", stub=Stub({"job": blind})).stdout


def test_a_long_table_is_cut_and_says_so() -> None:
    many = {**WASTE, "rows": [{"key": f"user{number}", "jobs": 1, **ACCOUNT} for number in range(1060)]}
    shown = invoke("waste", stub=Stub({"waste": many})).stdout
    assert "user49 " in shown
    assert "user50 " not in shown
    assert "… and 1,010 more; --json has all of them." in shown


def test_families_show_label_jobs_hours_and_why() -> None:
    shown = invoke("families").stdout
    assert "same user ada" in shown
    assert "seed in the name" in shown
    assert "46.0 %" in shown
    assert "1 jobs are in no family" in shown


def test_recommend_shows_range_money_action_and_bounds() -> None:
    shown = invoke("recommend").stdout
    assert "would have saved 2.0 GPU-hours (1.0 to 3.0), 4 CHF (2 to 6); modelled: by rule" in shown
    assert "would have saved at most 30.0 GPU-hours; modelled" in shown
    assert "scancel 1" in shown
    assert "instead of, not beside: r-2" in shown


def test_the_same_advice_on_more_subjects_is_one_line() -> None:
    nights = [{**ADVICE, "recommendation_id": f"r-{night}"} for night in range(3)]
    nights[2] = {**nights[2], "saving_gpu_seconds": {"low": 0.0, "likely": HOUR, "high": HOUR}}
    shown = invoke("recommend", stub=Stub({"recommend": {**RECOMMEND, "recommendations": nights}})).stdout
    assert shown.count("scancel 1") == 1
    assert "the same on 2 more, 1.0 to 2.0 GPU-hours each; --json lists them" in shown


def test_equal_refusals_are_one_line_with_their_count() -> None:
    shown = invoke("recommend").stdout
    assert "release on 2 subjects: Only means." in shown
    assert "needs samples" in shown


def test_job_shows_the_known_rungs_with_their_source() -> None:
    shown = invoke("job").stdout
    assert "31.0 %" in shown
    assert "kernels" in shown
    assert "sm_active_ratio" not in shown
    assert "The driver says 91 %" in shown


TRACER = {
    "source": "kernels",
    "coverage_ratio": 0.9,
    "launches_per_second": 5210.0,
    "mean_kernel_seconds": 36.4e-6,
    "steps_total": 84_000,
    "steps_per_second": None,
    "gpu_bound_corrected_ratio": {"low": 0.31, "likely": 0.33, "high": 0.36},
    "gpu_bound_extrapolated_ratio": None,
    "gap_lengths": [{"shortest_seconds": 1.024e-6, "longest_seconds": 2.048e-6, "count": 12_345}],
    "kernels": [
        {"kernel": HOSTILE, "grid": "80x1x1", "launch_count": 4, "mean_seconds": 1e-5},
        {"kernel": "(other kernels)", "grid": None, "launch_count": 7, "mean_seconds": 2e-5},
    ],
}


def test_job_shows_what_the_tracer_told_and_leaves_out_what_it_does_not_know() -> None:
    traced: dict[str, Any] = copy.deepcopy(JOB)
    traced["attempts"][0]["tracer"] = TRACER
    shown = " ".join(invoke("job", stub=Stub({"job": traced})).stdout.split())
    assert "traced: kernels, covers 90.0 % of c/1#0:5" in shown
    assert "launches per second 5,210" in shown
    assert "mean kernel length 36.4 µs" in shown
    assert "GPU-bound without the tracer's own cost 33.0 % (31.0 % to 36.0 %)" in shown
    assert "gaps of 1.024 µs to 2.048 µs 12,345" in shown
    assert "4 launches of 10 µs, grid 80x1x1" in shown
    assert "7 launches of 20 µs" in shown
    assert "grid None" not in shown
    assert "steps per second" not in shown
    assert "pauses included" not in shown


def test_a_job_that_is_not_there_is_an_error_of_ours() -> None:
    result = invoke("job", stub=Stub({}))
    assert isinstance(result.exception, NotFoundError)


def given_benchmark(monkeypatch: pytest.MonkeyPatch, *, holds: bool) -> None:
    def run(request: BenchRequest) -> BenchResult:
        bars = [Bar("speed", 1.0 if holds else None, ">= 0.5", holds)]
        return BenchResult({"all": {"speed": 1.0, "full": request.full}}, bars, ["the rest"], ("item",), [("a,b",)])

    monkeypatch.setattr(benchmark, "benchmarks", lambda: {"gpu_choice": Benchmark("gpu_choice", "A test.", run)})


@pytest.mark.parametrize("holds", [True, False])
def test_a_benchmark_ends_with_one_when_a_bar_does_not_hold(
    holds: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given_benchmark(monkeypatch, holds=holds)
    result = invoke("bench", "gpu-choice", "--json", "--data-root", str(tmp_path))
    assert result.exit_code == (0 if holds else 1)
    document = json.loads(result.stdout)
    TypeAdapter(BenchDocument).validate_python(document)
    assert document["bars"] == [{"name": "speed", "value": 1.0 if holds else None, "bar": ">= 0.5", "holds": holds}]


def test_predictions_are_written_as_csv(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given_benchmark(monkeypatch, holds=True)
    target = tmp_path / "rows.csv"
    shown = invoke("bench", "gpu-choice", "--data-root", str(tmp_path), "--predictions", str(target)).stdout
    assert target.read_text(encoding="utf-8") == 'item\n"a,b"\n'
    assert "not shown: the rest" in shown


def test_predictions_that_cannot_be_written_are_bad_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given_benchmark(monkeypatch, holds=True)
    target = tmp_path / "absent" / "rows.csv"
    result = invoke("bench", "gpu-choice", "--data-root", str(tmp_path), "--predictions", str(target))
    assert isinstance(result.exception, BadUseError)
    assert str(target) in str(result.exception)


def test_an_unknown_benchmark_names_the_known_ones(tmp_path: Path) -> None:
    result = invoke("bench", "nothing", "--data-root", str(tmp_path))
    assert isinstance(result.exception, BadUseError)
    assert {"analyze", "families", "ingest", "pages"} <= set(str(result.exception).replace(",", "").split())


def test_an_absent_data_root_is_named(tmp_path: Path) -> None:
    result = invoke("bench", "families", "--data-root", str(tmp_path / "absent"))
    assert isinstance(result.exception, BadUseError)
    assert "TRUELOAD_DATA_ROOT" in str(result.exception)


def test_every_benchmark_is_found() -> None:
    assert {"families", "waste"} <= set(benchmark.benchmarks())
