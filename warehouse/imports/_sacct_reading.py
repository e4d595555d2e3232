"""Rows of Slurm's accounting to records, however the rows were written: as text or as JSON.

Read three times: which job ids come more than once, what their starts are (so that keys do not depend on the order of
rows, see ``_sacct_history``), and then the rows themselves. An allocation is one row per start and GPU model, without
devices, for accounting knows only counts. AllocGRES, the column before AllocTRES, is taken to count the whole job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from warehouse.contract.errors import BadInputError
from warehouse.importer import Imported, ImportOptions, PastAttempt, Rejected
from warehouse.imports._sacct_history import History, Run
from warehouse.imports._sacct_records import CheckedRow, JobKey, JobRow, Reader
from warehouse.imports._sacct_rows import SacctRow
from warehouse.imports._values import BadRowError

Rows: TypeAlias = Callable[[Callable[[int], None]], Iterator[tuple[int, SacctRow | BadRowError]]]
"""Gives the rows of a file from its begin, each with its place, and tells how many bytes were read."""

_BLOCK_ROWS = 4096
"""Rows that are placed together: one question to the store for all their jobs."""


def read_rows(rows: Rows, options: ImportOptions) -> Iterator[Imported | Rejected]:
    """Stream the records of what ``rows`` gives; it is read three times.

    Raises:
        BadInputError: as ``rows``; what came before is given first.

    """
    reader = Reader(options)
    runs = _runs(rows, reader, _ids_to_sort_out(rows))
    histories: dict[JobKey, History] = {}
    block: list[CheckedRow] = []
    try:
        for line, row in rows(options.consumed):
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


def _ids_to_sort_out(rows: Rows) -> set[str]:
    """Find the raw job ids with several rows, or with steps that do not say which start they belong to."""
    seen: set[str] = set()
    several: set[str] = set()
    for row in _readable_rows(rows):
        raw, dot, _step = (row.job_id_raw or row.job_id).partition(".")
        if dot:
            if not row.db_index:
                several.add(raw)
        elif raw in seen:
            several.add(raw)
        else:
            seen.add(raw)
    return several


def _runs(rows: Rows, reader: Reader, wanted: set[str]) -> dict[JobKey, list[Run]]:
    """Collect all starts of the wanted ids."""
    runs: dict[JobKey, list[Run]] = {}
    if not wanted:
        return runs
    for row in _readable_rows(rows):
        if (row.job_id_raw or row.job_id) in wanted:
            try:
                checked = reader.check(0, row)
            except BadRowError:
                continue
            if isinstance(checked, JobRow):
                runs.setdefault(checked.key, []).append(checked.run)
    return runs


def _readable_rows(rows: Rows) -> Iterator[SacctRow]:
    """Give the rows without the bad ones; what is wrong with the file is said when it is read for its records."""
    try:
        for _line, row in rows(lambda _bytes: None):
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
