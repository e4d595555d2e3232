"""Logs of nvidia-smi: ``--query-gpu … --format=csv`` in a loop, ``dmon``, and bare lines of a monitor.

A log may hold several loops one after the other, each with a header of its own. A reading speaks until the next one of
its device. Lines that say no time (``temp, util %, memory MiB``; ``dmon`` without ``-o``) cannot be placed; they become
the means of one job without a time. Rows of processes (``pmon``, ``--query-compute-apps``) are no readings of a device.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Final

from warehouse.contract.errors import BadInputError
from warehouse.contract.model import Attempt, AttemptState, AttemptSummary, Device, Job, Record
from warehouse.importer import Altered, Imported, Importer, ImportOptions, Rejected, Sample
from warehouse.imports._cadence import Cadence
from warehouse.imports._device_owner import JobOfDevices
from warehouse.imports._measures import UNITS, Measures
from warehouse.imports._smi_fields import DMON_METRICS, QUERY_METRICS, Columns, Head, LogClock, heads, put
from warehouse.imports._text import numbered_lines
from warehouse.imports._values import BadRowError, cluster_name, short_text
from warehouse.settings import IMPORT_LONE_CADENCE_SECONDS, IMPORT_LONGEST_CADENCE_SECONDS

SOURCE: Final = "nvidia_smi"
NO_NODE: Final = "unknown"
"""Node of a log that names none, where ``--node`` does not either."""

_PROCESS_COLUMNS: Final = frozenset({"pid", "process_name", "used_gpu_memory", "used_memory"})
_MONITOR_LINE: Final = re.compile(
    r"\s*[0-9]{1,3}\s*,\s*[0-9]{1,3}(?:\.[0-9]+)?\s*%\s*,\s*[0-9]+(?:\.[0-9]+)?\s*(?:[KMG]i?B)\s*\Z", re.ASCII
)
_MONITOR_HEADS: Final = (Head("temperature.gpu", None), Head("utilization.gpu", None), Head("memory.used", None))
_DELIMITERS: Final = ",;\t"
_FEWEST_COLUMNS: Final = 2


@dataclass(frozen=True, slots=True)
class Reading:
    """One line: what it measured, of which device and when; ``at`` None: it says no time."""

    line: int
    text: str
    at: float | None
    device_uuid: str | None
    node: str | None
    index: int | None
    gpu_model: str | None
    memory_bytes: float | None
    pci_bus_id: str | None
    measures: Measures


@dataclass(slots=True)
class LogReader:
    """Turns lines into readings; knows the header that holds just now."""

    clock: LogClock
    columns: Columns | None = None
    delimiter: str = ","
    is_dmon: bool = False
    is_of_processes: bool = False

    def take(self, line: int, text: str) -> Reading | Rejected | None:
        """Read one line; None for a header, a line of units, or an empty one."""
        if text.lstrip().startswith("#"):
            return self._dmon_header(line, text)
        if not text.strip() or (not text[0].isdigit() and self._csv_header(text)):
            return None
        if self.columns is None and _MONITOR_LINE.match(text):
            self.columns = Columns.of(_MONITOR_HEADS, QUERY_METRICS, decimal_comma=False)
        if self.columns is None or self.is_of_processes:
            return Rejected(line, "row of a process" if self.is_of_processes else "row without a header", text[:80])
        try:
            return self._reading(line, text, self.columns)
        except BadRowError as bad:
            return Rejected(line, bad.reason, bad.detail)

    def _dmon_header(self, line: int, text: str) -> Rejected | None:
        words = [word.lower() for word in text.lstrip(" #").split()]
        if "gpu" in words and len(words) >= _FEWEST_COLUMNS:
            given = tuple(Head(word, None) for word in words)
            self.columns = Columns.of(given, DMON_METRICS, decimal_comma=False)
            self.is_dmon, self.is_of_processes = True, "pid" in words
        elif self.is_dmon and self.columns is not None and "idx" in words and len(words) == self.columns.width:
            named = self.columns.places.items()
            units = {name: _dmon_unit(words[at]) for name, at in named}
            metrics = tuple((at, replace(head, unit=units[head.name]), to) for at, head, to in self.columns.metrics)
            self.columns = replace(self.columns, metrics=metrics)
        elif not self.is_dmon:
            return Rejected(line, "remark", text[:80])
        return None

    def _csv_header(self, text: str) -> bool:
        delimiter = max(_DELIMITERS, key=text.count)
        found = heads(text.split(delimiter))
        names = {head.name for head in found or ()}
        if found is None or not names & (QUERY_METRICS.keys() | _PROCESS_COLUMNS | {"uuid", "index", "timestamp"}):
            return False
        self.columns = Columns.of(found, QUERY_METRICS, decimal_comma=delimiter != ",")
        self.delimiter, self.is_dmon = delimiter, False
        self.is_of_processes = bool(names & _PROCESS_COLUMNS)
        return True

    def _reading(self, line: int, text: str, columns: Columns) -> Reading:
        fields = text.split() if self.is_dmon else _split(text, self.delimiter)
        if len(fields) != columns.width:
            reason = "too few fields" if len(fields) < columns.width else "too many fields"
            raise BadRowError(reason, f"{len(fields)} fields, the header has {columns.width}")
        stamp = columns.text(fields, "timestamp")
        if stamp is None and self.is_dmon and columns.text(fields, "date"):
            stamp = f"{columns.text(fields, 'date')} {columns.text(fields, 'time') or ''}"
        if stamp is None and "timestamp" in columns.places:
            raise BadRowError("bad time", "timestamp is empty; expected such as 2026/11/29 14:47:13.123")
        index = columns.text(fields, "index", "gpu")
        memory = Measures()
        if (total := columns.text(fields, "memory.total")) is not None:
            put(memory, Head("memory.total", None), "memory_used_bytes", total, decimal_comma=columns.decimal_comma)
        return Reading(
            line=line,
            text=text,
            at=None if stamp is None else self.clock.at("timestamp", stamp),
            device_uuid=_uuid(columns.text(fields, "uuid", "gpu_uuid")),
            node=short_text("hostname", columns.text(fields, "hostname") or ""),
            index=int(index) if index is not None and index.isascii() and index.isdigit() and len(index) < 5 else None,  # noqa: PLR2004 - no node has ten thousand
            gpu_model=short_text("name", columns.text(fields, "name", "gpu_name") or ""),
            memory_bytes=memory.metrics.get("memory_used_bytes"),
            pci_bus_id=short_text("pci.bus_id", columns.text(fields, "pci.bus_id", "gpu_bus_id") or ""),
            measures=columns.measure(fields),
        )


def _dmon_unit(text: str) -> str | None:
    """Give dmon's unit in the words of this room: its MB of framebuffer are MiB."""
    return text if text in UNITS else None


def _split(text: str, delimiter: str) -> list[str]:
    if '"' not in text:
        return text.split(delimiter)
    try:
        return next(csv.reader([text], delimiter=delimiter, skipinitialspace=True), [])
    except csv.Error as cause:
        raise BadRowError("not CSV", str(cause)) from cause


def _uuid(text: str | None) -> str | None:
    """Give a device's UUID with its prefix, which some programs leave out."""
    if text is None:
        return None
    named = short_text("uuid", text) or ""
    return named if named.startswith(("GPU-", "MIG-")) else f"GPU-{named}"


@dataclass(slots=True)
class _Waiting:
    """The last reading of a device, until the next one says how long it spoke."""

    reading: Reading
    owner: str | None
    held: tuple[Record, ...]


@dataclass(slots=True)
class _Track:
    """One device of the log."""

    cadence: Cadence
    first_at: float
    until_at: float = 0.0
    waiting: _Waiting | None = None


@dataclass(slots=True)
class _Timeless:
    """Sums over readings that say no time."""

    digest: blake2b = field(default_factory=lambda: blake2b(digest_size=8))
    line: int = 0
    count: int = 0
    util_sum: float = 0.0
    util_count: int = 0
    memory_peak: float | None = None
    models: set[str] = field(default_factory=set)
    altered: list[Altered] = field(default_factory=list)

    def add(self, reading: Reading) -> None:
        self.digest.update(reading.text.encode("utf-8", "surrogatepass") + b"\n")
        self.line = self.line or reading.line
        self.count += 1
        metrics = reading.measures.metrics
        if "driver_util_ratio" in metrics:
            self.util_sum += metrics["driver_util_ratio"]
            self.util_count += 1
        if "memory_used_bytes" in metrics:
            self.memory_peak = max(self.memory_peak or 0.0, metrics["memory_used_bytes"])
        self.altered += reading.measures.altered


def read(path: Path, options: ImportOptions) -> Iterator[Imported | Rejected]:
    """Stream the records of a file; see ``Importer.read``."""
    log = _Log(options)
    reader = LogReader(LogClock(options.zone))
    taken = 0
    try:
        for line, text in numbered_lines(path, options.consumed):
            found = reader.take(line, text)
            if isinstance(found, Rejected):
                taken += 1
                yield found
            elif found is not None:
                taken += 1
                yield from log.add(found)
    except BadInputError:
        yield from log.close()
        raise
    if not taken and reader.columns is None:
        raise BadInputError(str(path), None, "expected the header of nvidia-smi --format=csv, or of dmon")
    yield from log.close()


class _Log:
    """Turns readings into records."""

    def __init__(self, options: ImportOptions) -> None:
        self._options = options
        self._cluster = cluster_name(options.cluster)
        self._owner = JobOfDevices(options, SOURCE)
        self._tracks: dict[str, _Track] = {}
        self._timeless = _Timeless()

    def add(self, reading: Reading) -> Iterator[Imported | Rejected]:
        if reading.at is None:
            self._timeless.add(reading)
            return
        try:
            device = self._device(reading)
            owner, held = self._owner.of(device, reading.at)
        except BadRowError as bad:
            yield Rejected(reading.line, bad.reason, bad.detail)
            return
        track = self._tracks.get(device)
        if track is None:
            track = self._tracks[device] = _Track(self._new_cadence(), reading.at)
        if track.waiting is not None:
            yield self._imported(device, track, track.waiting, reading.at - (track.waiting.reading.at or 0.0))
        track.waiting = _Waiting(reading, owner, held)

    def close(self) -> Iterator[Imported | Rejected]:
        for device, track in self._tracks.items():
            if track.waiting is not None:
                waiting, track.waiting = track.waiting, None
                yield self._imported(device, track, waiting, None)
        if self._timeless.count:
            yield self._means()
            self._timeless = _Timeless()

    def _new_cadence(self) -> Cadence:
        settings = self._options.settings
        return Cadence(settings[IMPORT_LONE_CADENCE_SECONDS], settings[IMPORT_LONGEST_CADENCE_SECONDS])

    def _device(self, reading: Reading) -> str:
        """Name a reading's device: by UUID, else by its place on a node that is known.

        Raises:
            BadRowError: nothing tells it from others.

        """
        if reading.device_uuid is not None:
            return reading.device_uuid
        place = reading.pci_bus_id or (None if reading.index is None else f"gpu{reading.index}")
        if place is None:
            raise BadRowError("no device", "expected one of the columns uuid, index, pci.bus_id")
        node = self._node(reading)
        if node == NO_NODE:
            raise BadRowError("no node", f"{place} is on every node; name this one with --node")
        return f"{node}/{place}"

    def _node(self, reading: Reading) -> str:
        return self._options.node or reading.node or NO_NODE

    def _imported(self, device: str, track: _Track, waiting: _Waiting, step: float | None) -> Imported:
        reading, node = waiting.reading, self._node(waiting.reading)
        at, cadence = reading.at or 0.0, track.cadence.of(step)
        track.first_at = min(track.first_at, at)
        track.until_at = max(track.until_at, at + cadence)
        known = Device(
            device_uuid=device,
            cluster=self._cluster,
            node=node,
            since_at=track.first_at,
            until_at=track.until_at,
            device_index=reading.index,
            gpu_model=reading.gpu_model,
            memory_bytes=None if not reading.memory_bytes else int(reading.memory_bytes),
            pci_bus_id=reading.pci_bus_id,
        )
        sample = Sample(
            cluster=self._cluster,
            node=node,
            device_uuid=device,
            sampled_at=at,
            cadence_seconds=cadence,
            source=SOURCE,
            metrics=reading.measures.metrics,
            attempt_key=waiting.owner,
            attribution=None if waiting.owner is None else "scheduler",
        )
        return Imported(
            reading.line,
            f"{self._cluster}/{node}/{device}@{at:.6f}:{waiting.owner or ''}",
            f"{reading.text}\x1f{self._options.zone}",
            (*((known,) if step is None else ()), *waiting.held),
            tuple(reading.measures.altered),
            (sample,),
        )

    def _means(self) -> Imported:
        """Give the means of readings without a time, for the job that was named, or for one that nobody knows."""
        timeless = self._timeless
        name = timeless.digest.hexdigest()
        rows: list[Record] = []
        attempt_key = self._owner.last_attempt()
        if attempt_key is None:
            job_key = f"{self._cluster}/{SOURCE}-{name}#0"
            attempt_key = f"{job_key}:0"
            rows.append(Job(job_key, self._cluster, f"{SOURCE}-{name}", SOURCE))
            rows.append(
                Attempt(
                    attempt_key,
                    job_key,
                    AttemptState.UNKNOWN,
                    raw_state=None,
                    start_at=None,
                    end_at=None,
                    source=SOURCE,
                )
            )
        rows.append(
            AttemptSummary(
                attempt_key=attempt_key,
                source=SOURCE,
                coverage_ratio=1.0,
                coverage_assumed=True,
                driver_util_ratio=timeless.util_sum / timeless.util_count if timeless.util_count else None,
                gpu_memory_peak_bytes=timeless.memory_peak,
            )
        )
        content = f"{name}:{timeless.count}"
        return Imported(timeless.line, attempt_key, content, tuple(rows), tuple(timeless.altered), count=timeless.count)


EXAMPLE = """\
timestamp, index, uuid, name, utilization.gpu [%], memory.used [MiB], memory.total [MiB], power.draw [W]
2026/09/21 12:00:00.000, 0, GPU-00000000-0000-0000-0000-00000000000a, NVIDIA A100-SXM4-40GB, 93 %, 12000 MiB, \
40960 MiB, 287.50 W
2026/09/21 12:00:00.000, 1, GPU-00000000-0000-0000-0000-00000000000b, NVIDIA A100-SXM4-40GB, 0 %, 512 MiB, \
40960 MiB, 55.10 W
2026/09/21 12:00:10.000, 0, GPU-00000000-0000-0000-0000-00000000000a, NVIDIA A100-SXM4-40GB, 95 %, 12000 MiB, \
40960 MiB, 291.00 W
2026/09/21 12:00:10.000, 1, GPU-00000000-0000-0000-0000-00000000000b, NVIDIA A100-SXM4-40GB, [N/A], 512 MiB, \
40960 MiB, 54.90 W
"""

IMPORTER = Importer(
    name=SOURCE,
    description="Reads logs of nvidia-smi: queries as CSV in a loop, dmon, and lines of a monitor without a time.",
    example=EXAMPLE,
    read=read,
    gives="driver utilization, memory, power, temperature and clocks of a device; whose they are is told by --job",
)
