"""P4: how long the analysis of a week takes, from samples and from roll-ups, and how much memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.benchmark import Bar, Benchmark, BenchRequest, BenchResult, at_most
from analysis.benchmarks._fleet import Fleet, write_fleet
from analysis.benchmarks._same import differences
from warehouse import rollups, summaries
from warehouse.contract.errors import StoreError
from warehouse.contract.rollups import HOUR, MINUTE, SOURCES
from warehouse.contract.units import SECONDS_PER_DAY
from warehouse.lake import days_to_seal, publish, seal, sealed_days
from warehouse.store import open_store

if TYPE_CHECKING:
    from datetime import date

    from warehouse.store import Store

SMALL = Fleet(gpus=24, seconds=6 * SECONDS_PER_DAY, cadence_seconds=30.0, job_seconds=18_000.0, gap_seconds=1200.0)
WHOLE = Fleet(gpus=2000, seconds=6 * SECONDS_PER_DAY, job_seconds=18_000.0, gap_seconds=1200.0)
WEEK = "2026-W45"
MOST_SECONDS = {"samples": 60.0, "roll_ups": 5.0}
MOST_BYTES = 2 * 1024**3
_FOREVER = 4e9


@dataclass(frozen=True, slots=True)
class Run:
    """One run of ``trueload analyze`` in a process of its own, and one over an empty store beside it."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    document: Any


def run(request: BenchRequest) -> BenchResult:
    """Make a lake of a week, ask for its analysis from samples, sum it up, and ask again."""
    fleet = WHOLE if request.full else SMALL
    not_shown = [
        "real measurements: jobs and samples are made up",
        "an idle machine: whatever else runs on it counts into the seconds; CPU seconds tell more",
        *([] if request.full else [f"the whole size: {fleet.samples:,} of {WHOLE.samples:,} samples (--full)"]),
    ]
    with tempfile.TemporaryDirectory(prefix="trueload-bench-") as folder:
        data = Path(folder) / "data"
        _fill(data, fleet)
        start = _analyze(_empty(Path(folder) / "empty"))
        samples = _analyze(data)
        rolled = _roll(data, request)
        found = _analyze(data)
    wrong = list(differences(samples.document, found.document))
    million = fleet.samples / 1e6
    figures: dict[str, object] = {
        "samples": fleet.samples,
        "gpus": fleet.gpus,
        "start_of_the_command_seconds": start.seconds,
        **{f"from_{name}": _figures(one, start) for name, one in (("samples", samples), ("roll_ups", found))},
        "from_samples_cpu_seconds_a_million": (samples.cpu_seconds - start.cpu_seconds) / million,
        "times_as_much_cpu_from_samples": (samples.cpu_seconds - start.cpu_seconds)
        / max(found.cpu_seconds - start.cpu_seconds, 1e-3),
        "roll_ups": rolled,
        "different": wrong[:5],
    }
    bars = [
        Bar("P4: values that differ between both", float(len(wrong)), "0 (1e-6)", holds=not wrong),
        at_most("P4: seconds from samples", samples.seconds, MOST_SECONDS["samples"]),
        at_most("P4: peak bytes from samples", float(samples.peak_bytes), MOST_BYTES),
        at_most("P4: seconds from roll-ups", found.seconds, MOST_SECONDS["roll_ups"]),
    ]
    return BenchResult(figures, bars, not_shown)


def _figures(one: Run, start: Run) -> dict[str, float]:
    return {
        "seconds": one.seconds,
        "cpu_seconds": one.cpu_seconds,
        "cpu_seconds_beyond_the_start": one.cpu_seconds - start.cpu_seconds,
        "peak_bytes": float(one.peak_bytes),
    }


def _fill(data: Path, fleet: Fleet) -> None:
    store = open_store(data, create=True)
    try:
        write_fleet(store, fleet)
        _seal(store)
    finally:
        store.close()


def _seal(store: Store) -> None:
    for table, day in days_to_seal(store, _after_all()):
        seal(store, store.data, table, day)
    publish(store, store.data)


def _after_all() -> date:
    from datetime import date

    return date(2100, 1, 1)


def _empty(data: Path) -> Path:
    open_store(data, create=True).close()
    return data


def _roll(data: Path, request: BenchRequest) -> dict[str, float]:
    """Sum everything up; gives what that took, and what it takes on the disk."""
    store = open_store(data)
    try:
        began, used = time.perf_counter(), time.process_time()
        hours = rollups.roll(store, request.settings, _FOREVER)
        figures = {"hours": float(hours), "seconds": time.perf_counter() - began}
        figures["cpu_seconds"] = time.process_time() - used
        summaries.summarise(store)
        _seal(store)
        bytes_of = dict.fromkeys(("device_sample", MINUTE, HOUR, SOURCES), 0.0)
        for day in sealed_days(store):
            bytes_of[day.table] += day.file_bytes
        return figures | {f"{name}_bytes": size for name, size in bytes_of.items()}
    finally:
        store.close()


def _analyze(data: Path) -> Run:
    """Run the command as a person would.

    Raises:
        StoreError: it failed.

    """
    command = [sys.executable, "-m", "trueload", "analyze", "--data", str(data), "--week", WEEK, "--json"]
    began = time.perf_counter()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=out, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - began
        out.seek(0)
        errors.seek(0)
        if process.returncode:
            raise StoreError(f"{' '.join(command)}: {errors.read().decode(errors='replace')[-500:]}")
        document = json.loads(out.read())
    return Run(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, document)


BENCHMARK = Benchmark(
    name="analyze",
    description="P4: a week from samples and from roll-ups: that it is the same, and what it takes.",
    run=run,
    needs_sources=False,
)
