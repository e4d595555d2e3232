"""The node agent: reads every source each interval, makes rows of it, tags them with their owner and spools them.

It judges nothing and never opens a database. Sampling goes on whatever the server, the scheduler or one device does.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from collector import settings as names
from collector.aggregate import Aggregator, Moment, Row
from collector.attribution import Attribution
from collector.belief import NumbSources, Silence
from collector.driver import Driver, DriverGoneError
from collector.owners import KERNEL, Use
from collector.process_rows import ProcessRows
from collector.registry import sources
from collector.source import BeginsAnew, DeviceReader, LateReader, Reader, Source, SourceContext
from collector.steps_seen import StepsSeen
from collector.sweep import SourceHealth, sweep
from collector.watch import EventWatch
from warehouse.contract import wire
from warehouse.contract.errors import BadUseError, TrueloadError
from warehouse.contract.model import Event, Record, Sample

if TYPE_CHECKING:
    from collector.inventory import Inventory
    from collector.job_source import Holding, JobReader
    from collector.source import Reading
    from collector.spool import Spool
    from warehouse.contract.settings import Settings

LOG = logging.getLogger("trueload.agent")
TOO_SOON_RATIO: Final = 0.1
"""A tick is skipped when it would come within this share of an interval after the one before."""


MOST_SAID: Final = 1000
"""Warnings that are remembered, so that each is said once; after so many different ones no more are said."""


class SilentError(TrueloadError):
    """No device has given any value for as long as the settings allow."""


@dataclass(slots=True)
class OpenSource:
    """A source at work."""

    source: Source
    reader: Reader | DeviceReader
    aggregator: Aggregator
    processes: ProcessRows


def now() -> Moment:
    """Read both clocks."""
    return Moment(time.time(), time.monotonic())


class Agent:
    """One node's agent over an open spool. Used from one thread."""

    def __init__(
        self,
        settings: Settings,
        driver: Driver,
        spool: Spool,
        inventory: Inventory,
        jobs: JobReader | None = None,
        on_batch: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare. ``jobs`` tells whose devices are; ``on_batch`` is called when a batch was spooled."""
        self.health: dict[str, SourceHealth] = {}
        self.lost_batches_total = 0
        """Batches that the disk did not take."""
        self._settings = settings
        self._driver = driver
        self._spool = spool
        self._inventory = inventory
        self._on_batch = on_batch
        self._said: set[str] = set()
        self.attribution = Attribution(
            jobs, Path(settings[names.PROC_ROOT]), settings[names.CLUSTER], node_name(settings), self._say_once
        )
        """Who holds what, and whose each process is."""
        self.attribution.settled_uses = self._uses
        self._numb = NumbSources(settings[names.NUMB_ROUNDS], driver.tell)
        self._silence = Silence()
        self.silent_seconds = 0.0
        """For how long no device has given any value."""
        self._open: list[OpenSource] = []
        self._late: list[LateReader] = []
        self._watch: EventWatch | None = None
        self.steps = StepsSeen()
        """Steps that traced processes counted, for the exporter."""
        self.on_readings: Callable[[Moment, Mapping[str, Sequence[Reading]]], None] = lambda _moment, _found: None
        """Called with each round of readings, by source."""

    @property
    def holdings(self) -> Sequence[Holding]:
        """Give who holds what, as it was known last."""
        return self.attribution.owners.holdings

    @property
    def rejected(self) -> Counter[str]:
        """Count values that could not be true, by metric, and rows left out because the wall clock had gone back."""
        # Copied first, each in one step: a scrape may ask while the agent's thread counts.
        counts = [count for one in list(self._open) for count in (one.aggregator.rejected, one.processes.rejected)]
        return sum((Counter(dict(count)) for count in counts), Counter())

    def run(self, stop: threading.Event) -> None:
        """Work until told to stop. A driver that goes away is opened anew after a while.

        Raises:
            BadUseError: the settings name a source that does not exist, or a library that cannot be loaded.
            SilentError: no device has given a value for as long as the settings allow.

        """
        try:
            while not stop.is_set():
                try:
                    self.open(lambda: not stop.is_set())
                    self._tick_until(stop)
                except DriverGoneError as error:
                    LOG.warning("%s; next try in %g s", error, self._settings[names.REPROBE_SECONDS])
                    self.close()
                    stop.wait(self._settings[names.REPROBE_SECONDS])
        finally:
            self.close()

    def open(self, wanted: Callable[[], bool] | None = None) -> None:
        """Open the driver and the sources, and tell what the node has; ``wanted`` ends a long wait early."""
        self._driver.open(wanted)
        self._open = [self._open_source(source) for source in chosen_sources(self._settings)]
        self._late = [one.reader for one in self._open if isinstance(one.reader, LateReader)]
        self._watch = EventWatch(self._driver)
        self._watch.start()
        at = now().wall
        gap_seconds = self._settings[names.GAP_INTERVALS] * self._settings[names.CADENCE_SECONDS]
        begun = self._inventory.resume(at, gap_seconds)
        self._keep([], [*begun, *self._inventory.update(self._driver, at)])

    def close(self) -> None:
        """Spool what has been collected and let the driver go. May be called twice."""
        rows = [row for opened in self._open for row in opened.aggregator.flush()]
        self._keep(rows, [row for opened in self._open for row in opened.processes.flush(self._owner)])
        for opened in self._open:
            try:
                opened.reader.close()
            except Exception as error:  # noqa: BLE001 - one source's goodbye costs nobody else
                self._say_once(f"{opened.source.name}: closing failed ({error!r})")
        self._open, self._late = [], []
        watch, self._watch = self._watch, None
        self._driver.close(shutdown=watch is None or watch.stop())

    def tick(self, moment: Moment) -> None:
        """Read every source once and spool what is complete."""
        readers = {opened.source.name: opened.reader for opened in self._open}
        found, begin_anew = self._numb.judge(sweep(self._driver, readers, self.health, self._say_once))
        for source, device_uuid in begin_anew:
            self._begin_anew(readers[source], device_uuid)
        self.silent_seconds = self._silence.seconds(moment, found, has_devices=bool(self._driver.devices))
        self.on_readings(moment, found)
        self.attribution.see(moment.wall, (one for readings in found.values() for one in readings))
        rows = [row for opened in self._open for row in opened.aggregator.add(moment, found[opened.source.name])]
        late = [reader.settled(moment, found, self._owner) for reader in self._late]
        rows += [row for one in late for row in one.rows]
        told: list[Record | Sample] = [record for one in late for record in one.records]
        for opened in self._open:
            told += opened.processes.add(moment, found[opened.source.name], self._owner)
        before = self._driver.devices
        self._driver.reprobe()
        changed = self._driver.devices is not before or any(device.lost for device in self._driver.devices)
        records = self._inventory.update(self._driver, moment.wall) if changed else []
        self._keep(rows, [*records, *self._events(), *told])

    def _begin_anew(self, reader: Reader | DeviceReader, device_uuid: str) -> None:
        """Have a source read a device as if for the first time, where it can and no call of it is out."""
        device = next((one for one in self._driver.devices if one.uuid == device_uuid), None)
        if device is not None and isinstance(reader, BeginsAnew) and not self._driver.lanes.busy(device.lane):
            reader.begin_anew(device)

    def _owner(self, pid: int) -> str | None:
        """Name the attempt that a process belongs to."""
        owner = self.attribution.owners.of_pid(pid)
        return None if owner is None else owner.attempt_key

    def _uses(self, device_uuid: str, start_at: float, end_at: float) -> list[Use]:
        """Tell what each process used of a device, as far as its own kernels say."""
        found = (reader.uses(device_uuid, start_at, end_at) for reader in self._late)
        return [Use(KERNEL, by_pid) for by_pid in found if by_pid]

    def _events(self) -> list[Event]:
        """Take what happened on the devices since the last round."""
        found, waiting = [], self._driver.occurrences
        while waiting:
            it = waiting.popleft()
            place = (self._settings[names.CLUSTER], node_name(self._settings))
            found.append(Event(*place, it.kind, it.at, device_uuid=it.device_uuid, detail=it.detail))
        return found

    def _tick_until(self, stop: threading.Event) -> None:
        interval_seconds = self._settings[names.INTERVAL_SECONDS]
        while True:
            wait_seconds = interval_seconds - time.time() % interval_seconds
            if wait_seconds < interval_seconds * TOO_SOON_RATIO:
                wait_seconds += interval_seconds
            if stop.wait(wait_seconds):
                return
            self.tick(now())
            longest_seconds = self._settings[names.EXIT_WHEN_SILENT_SECONDS]
            if 0.0 < longest_seconds <= self.silent_seconds:
                raise SilentError(
                    f"no device has given a value for {self.silent_seconds:.0f} s ({self._driver.last_failure}); "
                    f"ending, as {names.EXIT_WHEN_SILENT_SECONDS.name} says, to be started anew"
                )

    def _open_source(self, source: Source) -> OpenSource:
        settings = self._settings
        aggregator, of_processes = (
            Aggregator(
                source.name,
                interval_seconds=settings[names.INTERVAL_SECONDS],
                cadence_seconds=settings[names.CADENCE_SECONDS],
                gap_intervals=settings[names.GAP_INTERVALS],
                least_covered_ratio=settings[names.LEAST_COVERED_RATIO],
            )
            for _ in range(2)
        )
        place = (settings[names.CLUSTER], node_name(settings))
        reader = source.open(SourceContext(self._driver, settings))
        self.health.setdefault(source.name, SourceHealth())
        return OpenSource(source, reader, aggregator, ProcessRows(of_processes, source.name, place))

    def _keep(self, rows: list[Row], records: Sequence[Record | Sample]) -> None:
        samples = None
        if rows:
            news = self.attribution.refresh(self._driver.devices)
            samples = self.attribution.table(rows)
            records = [*records, *news, *self.attribution.observed()]
        self.steps.take(records)
        tables = wire.from_records(records)
        if samples is not None:
            tables["device_sample"] = samples
        if not tables:
            return
        try:
            self._spool.put(tables)
        except OSError as error:
            self.lost_batches_total += 1
            self._say_once(f"spool {self._spool.folder}: {error.strerror}; batches are lost until there is room")
            return
        self._inventory.alive(now().wall)
        self._on_batch()

    def _say_once(self, text: str) -> None:
        if text not in self._said and len(self._said) < MOST_SAID:
            self._said.add(text)
            LOG.warning("%s", text)


def chosen_sources(settings: Settings) -> list[Source]:
    """Give the sources that the settings name.

    Raises:
        BadUseError: one of them does not exist.

    """
    known = sources()
    unknown = [name for name in settings[names.SOURCES] if name not in known]
    if unknown:
        raise BadUseError(f"{names.SOURCES.name}: no source {unknown[0]!r}; there are {', '.join(known)}")
    return [known[name] for name in settings[names.SOURCES]]


def node_name(settings: Settings) -> str:
    """Give the node's name: the setting, or the host's own."""
    return settings[names.NODE] or socket.gethostname()
