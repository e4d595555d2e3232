"""B2: which jobs are one family, by names and users, on labelled jobs; and whether an array stays together."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from math import fsum
from typing import TYPE_CHECKING

from analysis.account import GpuSeconds
from analysis.benchmark import Bar, Benchmark, BenchRequest, BenchResult, at_least, at_most
from analysis.benchmarks._pairs import score
from analysis.benchmarks._sources import Row, files, imported, rows
from analysis.evidence import AttemptEvidence
from analysis.repetition import find_families
from warehouse.contract.model import AttemptState
from warehouse.contract.units import SECONDS_PER_HOUR, ratio

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from warehouse.client import Client

LABELLED = "clustercockpit_nhr"
ARRAYS = "nrel_eagle_sample"
RECURRING_JOBS = 3
"""A label with this many jobs is recurring work; two may be a retry."""
_LABEL_COLUMNS = ("job_id", "hpc_user", "job_name", "num_acc", "duration", "family_label")
_ARRAY_COLUMNS = ("job_id", "user", "account", "partition", "nodes_req", "start_time", "run_time", "name", "work_dir")


def run(request: BenchRequest) -> BenchResult:
    """Judge the labelled source and the source with an array, whichever are there."""
    figures: dict[str, object] = {}
    bars: list[Bar] = []
    predictions: list[tuple[str, ...]] = []
    not_shown = [
        "B1 (service instances without names): the rule needs a name, a program or an owner",
        "labels were given by reading the names: they are weaker than what the owners would say",
    ]
    tables, labels = (files(request.data_root, LABELLED, name) for name in ("jobs.csv", "family_labels.csv"))
    if tables and labels:
        with imported(request, "clustercockpit", tables) as client:
            found = _groups(client)
        judged = _judge_labels(found, rows(labels, _LABEL_COLUMNS))
        figures[LABELLED] = judged.figures
        bars += judged.bars
        predictions += judged.predictions
    else:
        not_shown.append(f"{LABELLED}: not below {request.data_root}")
    arrays = files(request.data_root, ARRAYS, "sample_eagle_data.csv")
    if arrays:
        judged = _judge_arrays(rows(arrays, _ARRAY_COLUMNS), request)
        figures[ARRAYS] = judged.figures
        bars += judged.bars
        predictions += judged.predictions
    else:
        not_shown.append(f"{ARRAYS}: not below {request.data_root}")
    return BenchResult(figures, bars, not_shown, ("source", "item", "group"), predictions)


def _groups(client: Client) -> dict[str, str]:
    """Give the group of every GPU job by its scheduler's id: its family, or itself."""
    document = client.ask("families", {})
    groups: dict[str, str] = {}
    families, ungrouped = document["families"], document["ungrouped"]
    if not isinstance(families, list) or not isinstance(ungrouped, list):
        raise TypeError("the answer `families` does not keep its contract")
    for family in families:
        groups |= {_scheduler_id(key): str(family["family_id"]) for key in family["members"]}
    return groups | {_scheduler_id(key): key for key in ungrouped}


def _scheduler_id(job_key: str) -> str:
    return job_key.partition("/")[2].rpartition("#")[0]


def _judge_labels(found: Mapping[str, str], labels: Sequence[Row]) -> BenchResult:
    judged = [row for row in labels if row["job_id"] in found]
    truth = {row["job_id"]: row["family_label"] for row in judged}
    ours = {row["job_id"]: found[row["job_id"]] for row in judged}
    same_name = {row["job_id"]: f"{row['hpc_user']}/{row['job_name']}" for row in judged}
    hours = {row["job_id"]: float(row["duration"]) * float(row["num_acc"]) / SECONDS_PER_HOUR for row in judged}
    pairs = score(ours, truth)
    recurring, share = _recurring(ours, truth, hours)
    sizes = Counter(ours.values())
    sessions = sum(1 for item, label in truth.items() if label.startswith("single#") and sizes[ours[item]] > 1)
    figures = {
        "jobs": len(judged),
        "jobs_labelled_but_not_found": len(labels) - len(judged),
        **pairs.as_document(),
        "recurring_gpu_hours": recurring,
        "recurring_gpu_hours_share_found": share,
        "interactive_jobs_in_families": sessions,
        "baseline_same_user_and_name": score(same_name, truth).as_document()
        | {"recurring_gpu_hours_share_found": _recurring(same_name, truth, hours)[1]},
    }
    bars = (
        at_least(f"{LABELLED}: pair F1", pairs.f1, 0.95),
        at_least(f"{LABELLED}: pair precision", pairs.precision, 0.97),
        at_least(f"{LABELLED}: share of recurring GPU-hours", share, 0.97),
        at_most(f"{LABELLED}: interactive, bash and test jobs in families", sessions, 0),
        at_most(f"{LABELLED}: labelled jobs that were not found", len(labels) - len(judged), 0),
    )
    return BenchResult(figures, bars, (), (), [(LABELLED, item, group) for item, group in ours.items()])


def _recurring(
    found: Mapping[str, str], truth: Mapping[str, str], hours: Mapping[str, float]
) -> tuple[float, float | None]:
    """Give the GPU-hours of recurring work, and the share of them in groups that are seen to recur."""
    labels, groups = Counter(truth.values()), Counter(found.values())
    recurring = [item for item, label in truth.items() if labels[label] >= RECURRING_JOBS]
    seen = [item for item in recurring if groups[found[item]] >= RECURRING_JOBS]
    whole = sum(hours[item] for item in recurring)
    return whole, ratio(sum(hours[item] for item in seen), whole)


def _judge_arrays(table: Sequence[Row], request: BenchRequest) -> BenchResult:
    """Judge accounting of CPU jobs, node for GPU: rows that share a job id are the tasks of one array."""
    sizes = Counter(row["job_id"] for row in table)
    jobs = [_as_job(number, row, is_task=sizes[row["job_id"]] > 1) for number, row in enumerate(table)]
    report = find_families(jobs, request.settings)
    families = report.family_of()
    tasks = [job for job in jobs if job.array_job_id is not None]
    split = {job.array_job_id for job in tasks if families.get(job.job_key) is None}
    by_array = {job.array_job_id: families.get(job.job_key) for job in tasks}
    split |= {job.array_job_id for job in tasks if families.get(job.job_key) != by_array[job.array_job_id]}
    hours = {job.job_key: job.gpu_seconds.allocated / SECONDS_PER_HOUR for job in jobs}
    placed = [member for family in report.families for member in family.members] + list(report.ungrouped)
    lost = fsum(hours.values()) - fsum(hours[key] for key in placed)
    names = {job.job_key: f"{job.user}/{job.name}" for job in jobs}
    ours = {key: families.get(key, key) for key in hours}
    figures = {
        "rows": len(jobs),
        "arrays": len(by_array),
        "rows_of_arrays": len(tasks),
        "arrays_not_in_one_family": len(split),
        "node_hours": fsum(hours.values()),
        "node_hours_lost": lost,
        "user_and_anonymous_name_recovered": score(ours, names).as_document(),
    }
    bars = (
        at_most(f"{ARRAYS}: arrays that are not one family", len(split), 0),
        at_most(f"{ARRAYS}: node-hours lost", abs(lost), 1e-6 * fsum(hours.values())),
    )
    return BenchResult(figures, bars, (), (), [(ARRAYS, item, group) for item, group in ours.items()])


def _as_job(number: int, row: Row, *, is_task: bool) -> AttemptEvidence:
    start_at = datetime.fromisoformat(row["start_time"]).replace(tzinfo=UTC).timestamp()
    run_seconds, nodes = float(row["run_time"]), int(row["nodes_req"])
    held = run_seconds * nodes
    job_key = f"eagle/{row['job_id']}#{number}"
    return AttemptEvidence(
        attempt_key=f"{job_key}:0",
        job_key=job_key,
        scheduler_job_id=row["job_id"],
        cluster="eagle",
        state=AttemptState.UNKNOWN,
        start_at=start_at,
        end_at=start_at + run_seconds,
        gpu_count=float(nodes),
        node_count=nodes,
        gpu_seconds=GpuSeconds(allocated=held, unknown=held, failed=0.0),
        name=row["name"],
        user=row["user"],
        account=row["account"],
        partition=row["partition"],
        work_dir=row["work_dir"],
        array_job_id=row["job_id"] if is_task else None,
    )


BENCHMARK = Benchmark(
    name="families",
    description="B2: pair precision and recall of families against labels, and whether a job array stays together.",
    run=run,
)
