"""History from a running Prometheus server, or from saved answers of its HTTP API.

The server is asked for the raw values of every series that this program understands, window by window and a few targets
at a time; what it will not answer at once is asked for in halves. A window that is over and was read to its end is
remembered, and passed over the next time: an import that was broken off goes on where it was. Values just behind a
window are read too, so that its last readings know how long they spoke.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Final

from warehouse.contract.errors import BadInputError, BadUseError
from warehouse.contract.units import iso
from warehouse.importer import Imported, Importer, ImportOptions, Rejected
from warehouse.imports._prom_api import Server, TooMuchError, matrix, open_server
from warehouse.imports._prom_fold import SOURCE, Fold
from warehouse.imports._prom_labels import target
from warehouse.imports._prom_names import POD_FACTS, QUERIED
from warehouse.imports._prom_remote import Series
from warehouse.imports._prom_text import Point
from warehouse.imports._prom_workloads import Workloads
from warehouse.imports._text import whole_file
from warehouse.imports._values import LATEST_AT, BadRowError, cluster_name
from warehouse.settings import (
    IMPORT_PROMETHEUS_PAGE_SERIES,
    IMPORT_PROMETHEUS_TIMEOUT_SECONDS,
    IMPORT_PROMETHEUS_TOKEN_FILE,
    IMPORT_PROMETHEUS_WINDOW_SECONDS,
)

NAME: Final = "prometheus_server"
DAY_SECONDS: Final = 86_400.0
OVERLAP_SECONDS: Final = 120.0
"""How far behind a window is looked for the next reading: exporters are scraped twice a minute, or once."""

SETTLED_SECONDS: Final = 300.0
"""A window that ended so long ago is complete: what a server scrapes is there at once, what it is sent soon after."""

MILLISECOND: Final = 0.001
"""Instants of Prometheus are whole milliseconds."""

SHORTEST_SECONDS: Final = 30.0
"""Stretches are not halved below this; a server that cannot answer it cannot be read."""

MOST_FILE_BYTES: Final = 1 << 30
_NAMES: Final = f'{{__name__=~"{"|".join(QUERIED)}"}}'
_POD_NAMES: Final = f'{{__name__=~"{"|".join(sorted(POD_FACTS))}"}}'


def read_url(url: str, options: ImportOptions) -> Iterator[Imported | Rejected]:
    """Stream the records of a server; see ``Importer.read_url``."""
    settings, cluster = options.settings, cluster_name(options.cluster)
    server = open_server(url, settings[IMPORT_PROMETHEUS_TOKEN_FILE], settings[IMPORT_PROMETHEUS_TIMEOUT_SECONDS])
    now = time.time()
    until_at = now if options.until_at is None else options.until_at
    since_at = until_at - DAY_SECONDS if options.since_at is None else options.since_at
    if since_at >= until_at:
        raise BadUseError(f"--since {iso(since_at)} is not before --until {iso(until_at)}")
    workloads = Workloads(options, cluster, SOURCE)
    for number, window in enumerate(_windows(since_at, until_at, settings[IMPORT_PROMETHEUS_WINDOW_SECONDS]), 1):
        mark = f"{cluster}/{server.address}/window@{int(window.since_at)}+{int(window.until_at - window.since_at)}"
        done = Imported(number, mark, _NAMES, ())
        is_over = window.is_whole and window.until_at + SETTLED_SECONDS < now
        if is_over and options.is_known(mark, _NAMES):
            yield done
            continue
        yield from _window(server, window, number, options, workloads)
        if is_over:
            yield done


@dataclass(frozen=True, slots=True)
class _Window:
    """A stretch of time to ask for; ``is_whole`` says that nothing of it was left out by --since and --until."""

    since_at: float
    until_at: float
    is_whole: bool


def _windows(since_at: float, until_at: float, length: float) -> Iterator[_Window]:
    """Cut a stretch of time at multiples of the length, so that the same windows come again in every import."""
    start = since_at // length * length
    while start < until_at:
        begin, end = max(start, since_at), min(start + length, until_at)
        yield _Window(begin, end, is_whole=end - begin == length)
        start += length


def _window(
    server: Server, window: _Window, number: int, options: ImportOptions, workloads: Workloads
) -> Iterator[Imported | Rejected]:
    if server.is_remote_read:
        yield from _remote_window(server, window, number, options, workloads)
        return
    try:
        found = server.series([_NAMES], window.since_at, window.until_at)
        pods = server.series([_POD_NAMES], window.since_at, window.until_at) if found else []
    except TooMuchError as cause:
        raise BadInputError(server.address, iso(window.since_at), f"cannot list its series ({cause})") from cause
    until_at = window.until_at + OVERLAP_SECONDS
    for page, instances in enumerate(_pages(found, options.settings[IMPORT_PROMETHEUS_PAGE_SERIES])):
        fold = Fold(options, cluster_name(options.cluster), workloads, window.until_at)
        yield from _learnt(fold, [*found, *pods], number if page == 0 else None)
        ask = partial(server.values, _selector(instances))
        for labels, values in _values(server, ask, window.since_at, until_at):
            yield from _added(fold, labels, values, number, window.since_at)
        yield from fold.records(f"{int(window.since_at)}", number)


def _remote_window(
    server: Server, window: _Window, number: int, options: ImportOptions, workloads: Workloads
) -> Iterator[Imported | Rejected]:
    """Read a window whole: a remote read lists no series, and so knows no pages."""
    gpus = partial(server.remote, [("__name__", "|".join(QUERIED))])
    pods = partial(server.remote, [("__name__", "|".join(sorted(POD_FACTS)))])
    found = list(_values(server, gpus, window.since_at, window.until_at + OVERLAP_SECONDS))
    told = list(_values(server, pods, window.since_at, window.until_at)) if found else []
    fold = Fold(options, cluster_name(options.cluster), workloads, window.until_at)
    yield from _learnt(fold, [labels for labels, _ in (*found, *told)], number)
    for labels, values in found:
        yield from _added(fold, labels, values, number, window.since_at)
    yield from fold.records(f"{int(window.since_at)}", number)


def _pages(found: Sequence[Mapping[str, str]], most_series: int) -> Iterator[list[str]]:
    """Put targets together until they have about so many series."""
    counts: dict[str, int] = {}
    for labels in found:
        instance = target(labels)[1]
        counts[instance] = counts.get(instance, 0) + 1
    page: list[str] = []
    size = 0
    for instance in sorted(counts):
        if page and size + counts[instance] > most_series:
            yield page
            page, size = [], 0
        page.append(instance)
        size += counts[instance]
    if page:
        yield page


def _selector(instances: Sequence[str]) -> str:
    wanted = json.dumps("|".join(re.escape(instance) for instance in instances), ensure_ascii=False)
    return f"{_NAMES[:-1]},instance=~{wanted}}}"


def _values(
    server: Server, ask: Callable[[float, float], Iterable[Series]], since_at: float, until_at: float
) -> Iterator[Series]:
    """Ask for a stretch of time, in halves where the server will not answer it whole."""
    try:
        answer = list(ask(since_at, until_at))
    except TooMuchError as cause:
        if until_at - since_at < 2 * SHORTEST_SECONDS:
            detail = f"will not answer even half a minute ({cause})"
            raise BadInputError(server.address, iso(since_at), detail) from cause
        middle = (since_at + until_at) // 2
        yield from _values(server, ask, since_at, middle)
        yield from _values(server, ask, middle + MILLISECOND, until_at)
        return
    yield from answer


def _learnt(fold: Fold, series: Sequence[Mapping[str, str]], number: int | None) -> Iterator[Rejected]:
    for labels in series:
        try:
            fold.learn(labels)
        except BadRowError as bad:
            if number is not None:
                yield Rejected(number, bad.reason, bad.detail)


def _added(
    fold: Fold, labels: dict[str, str], values: Sequence[object], number: int, since_at: float
) -> Iterator[Rejected]:
    """Add the values of one series; those before the window belong to the one before."""
    name = labels.pop("__name__", "")
    for value in values:
        try:
            at, amount = _pair(value)
            if at >= since_at:
                fold.add(Point(name, labels, amount, at), at, is_stated=True)
        except BadRowError as bad:
            yield Rejected(number, bad.reason, f"{name}: {bad.detail}")


def _pair(value: object) -> tuple[float, float]:
    try:
        at, amount = value  # type: ignore[misc]
        instant, number = float(at), float(amount)  # type: ignore[has-type]
    except (TypeError, ValueError):
        raise BadRowError("bad value", f'expected [TIME, "VALUE"], found {str(value)[:80]}') from None
    if not 0 <= instant <= LATEST_AT:
        raise BadRowError("bad time", f"{instant!r}; expected seconds since the epoch, 1970 to 2100")
    return instant, number


def read(path: Path, options: ImportOptions) -> Iterator[Imported | Rejected]:
    """Stream the records of a saved answer of ``/api/v1/query`` or ``query_range``; see ``Importer.read``."""
    body = whole_file(path, options.consumed, MOST_FILE_BYTES)
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as cause:
        raise BadInputError(str(path), None, f"is no JSON ({cause}); expected an answer of /api/v1/query") from cause
    if not isinstance(document, dict) or document.get("status") != "success":
        raise BadInputError(str(path), "status", 'expected "success", as in an answer of Prometheus\' HTTP API')
    cluster = cluster_name(options.cluster)
    fold = Fold(options, cluster, Workloads(options, cluster, SOURCE), None)
    series = list(matrix(document.get("data"), str(path)))
    yield from _learnt(fold, [labels for labels, _ in series], 1)
    for number, (labels, values) in enumerate(series, 1):
        yield from _added(fold, labels, values, number, 0.0)
    yield from fold.records(blake2b(body, digest_size=8).hexdigest(), 1)


EXAMPLE = """\
{"status": "success", "data": {"resultType": "matrix", "result": [
  {"metric": {"__name__": "DCGM_FI_DEV_GPU_UTIL", "gpu": "0", "UUID": "GPU-00000000-0000-0000-0000-00000000000a",
    "Hostname": "gpu1", "modelName": "NVIDIA A100-SXM4-40GB", "instance": "10.0.0.1:9400", "job": "dcgm",
    "exported_namespace": "team-a", "exported_pod": "train-0", "namespace": "gpu", "pod": "dcgm-exporter-x1"},
   "values": [[1790000000, "93"], [1790000030, "95"], [1790000060, "0"]]},
  {"metric": {"__name__": "DCGM_FI_DEV_POWER_USAGE", "gpu": "0", "UUID": "GPU-00000000-0000-0000-0000-00000000000a",
    "Hostname": "gpu1", "modelName": "NVIDIA A100-SXM4-40GB", "instance": "10.0.0.1:9400", "job": "dcgm",
    "exported_namespace": "team-a", "exported_pod": "train-0", "namespace": "gpu", "pod": "dcgm-exporter-x1"},
   "values": [[1790000000, "287.5"], [1790000030, "291"], [1790000060, "60.25"]]}
]}}
"""

IMPORTER = Importer(
    name=NAME,
    description="Reads GPU series of a running Prometheus server, by its address, or saved answers of its HTTP API.",
    example=EXAMPLE,
    read=read,
    read_url=read_url,
    gives="what the exporters that it scrapes give, with pods and jobs of their labels and of kube-state-metrics",
)
