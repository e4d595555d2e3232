"""Slurm's accounting as ``sacct --json`` or slurmrestd's ``/slurmdb/…/jobs`` give it.

The second reader: text is stable over versions, JSON is not. What has changed between 21.08 and 25.11 is read by its
shape and never by a version: plain numbers or ``{"set", "infinite", "number"}``, one state or a list of them. What this
form lacks is left out: 22.05 gives no exit code (it says 0 of every job), and none gives a job's database index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from warehouse.contract.errors import BadInputError
from warehouse.importer import Imported, Importer, ImportOptions, Rejected
from warehouse.imports._sacct_reading import read_rows
from warehouse.imports._sacct_rows import SacctRow
from warehouse.imports._text import whole_file
from warehouse.imports._values import BadRowError

MOST_BYTES: Final = 1024**3
"""A document of some 80,000 jobs; ask for shorter windows, or for text, beyond."""

EXPECTED: Final = 'a document of `sacct --json`: an object with a list "jobs"'
_NOT_SO: Final = (TypeError, ValueError, AttributeError, OverflowError)
"""What reading raises where a value has another shape than any version gives it."""

Object = Mapping[str, Any]
Numbered = tuple[int, SacctRow | BadRowError]


def read(path: Path, options: ImportOptions) -> Iterator[Imported | Rejected]:
    """Stream the records of a file; see ``Importer.read``. Its place is the number of a job in the list."""
    kept: list[Numbered] = []

    def rows(consumed: Callable[[int], None]) -> Iterator[Numbered]:
        if not kept:
            kept.extend(_rows(path, consumed))
        return iter(kept)

    yield from read_rows(rows, options)


def _rows(path: Path, consumed: Callable[[int], None]) -> Iterator[Numbered]:
    try:
        document = orjson.loads(whole_file(path, consumed, MOST_BYTES))
    except orjson.JSONDecodeError as cause:
        raise BadInputError(str(path), None, f"is no JSON ({cause}); expected {EXPECTED}") from cause
    jobs = document.get("jobs") if isinstance(document, dict) else None
    if not isinstance(jobs, list):
        raise BadInputError(str(path), None, f"expected {EXPECTED}")
    if jobs and not any(isinstance(job, dict) and "time" in job and "association" in job for job in jobs):
        raise BadInputError(
            str(path), None, f"is not accounting (squeue and scontrol know no ends); expected {EXPECTED}"
        )
    for number, job in enumerate(jobs, start=1):
        if not isinstance(job, dict):
            yield number, BadRowError("not a job", f"{str(job)[:100]!r} in the list of jobs")
            continue
        try:
            own = _job(job)
        except _NOT_SO as cause:
            yield number, BadRowError("bad job", f"cannot be read ({cause})")
            continue
        yield number, own
        steps = job.get("steps")
        for step in steps if isinstance(steps, list) else ():
            try:
                yield number, _step(step, own)
            except _NOT_SO as cause:
                yield number, BadRowError("bad step", f"cannot be read ({cause})")


_EMPTY: Final = SacctRow(*("" for _ in SacctRow._fields))


def _job(job: Object) -> SacctRow:
    raw, times, tres = _text(job.get("job_id")), _object(job.get("time")), _object(job.get("tres"))
    states = _state(
        _object(job.get("state")).get("current") if isinstance(job.get("state"), dict) else job.get("state")
    )
    association = _object(job.get("association"))
    comment = job.get("comment")
    return _EMPTY._replace(
        job_id=_shown(raw, job),
        job_id_raw=raw,
        name=_text(job.get("name")),
        user=_text(job.get("user") or association.get("user")),
        account=_text(job.get("account") or association.get("account")),
        partition=_text(job.get("partition")),
        qos=_text(job.get("qos")),
        state=states,
        exit_code=_exit(_object(job.get("exit_code")), states),
        submit=_number(times.get("submission")),
        start=_number(times.get("start")),
        end=_number(times.get("end")),
        time_limit=_number(times.get("limit")),
        node_count=_number(job.get("allocation_nodes")),
        cpu_count=_count(tres.get("allocated"), "cpu"),
        node_list=_text(job.get("nodes")),
        requested=_tres(tres.get("requested")),
        allocated=_tres(tres.get("allocated")),
        comment=_text(comment.get("job") if isinstance(comment, dict) else comment),
        command=_text(job.get("submit_line")),
        work_dir=_text(job.get("working_directory")),
        container=_text(job.get("container")),
        cluster=_text(job.get("cluster") or association.get("cluster")),
        elapsed=_number(times.get("elapsed")),
        sluid=_text(job.get("sluid")),
    )


def _step(step: Object, own: SacctRow) -> SacctRow:
    told, times, tres = _object(step.get("step")), _object(step.get("time")), _object(step.get("tres"))
    name = told.get("id")
    if isinstance(name, dict):
        name = name.get("step_id")
    part = _text(name).rpartition(".")[2]
    most = _object(_object(tres.get("requested")).get("max") if isinstance(tres.get("requested"), dict) else None)
    listed = _object(tres.get("requested")).get("max") if isinstance(tres.get("requested"), dict) else None
    memory = _count(listed if isinstance(listed, list) else most.get("list"), "mem")
    return _EMPTY._replace(
        job_id=f"{own.job_id}.{part}",
        job_id_raw=f"{own.job_id_raw}.{part}",
        name=_text(told.get("name")),
        state=_state(step.get("state")),
        start=_number(times.get("start")),
        end=_number(times.get("end")),
        node_list=_text(_object(step.get("nodes")).get("range")),
        memory_peak=f"{int(memory) // 1024}K" if memory else "",
        cpu_time=_duration(_object(times.get("total"))),
        cluster=own.cluster,
        elapsed=_number(times.get("elapsed")),
    )


def _shown(raw: str, job: Object) -> str:
    """Give the id as text shows it: ``19_3``, ``19_[3-9%3]``, ``26+1``."""
    array, het = _object(job.get("array")), _object(job.get("het"))
    master, index, rest = _number(array.get("job_id")), _number(array.get("task_id")), _text(array.get("task"))
    if master not in ("", "0"):
        if index:
            return f"{master}_{index}"
        if rest:
            return f"{master}_[{rest}]"
    leader = _number(het.get("job_id"))
    return raw if leader in ("", "0") else f"{leader}+{_number(het.get('job_offset')) or 0}"


def _state(found: object) -> str:
    """Give the state; of a list the first, for the others are flags such as COMPLETING."""
    return _text(found[0] if isinstance(found, list) and found else found)


def _exit(told: Object, state: str) -> str:
    code = _number(told.get("return_code"))
    if not code or (code == "0" and state == "FAILED"):
        return ""
    signal = _object(told.get("signal"))
    return f"{code}:{_number(signal.get('id', signal.get('signal_id'))) or 0}"


def _tres(listed: object) -> str:
    """Give trackable resources as text writes them; memory is counted in MiB here."""
    words = []
    for one in listed if isinstance(listed, list) else ():
        kind, name, count = _text(one.get("type")), _text(one.get("name")), _number(one.get("count"))
        if kind and count:
            words.append(f"{kind}{f'/{name}' if name else ''}={count}{'M' if kind == 'mem' else ''}")
    return ",".join(words)


def _count(listed: object, kind: str) -> str:
    for one in listed if isinstance(listed, list) else ():
        if one.get("type") == kind and not one.get("name"):
            return _number(one.get("count"))
    return ""


def _duration(total: Object) -> str:
    seconds, micro = _number(total.get("seconds")), _number(total.get("microseconds"))
    if not seconds:
        return ""
    whole, part = divmod(int(seconds) * 1_000_000 + int(micro or 0), 1_000_000)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}.{part:06d}"


def _number(found: object) -> str:
    """Give a number as text; empty where it is not set or without an end."""
    if isinstance(found, dict):
        if not found.get("set", True) or found.get("infinite"):
            return ""
        found = found.get("number")
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        return ""
    return str(int(found))


def _text(found: object) -> str:
    """Give a text on one line; a number as it stands."""
    if isinstance(found, (int, float)) and not isinstance(found, bool):
        return str(int(found))
    return found.replace("\n", "\\n") if isinstance(found, str) else ""


def _object(found: object) -> Object:
    return found if isinstance(found, dict) else {}


EXAMPLE = """\
{"jobs": [
 {"job_id": 101, "name": "train", "user": "alice", "account": "ml", "association": {"cluster": "example"},
  "partition": "gpu", "qos": "normal", "state": {"current": ["COMPLETED"], "reason": "None"}, "nodes": "gpu1",
  "cluster": "example", "allocation_nodes": 1, "working_directory": "/home/alice",
  "exit_code": {"status": ["SUCCESS"], "return_code": {"set": true, "infinite": false, "number": 0}},
  "time": {"submission": 1790000000, "start": 1790000010, "end": 1790003610, "elapsed": 3600,
           "limit": {"set": true, "infinite": false, "number": 1440}},
  "tres": {"allocated": [{"type": "cpu", "name": "", "count": 8}, {"type": "node", "name": "", "count": 1},
                         {"type": "gres", "name": "gpu", "count": 2}, {"type": "gres", "name": "gpu:a100", "count": 2}],
           "requested": [{"type": "cpu", "name": "", "count": 8}, {"type": "mem", "name": "", "count": 65536},
                         {"type": "gres", "name": "gpu", "count": 2}]},
  "steps": [{"step": {"id": "101.batch", "name": "batch"}, "state": ["COMPLETED"], "nodes": {"range": "gpu1"},
             "time": {"start": {"set": true, "infinite": false, "number": 1790000010}, "end": 1790003610,
                      "total": {"seconds": 4200, "microseconds": 0}}}]}
]}
"""

IMPORTER = Importer(
    name="sacct_json",
    description="Reads Slurm's accounting as `sacct --json` or slurmrestd give it, of any version so far.",
    example=EXAMPLE,
    read=read,
    gives="nothing of how busy; jobs, attempts and counts of GPUs",
)
