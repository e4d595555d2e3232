"""B7: foreign files are read whole: documented counts and values exactly, and no line is lost silently."""

from __future__ import annotations

import gzip
import json
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from analysis.benchmark import Bar, Benchmark, BenchRequest, BenchResult
from analysis.benchmarks._sources import files
from warehouse.contract.errors import BadInputError
from warehouse.contract.model import Allocation, AttemptSummary
from warehouse.importer import Imported, ImportOptions, Rejected
from warehouse.imports import kineto, nvidia_smi, prometheus, sacct
from warehouse.imports._measures import BLANK_FROM
from warehouse.imports._prom_text import point
from warehouse.imports._values import BadRowError

OPTIONS: Final = ImportOptions("bench", "UTC")
VALUES: Final = {
    "nvidia_smi_utilization_gpu_ratio": "driver_util_ratio",
    "nvidia_smi_memory_used_bytes": "memory_used_bytes",
    "nvidia_smi_power_draw_watts": "power_watts",
}
"""Series whose values a source tells, and what they become."""

MEAN_TOLERANCE_PERCENT: Final = 5e-5
"""Means are told to four decimals of a percent."""

_QUERY_HEAD: Final = "timestamp, driver_version"
_MIG_COLUMN: Final = "mig.mode.current"


@dataclass(slots=True)
class Found:
    """What became of the records of a file."""

    read: int = 0
    kept: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    altered: int = 0
    items: list[Imported] = field(default_factory=list)

    def values(self, column: str) -> list[float]:
        """Give a metric's values over all samples."""
        samples = (sample for item in self.items for sample in item.samples)
        return [sample.metrics[column] for sample in samples if column in sample.metrics]


def read_file(read: Callable[[Path, ImportOptions], Any], path: Path) -> Found:
    """Run an importer over a file, without a store."""
    found = Found()
    for item in read(path, OPTIONS):
        if isinstance(item, Rejected):
            found.read += 1
            found.rejected[item.reason] = found.rejected.get(item.reason, 0) + 1
        else:
            found.read += item.count
            found.kept += item.count
            found.altered += len(item.altered)
            found.items.append(item)
    return found


@dataclass(slots=True)
class Report:
    """Figures, bars and what is not shown, as they come."""

    figures: dict[str, object] = field(default_factory=dict)
    bars: list[Bar] = field(default_factory=list)
    not_shown: list[str] = field(default_factory=list)

    def equal(self, name: str, value: float | None, wanted: float, within: float = 0.0) -> None:
        """Add the bar of a figure that must be this one."""
        holds = value is not None and abs(value - wanted) <= within
        self.bars.append(Bar(name, value, f"{wanted:g}" if not within else f"{wanted:g} within {within:g}", holds))


def run(request: BenchRequest) -> BenchResult:
    """Read every file of the known forms and hold the counts against what stands beside it, or in the file itself."""
    report = Report()
    report.not_shown.append("values of columns that no source tells; they are tested by hand-made files")
    judges = (_pages, _captures, _dcgm, _sacct_pairs, _sacct_files, _monitor_lines, _timelines)
    for judge in judges:
        judge(request, report)
    return BenchResult(report.figures, report.bars, report.not_shown)


def _told(folder: Path, root: Path) -> Mapping[str, Any]:
    """Find the figures that stand beside files, or above them within the source; none is an empty mapping."""
    while folder != root and root in folder.parents:
        path = folder / "expected.json"
        if path.exists():
            try:
                document = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError) as cause:
                raise BadInputError(str(path), None, f"cannot be read as expected figures ({cause})") from cause
            return document if isinstance(document, dict) else {}
        folder = folder.parent
    return {}


def _sources(request: BenchRequest, report: Report, source: str, *patterns: str) -> list[Path]:
    found = [path for pattern in patterns for path in files(request.data_root, source, pattern)]
    if not found:
        report.not_shown.append(f"{source}: no {' or '.join(patterns)} below {request.data_root}")
    return found


def _pages(request: BenchRequest, report: Report) -> None:
    """Pages of nvidia_gpu_exporter: samples and families counted, utilization, memory and power by their values."""
    for path in _sources(request, report, "nvidia_smi_captures", "*.metrics"):
        expected = _told(path.parent, request.data_root).get(path.name)
        if expected is None:
            report.not_shown.append(f"{path.name}: not in an expected.json")
            continue
        found = read_file(prometheus.read, path)
        names = {point(text).name for text in _lines(path) if text and not text.startswith("#")}
        report.figures[path.name] = {"samples": found.read, "kept": found.kept, "families": len(names)}
        report.equal(f"{path.name}: samples", found.read, expected["samples"])
        report.equal(f"{path.name}: samples kept", found.kept, expected["samples"])
        report.equal(f"{path.name}: families", len(names), expected["families"])
        for series, column in VALUES.items():
            ours, theirs = sorted(found.values(column)), sorted(float(value) for value in expected.get(series, []))
            same = len(ours) == len(theirs) and all(map(_is_near, ours, theirs))
            report.bars.append(Bar(f"{path.name}: {series}", float(len(ours)), f"{len(theirs)} values, equal", same))


def _is_near(ours: float, theirs: float) -> bool:
    return math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-12)


def _captures(request: BenchRequest, report: Report) -> None:
    """Sessions of nvidia-smi: each row of a query is kept, and a card in slices has no utilization."""
    rows = sliced = 0
    wrong = 0
    for path in _sources(request, report, "nvidia_smi_captures", "*.txt.gz"):
        lines = _lines(path)
        for at, text in enumerate(lines):
            if not text.startswith(_QUERY_HEAD):
                continue
            names = text.split(", ")
            values = dict(zip(names, lines[at + 1].split(", "), strict=False))
            found = _read_text(nvidia_smi.read, f"{text}\n{lines[at + 1]}\n")
            is_sliced = values.get(_MIG_COLUMN) == "Enabled"
            utils = found.values("driver_util_ratio")
            rows, sliced = rows + found.kept, sliced + is_sliced
            said = values.get("utilization.gpu [%]", "").removesuffix(" %")
            wanted = [float(said) / 100] if said.replace(".", "", 1).isdigit() else []
            wrong += found.kept != 1 or utils != wanted or (is_sliced and bool(utils))
    if rows:
        report.figures["captures"] = {"rows": rows, "of_cards_in_slices": sliced}
        report.equal("captures: rows of queries that are not what they say", wrong, 0)


def _dcgm(request: BenchRequest, report: Report) -> None:
    """Text of dcgm-exporter: every line is kept, and a blank is never a number."""
    for path in _sources(request, report, "dcgm_docs", "*.prom"):
        points = [point(text) for text in _lines(path) if text and not text.startswith("#")]
        blanks = sum(abs(one.value) >= BLANK_FROM for one in points)
        found = read_file(prometheus.read, path)
        samples = [sample for item in found.items for sample in item.samples]
        report.figures[path.name] = {"lines": len(points), "blanks": blanks}
        report.equal(f"{path.name}: lines kept", found.kept, len(points))
        report.equal(f"{path.name}: blanks left out", found.altered, blanks)
        values = sum(len(sample.metrics) for sample in samples)
        report.equal(f"{path.name}: values that became metrics", values, len(points) - blanks)


def _sacct_pairs(request: BenchRequest, report: Report) -> None:
    """Rows over several lines become the records of the file beside them that has each on one line."""
    for path in _sources(request, report, "slurm_sacct_meta", "*-expected.txt"):
        sample = path.with_name(path.name.replace("-expected", ""))
        try:
            ours, theirs = _records(sample), _records(path)
        except BadInputError:
            report.not_shown.append(f"{path.name}: no output of sacct")
            continue
        report.figures[sample.name] = len(ours)
        differing = sum(mine != other for mine, other in zip(ours, theirs, strict=False)) + abs(len(ours) - len(theirs))
        report.equal(f"{sample.name}: records that differ from the expected", differing, 0)


def _records(path: Path) -> list[tuple[str, str, object]]:
    return [(item.record_key, item.content, item.rows) for item in read_file(sacct.read, path).items]


def _sacct_files(request: BenchRequest, report: Report) -> None:
    """Files of one line a row: no line is lost, and GPU-seconds are those of a plain sum over their columns."""
    for source, patterns in (("slurm-22.05", ("sacct_P*.txt",)), ("slurm_sacct_meta", ("sample-sacct-output.txt",))):
        for path in _sources(request, report, source, *patterns):
            lines = [text for text in _lines(path) if text.strip()]
            found = read_file(sacct.read, path)
            distinct = len({(item.record_key, item.content) for item in found.items})
            report.figures[path.name] = {"rows": found.read, "distinct": distinct, "rejected": found.rejected}
            report.equal(f"{path.name}: rows read", found.read, len(lines) - 1)
            report.equal(f"{path.name}: rows kept", found.kept, len(lines) - 1)
            report.equal(f"{path.name}: distinct rows", distinct, len(set(lines)) - 1)
            wanted = _plain_gpu_seconds(lines)
            if wanted is not None:
                report.equal(f"{path.name}: GPU-seconds", _gpu_seconds(found), wanted)


def _gpu_seconds(found: Found) -> float:
    held: dict[str, float] = {}
    for item in found.items:
        for row in item.rows:
            if isinstance(row, Allocation) and row.end_at is not None:
                held[row.allocation_key] = row.gpu_count * row.share_ratio * (row.end_at - row.start_at)
    return sum(held.values())


def _plain_gpu_seconds(lines: Sequence[str]) -> float | None:
    """Sum the GPUs of job rows times their elapsed seconds, as a spreadsheet would; None where a column lacks."""
    names = lines[0].split("|")
    if not {"JobID", "AllocTRES", "ElapsedRaw", "State", "End"} <= set(names):
        return None
    total = 0.0
    for text in lines[1:]:
        row = dict(zip(names, text.split("|"), strict=False))
        if "." in row["JobID"] or row["End"] in ("Unknown", ""):
            continue
        counts = dict(part.split("=", 1) for part in row["AllocTRES"].split(",") if "=" in part)
        total += float(counts.get("gres/gpu", 0)) * float(row["ElapsedRaw"] or 0)
    return total


def _monitor_lines(request: BenchRequest, report: Report) -> None:
    """Lines ``temperature, utilization, memory`` of a monitor: well formed and empty ones, and their mean."""
    for path in _sources(request, report, "lambda_gpu_benchmarks", "monitor_lines.parquet"):
        told = _told(path.parent, request.data_root).get("monitor")
        rows = pq.read_table(path, columns=["config", "task", "file", "text"]).to_pandas()
        lines = len(rows)
        empty = int((rows["text"].str.strip() == "").sum())
        kept = rejected = 0
        util = 0.0
        for _, texts in rows.groupby(["config", "task", "file"], sort=True)["text"]:
            found = _read_text(nvidia_smi.read, "\n".join(texts) + "\n")
            kept, rejected = kept + found.kept, rejected + sum(found.rejected.values())
            for item in found.items:
                means = [row for row in item.rows if isinstance(row, AttemptSummary)]
                util += sum(100 * (row.driver_util_ratio or 0.0) * item.count for row in means)
        mean = util / kept if kept else None
        name = str(path.relative_to(request.data_root))
        figures = {"lines": lines, "well_formed": kept, "empty": empty, "rejected": rejected, "mean_util_percent": mean}
        report.figures[name] = figures
        report.equal(f"{name}: lines that are neither kept, rejected nor empty", lines - kept - rejected - empty, 0)
        if told is None:
            report.not_shown.append(f"{name}: no expected.json beside it")
            continue
        report.equal(f"{name}: lines", lines, told["lines"])
        report.equal(f"{name}: well formed", kept, told["well_formed"])
        report.equal(f"{name}: empty", empty, told["empty"])
        report.equal(f"{name}: mean utilization, percent", mean, told["mean util pct"], MEAN_TOLERANCE_PERCENT)


def _timelines(request: BenchRequest, report: Report) -> None:
    """Profiler timelines: each has the events of devices that its source counts. ``bench trace`` judges their times."""
    for path in _sources(request, report, "hta", "reference_values.json"):
        if not request.full:
            report.not_shown.append("hta: events of timelines: --full, or bench trace")
            continue
        for name, values in json.loads(path.read_text(encoding="utf-8")).items():
            trace = path.parent / name
            if "direct" not in values or not trace.exists():
                continue
            try:
                events = len(kineto.read_timeline(trace).work().start_ns)
            except kineto.NoTimelineError:
                events = 0
            report.equal(f"{name}: events of devices", events, values["direct"]["gpu_events"])


def _lines(path: Path) -> list[str]:
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8", "replace").splitlines()
    except (OSError, EOFError) as cause:
        raise BadInputError(str(path), None, f"cannot be read ({cause})") from cause


def _read_text(read: Callable[[Path, ImportOptions], Any], text: str) -> Found:
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".txt") as file:
        file.write(text)
        file.flush()
        try:
            return read_file(read, Path(file.name))
        except (BadInputError, BadRowError):
            return Found()


BENCHMARK = Benchmark(
    name="parsing",
    description="B7: foreign files read whole: documented counts and values exactly, no line lost silently.",
    run=run,
)
