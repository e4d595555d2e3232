"""Summaries of jobs by jobstats, as ``sacct`` prints them from the AdminComment of Slurm's accounting.

Needed are ``JobIDRaw`` (or ``JobID``) and ``AdminComment``; ``Cluster``, ``Start``, ``End``, ``State``, ``JobName``,
``User``, ``Account`` and ``Partition`` are used where present. A summary belongs to the attempt that the store knows
from accounting; one whose job nobody told of becomes a job of its own, if the row says when it ran. The importer
``sacct`` reads the same column when it is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from warehouse.contract.errors import BadInputError
from warehouse.contract.model import Allocation, Attempt, AttemptState, Job, Record
from warehouse.importer import Imported, Importer, ImportOptions, PastAttempt, Rejected
from warehouse.imports import _slurm_values as slurm
from warehouse.imports._device_owner import attempt_at
from warehouse.imports._jobstats_summary import SOURCE, Summary, summary
from warehouse.imports._text import numbered_lines
from warehouse.imports._values import BadRowError, Clock, Lenient, cluster_name, short_text

_DELIMITERS: Final = "\x1f|,;\t"
_IDS: Final = ("JobIDRaw", "JobID")
_USED: Final = ("Cluster", "Start", "End", "State", "JobName", "User", "Account", "Partition", "AdminComment")


def read(path: Path, options: ImportOptions) -> Iterator[Imported | Rejected]:
    """Stream the records of a file; see ``Importer.read``."""
    lines = numbered_lines(path, options.consumed)
    names, delimiter = _header(path, lines)
    clock, lenient = Clock(options.zone), Lenient(options.max_field_characters)
    for line, text in lines:
        if not text.strip():
            continue
        try:
            values = _values(text, names, delimiter, options)
            record = _record(line, values, options, clock, lenient)
        except BadRowError as bad:
            lenient.take_altered()
            yield Rejected(line, bad.reason, bad.detail)
            continue
        yield record


def _header(path: Path, lines: Iterator[tuple[int, str]]) -> tuple[list[str], str]:
    for line, text in lines:
        if text.strip():
            delimiter = max(_DELIMITERS, key=text.count)
            names = [name.strip() for name in text.split(delimiter)]
            if "AdminComment" not in names or not set(_IDS) & set(names):
                detail = "expected a header with JobIDRaw (or JobID) and AdminComment, as sacct -P prints it"
                raise BadInputError(str(path), f"line {line}", detail)
            return names, delimiter
    raise BadInputError(str(path), None, "holds no text; expected a header with JobIDRaw and AdminComment")


def _values(text: str, names: Sequence[str], delimiter: str, options: ImportOptions) -> dict[str, str]:
    fields = text.split(delimiter)
    if len(fields) != len(names):
        reason = "too few fields" if len(fields) < len(names) else "too many fields"
        raise BadRowError(reason, f"{len(fields)} fields, the header has {len(names)}")
    given = dict(zip(names, fields, strict=True))
    values = {name: given.get(name, "") for name in _USED}
    values["id"] = given.get("JobIDRaw") or given.get("JobID", "")
    values["Cluster"] = values["Cluster"] or options.cluster
    return values


def _record(line: int, values: Mapping[str, str], options: ImportOptions, clock: Clock, lenient: Lenient) -> Imported:
    cluster = cluster_name(values["Cluster"])
    shown = slurm.job_id("JobIDRaw", values["id"])
    content = "\x1f".join((*values.values(), options.zone))
    found = None if shown.step is not None else summary(values["AdminComment"])
    key = f"{cluster}/{values['id']}:{values['Start']}"
    if found is None:
        return Imported(line, key, content, ())
    start = None if values["Start"] in slurm.NOTHING else clock.at("Start", values["Start"])
    known = options.past_attempts(cluster, [shown.shown])
    past = _attempt(known, start)
    if past is None and known:
        raise BadRowError("job not in the store", f"{cluster}/{shown.shown}: {len(known)} attempts, none of that start")
    if past is not None:
        rows: list[Record] = []
        attempt_key = past.attempt_key
    else:
        rows = _own(values, cluster, shown.shown, found, start, clock, lenient)
        attempt_key = f"{cluster}/{shown.shown}#0:{int(start or 0)}"
    if (row := found.row(attempt_key)) is not None:
        rows.append(row)
    return Imported(line, key, content, tuple(rows), lenient.take_altered())


def _attempt(known: Sequence[PastAttempt], start: float | None) -> PastAttempt | None:
    """Give the attempt that a summary is about: the one of that start; where no start is told, the last one."""
    if start is not None:
        return attempt_at(known, start)
    started = [past for past in known if past.start_at is not None]
    return max(started, key=lambda past: (past.start_at or 0.0, past.attempt_key), default=None)


def _own(
    values: Mapping[str, str],
    cluster: str,
    job_id: str,
    found: Summary,
    start: float | None,
    clock: Clock,
    lenient: Lenient,
) -> list[Record]:
    """Give a job that accounting has not told of.

    Raises:
        BadRowError: the row does not say when it ran.

    """
    if start is None or values["End"] in slurm.NOTHING:
        raise BadRowError(
            "job not in the store", f"{cluster}/{job_id}; import the accounting first, or add Start and End"
        )
    end = clock.at("End", values["End"])
    if end < start:
        raise BadRowError("ends before it starts", f"Start is {values['Start']}, End is {values['End']}")
    job = Job(
        job_key=f"{cluster}/{job_id}#0",
        cluster=cluster,
        scheduler_job_id=job_id,
        source=SOURCE,
        name=lenient.text("JobName", values["JobName"]),
        user=short_text("User", values["User"]),
        account=short_text("Account", values["Account"]),
        partition=short_text("Partition", values["Partition"]),
    )
    attempt_key = f"{job.job_key}:{int(start)}"
    nodes = sorted({gpu.node for gpu in found.gpus})
    attempt = Attempt(
        attempt_key=attempt_key,
        job_key=job.job_key,
        state=slurm.state(values["State"]) if values["State"] else AttemptState.UNKNOWN,
        raw_state=short_text("State", values["State"]),
        start_at=start,
        end_at=end,
        source=SOURCE,
        node_list=lenient.text("nodes", ",".join(nodes)),
    )
    held = Allocation(
        allocation_key=f"{attempt_key}:0",
        attempt_key=attempt_key,
        gpu_count=float(len(found.gpus)),
        start_at=start,
        end_at=end,
        source=SOURCE,
        certainty="summary",
        node=short_text("node", nodes[0]) if len(nodes) == 1 else None,
    )
    return [job, attempt, *([held] if found.gpus else [])]


EXAMPLE = """\
JobIDRaw|Cluster|JobName|User|Account|State|Start|End|AdminComment
501|example|train|alice|ml|COMPLETED|1790000000|1790003600|JS1:\
H4sIAAAAAAACA1WOSw6DMAxE75I1Qo7jfMxlECpRFQlIVcKiRbl7CZRFVrZn/DzexfO1raLDRixx9Ee3F0WW+jgd1x\
ShTzENUz/7Ob4/xQTRETKxscgGGiGrOV/QtvqxZlCSJacMuYvRyjgLLPEmUpjCd0ghLn+CodXnajlaf3Ggkskaq8xt\
pTB70VkEaI+AKt9px6xIM+ZcrysDkH8JE2UpCgEAAA==
502|example|short|bob|bio|COMPLETED|1790000000|1790000020|JS1:Short
"""

IMPORTER = Importer(
    name=SOURCE,
    description="Reads jobstats' summaries of jobs from the AdminComment of Slurm's accounting, as sacct prints it.",
    example=EXAMPLE,
    read=read,
    gives="means of driver utilization and peaks of memory by GPU over whole jobs",
)
