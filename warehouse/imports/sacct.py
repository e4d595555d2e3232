"""Slurm's accounting as ``sacct -P`` prints it. docs/import.md says which columns to ask for.

Read three times: which job ids come more than once, what their starts are (so that keys do not depend on the order of
rows, see ``_sacct_history``), and then the rows themselves. An allocation is one row per start and GPU model, without
devices, for accounting knows only counts. AllocGRES, the column before AllocTRES, is taken to count the whole job.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from warehouse.contract.errors import BadInputError
from warehouse.importer import Imported, Importer, ImportOptions, PastAttempt, Rejected
from warehouse.imports._sacct_history import History, Run
from warehouse.imports._sacct_records import SOURCE, CheckedRow, JobKey, JobRow, Reader
from warehouse.imports._sacct_rows import SacctRow, sacct_rows
from warehouse.imports._values import BadRowError

_BLOCK_ROWS = 4096
"""Rows that are placed together: one question to the store for all their jobs."""


def read(path: Path, options: ImportOptions) -> Iterator[Imported | Rejected]:
    """Stream the records of a file; see ``Importer.read``."""
    reader = Reader(options)
    runs = _runs(path, reader, _ids_to_sort_out(path))
    histories: dict[JobKey, History] = {}
    block: list[CheckedRow] = []
    try:
        for line, row in sacct_rows(path, options.consumed):
            try:
                block.append(_checked(reader, line, row))
            except BadRowError as bad:
                yield Rejected(line, bad.reason, bad.detail)
            if len(block) >= _BLOCK_ROWS:
                yield from _placed(block, reader, runs, histories, options)
                block = []
    except BadInputError:
        yield from _placed(block, reader, runs, histories, options)
        raise
    yield from _placed(block, reader, runs, histories, options)


def _checked(reader: Reader, line: int, row: SacctRow | BadRowError) -> CheckedRow:
    if isinstance(row, BadRowError):
        raise row
    return reader.check(line, row)


def _ids_to_sort_out(path: Path) -> set[str]:
    """Find the raw job ids with several rows, or with steps that do not say which start they belong to."""
    seen: set[str] = set()
    several: set[str] = set()
    for row in _readable_rows(path):
        raw, dot, _step = (row.job_id_raw or row.job_id).partition(".")
        if dot:
            if not row.db_index:
                several.add(raw)
        elif raw in seen:
            several.add(raw)
        else:
            seen.add(raw)
    return several


def _runs(path: Path, reader: Reader, wanted: set[str]) -> dict[JobKey, list[Run]]:
    """Collect all starts of the wanted ids."""
    runs: dict[JobKey, list[Run]] = {}
    if not wanted:
        return runs
    for row in _readable_rows(path):
        if (row.job_id_raw or row.job_id) in wanted:
            try:
                checked = reader.check(0, row)
            except BadRowError:
                continue
            if isinstance(checked, JobRow):
                runs.setdefault(checked.key, []).append(checked.run)
    return runs


def _readable_rows(path: Path) -> Iterator[SacctRow]:
    """Give the rows without the bad ones; what is wrong with the file is said when it is read for its records."""
    try:
        for _line, row in sacct_rows(path, lambda _bytes: None):
            if isinstance(row, SacctRow):
                yield row
    except BadInputError:
        return


def _placed(
    block: Sequence[CheckedRow],
    reader: Reader,
    runs: dict[JobKey, list[Run]],
    histories: dict[JobKey, History],
    options: ImportOptions,
) -> Iterator[Imported | Rejected]:
    """Turn a block of checked rows into records, with the keys that file and store together give them."""
    past = _past(block, options)
    for checked in block:
        key = checked.key
        history = histories.get(key)
        if history is None and (key in runs or key in past):
            own = runs.get(key) or ([checked.run] if isinstance(checked, JobRow) else [])
            history = History("/".join(key), own, past.get(key, ()), options.requeue_window_seconds)
            if key in runs:
                histories[key] = history
        try:
            yield reader.record(checked, history)
        except BadRowError as bad:
            yield Rejected(checked.line, bad.reason, bad.detail)


def _past(block: Sequence[CheckedRow], options: ImportOptions) -> dict[JobKey, list[PastAttempt]]:
    ids: dict[str, dict[str, None]] = {}
    for checked in block:
        ids.setdefault(checked.key[0], {})[checked.key[1]] = None
    past: dict[JobKey, list[PastAttempt]] = {}
    for cluster, raw_ids in ids.items():
        for attempt in options.past_attempts(cluster, list(raw_ids)):
            raw = attempt.job_key.removeprefix(f"{cluster}/").rpartition("#")[0]
            past.setdefault((cluster, raw), []).append(attempt)
    return past


EXAMPLE = """\
JobID|JobIDRaw|JobName|User|Account|Partition|QOS|State|ExitCode|Submit|Start|End|ElapsedRaw|TimelimitRaw|NNodes|NCPUS\
|NodeList|ReqTRES|AllocTRES|MaxRSS|TotalCPU|Comment|SubmitLine|WorkDir|Cluster|DBIndex
101|101|train|alice|ml|gpu|normal|COMPLETED|0:0|1790000000|1790000010|1790003610|3600|1440|1|8|gpu1\
|billing=8,cpu=8,gres/gpu=2,mem=64G,node=1|billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,mem=64G,node=1||01:10:00|\
|sbatch train.sh|/home/alice|example|11
101.batch|101.batch|batch||ml|||COMPLETED|0:0|1790000010|1790000010|1790003610|3600||1|8|gpu1||cpu=8,mem=64G,node=1\
|93168K|01:10:00||||example|11
102_1|103|sweep|bob|bio|gpu|normal|RUNNING|0:0|1790000100|1790000200|Unknown|500|60|1|2|gpu2|cpu=2,gres/gpu=1,node=1\
|cpu=2,gres/gpu:a100=1,gres/gpu=1,node=1||00:00:00||sbatch --array=1-3 sweep.sh|/home/bob|example|12
102_[2-3]|102|sweep|bob|bio|gpu|normal|PENDING|0:0|1790000100|Unknown|Unknown|0|60|1|2|None assigned\
|cpu=2,gres/gpu=1,node=1|||00:00:00||sbatch --array=1-3 sweep.sh|/home/bob|example|13
104|104|long|alice|ml|gpu|normal|REQUEUED|0:0|1790000300|1790000310|1790000400|90|60|2|4|gpu[1-2]\
|cpu=4,gres/gpu=4,node=2|cpu=4,gres/gpu:a100=4,gres/gpu=4,node=2||00:03:00||sbatch long.sh|/home/alice|example|14
104|104|long|alice|ml|gpu|normal|COMPLETED|0:0|1790000400|1790000500|1790000600|100|60|2|4|gpu[1-2]\
|cpu=4,gres/gpu=4,node=2|cpu=4,gres/gpu:a100=4,gres/gpu=4,node=2||00:03:20||sbatch long.sh|/home/alice|example|15
"""

IMPORTER = Importer(
    name=SOURCE,
    description="Reads Slurm's accounting as `sacct -P` prints it, with steps, arrays and requeued jobs.",
    example=EXAMPLE,
    read=read,
    gives="nothing of how busy by itself; jobs, attempts and counts of GPUs; means and peaks where jobstats left them",
)
