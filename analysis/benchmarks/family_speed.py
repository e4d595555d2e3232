"""Grouping a million jobs into families: processor time and memory, the evidence of all jobs included."""

from __future__ import annotations

import resource
from itertools import product
from time import process_time

from analysis.account import GpuSeconds
from analysis.benchmark import Bar, Benchmark, BenchRequest, BenchResult, at_most
from analysis.evidence import AttemptEvidence
from analysis.repetition import find_families
from warehouse.contract.model import AttemptState

FULL_COUNT, USUAL_COUNT = 1_000_000, 100_000
USERS = 2_000
WORKS = ("unet", "bert", "gpt", "resnet", "vit", "dqn", "diffusion", "speech", "graph", "llama")
_SWEEP = tuple(product((1, 2, 5), (2, 3, 4, 5)))
_KIB_PER_GIB = 2.0**20
_HOUR = 3600.0


def run(request: BenchRequest) -> BenchResult:
    """Make the jobs and group them; all of them with ``--full``."""
    return measure(FULL_COUNT if request.full else USUAL_COUNT, request)


def measure(count: int, request: BenchRequest) -> BenchResult:
    """Group so many jobs. Bars stand for a million of them alone."""
    jobs = [_job(number) for number in range(count)]
    before = process_time()
    report = find_families(jobs, request.settings)
    spent = process_time() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _KIB_PER_GIB
    placed = len(report.ungrouped) + sum(len(family.members) for family in report.families)
    bars: list[Bar] = [at_most("jobs lost or doubled", abs(placed - count), 0)]
    if count == FULL_COUNT:
        bars += [at_most("processor seconds", spent, 60.0), at_most("peak memory of the process (GiB)", peak, 2.0)]
    figures = {
        "jobs": count,
        "families": len(report.families),
        "processor_seconds": spent,
        "jobs_per_processor_second": count / spent if spent > 0 else None,
        "peak_gib": peak,
    }
    not_shown = (
        "gathering the evidence from the store (bench analyze)",
        "a run that adds to what is known: an hourly run groups all jobs of its window again",
        "names of people: these are made, two thousand users with ten sweeps each",
    )
    return BenchResult(figures, bars, not_shown)


def _job(number: int) -> AttemptEvidence:
    work, (rate, power) = WORKS[number // USERS % len(WORKS)], _SWEEP[number % len(_SWEEP)]
    return AttemptEvidence(
        attempt_key=f"c/{number}#0:1",
        job_key=f"c/{number}#0",
        scheduler_job_id=str(number),
        cluster="c",
        state=AttemptState.COMPLETED,
        start_at=float(number),
        end_at=number + _HOUR,
        gpu_count=1.0,
        node_count=1,
        gpu_seconds=GpuSeconds(_HOUR, 0.0, 0.0, _HOUR / 2, _HOUR / 2),
        name=f"{work}_lr{rate}e-{power}_seed{number % 100}_{number}",
        user=f"u{number % USERS}",
        partition="gpu",
    )


BENCHMARK = Benchmark(
    name="family_speed",
    description="Grouping a million jobs into families (--full; else a tenth): processor time and memory.",
    run=run,
    needs_sources=False,
)
