"""From single values of series to readings of devices: those of one device, exporter and instant become one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from warehouse.contract.metrics import BY_NAME, is_possible
from warehouse.contract.model import Device, Record
from warehouse.importer import Altered, Imported, ImportOptions, Sample
from warehouse.imports._cadence import Cadence
from warehouse.imports._measures import Measures, is_blank
from warehouse.imports._prom_labels import DeviceName, Workload, device_name, target, workload
from warehouse.imports._prom_names import (
    DEVICE_INFOS,
    JOB_IDS,
    MEMORY_TOTALS,
    POD_FACTS,
    SERIES,
    SLURM,
    SM_ACTIVE_IF,
    Kind,
    Meaning,
)
from warehouse.imports._prom_text import Point
from warehouse.imports._prom_workloads import PodFacts, Run, Workloads
from warehouse.imports._values import BadRowError
from warehouse.settings import (
    IMPORT_EXPORTER_PODS,
    IMPORT_LONE_CADENCE_SECONDS,
    IMPORT_LONGEST_CADENCE_SECONDS,
)

SOURCE: Final = "prometheus"
MOST_ALTERED: Final = 1000
"""Values left out that one record names; further ones of a device in a window are alike."""


@dataclass(slots=True)
class _Moment:
    """What one exporter said of one device at one instant."""

    values: dict[str, tuple[Meaning, float, str]] = field(default_factory=dict)
    owners: dict[Workload, None] = field(default_factory=dict)
    seen: dict[str, list[Mapping[str, str]]] = field(default_factory=dict)
    count: int = 0
    is_stated: bool = True


@dataclass(slots=True)
class _Facts:
    """What is known of a device beside its metrics."""

    name: DeviceName
    memory_bytes: float | None = None
    pci_bus_id: str | None = None


@dataclass(frozen=True, slots=True)
class _Reading:
    """One instant of a device with how long it speaks and whose it is."""

    at: float
    cadence_seconds: float
    metrics: Mapping[str, float]
    runs: tuple[Run, ...]


_Key = tuple[str, int | str]
"""A device: its node and index, or the empty text and its UUID."""


class Fold:
    """Values of one window (a stretch of time, or a file) by device. Values from ``until_at`` on only end the last."""

    def __init__(self, options: ImportOptions, cluster: str, workloads: Workloads, until_at: float | None) -> None:
        """Start an empty window."""
        self._options = options
        self._cluster = cluster
        self._workloads = workloads
        self._until_at = until_at
        self._exporter_pods = options.settings[IMPORT_EXPORTER_PODS]
        self._moments: dict[tuple[_Key, str], dict[float, _Moment]] = {}
        self._facts: dict[_Key, _Facts] = {}
        self._uuids: dict[tuple[str, int], str] = {}
        self._jobs: dict[_Key, dict[float, Workload]] = {}
        self._pods: dict[tuple[str, str], PodFacts] = {}
        self._exporting: set[tuple[str, str]] = set()
        self._is_sm_active: set[_Key] = set()
        self._learnt: dict[int, Mapping[str, str]] = {}
        self._devices: dict[int, tuple[Mapping[str, str], DeviceName | None]] = {}
        self._owners: dict[tuple[int, bool], Workload | None] = {}
        self._unused = 0
        self._unused_digest = blake2b(digest_size=8)

    def learn(self, labels: Mapping[str, str]) -> None:
        """See labels before any value: which card is which index of its node, and what pods are.

        A target with ``exported_`` labels has its own under the plain names.

        Raises:
            BadRowError: labels that cannot be names.

        """
        if id(labels) in self._learnt:
            return
        self._learnt[id(labels)] = labels
        if any(name.startswith("exported_") for name in labels):
            self._exporting.add(target(labels))
        if labels.get("__name__") in POD_FACTS:
            self._learn_pod(labels)
        elif (device := device_name(labels, self._options.node)) is not None:
            self._key(device)

    def add(self, point: Point, at: float, *, is_stated: bool) -> None:
        """Add one value; ``is_stated`` says that the source tells the time, which then is part of the content.

        Raises:
            BadRowError: labels that cannot be names, or a second value of a series at one instant.

        """
        is_inside = self._until_at is None or at < self._until_at
        name = point.name
        if name in POD_FACTS:
            self._learn_pod(point.labels)
        device = None if name in POD_FACTS else self._device_name(point.labels)
        meaning = SERIES.get(name)
        if device is None or (meaning is None and name not in MEMORY_TOTALS and name not in JOB_IDS | DEVICE_INFOS):
            if is_inside:
                self._pass_over(point, at if is_stated else None)
            return
        key = self._key(device)
        facts = self._facts.setdefault(key, _Facts(device))
        if meaning is None:
            self._describe(key, facts, point, at)
            if is_inside:
                self._pass_over(point, at if is_stated else None)
            return
        if name == SM_ACTIVE_IF:
            self._is_sm_active.add(key)
        moment = self._moments.setdefault((key, meaning.exporter), {}).setdefault(at, _Moment(is_stated=is_stated))
        if name in moment.values:
            self._refuse_repeat(moment, point, is_stated=is_stated)
        moment.values.setdefault(name, (meaning, point.value, name))
        moment.seen.setdefault(name, []).append(point.labels)
        moment.count += 1
        owner = self._owner(point.labels)
        if owner is not None:
            moment.owners.setdefault(owner)

    def _refuse_repeat(self, moment: _Moment, point: Point, *, is_stated: bool) -> None:
        """Refuse a value of a series that has one at this instant; several owners of one device are several series.

        Raises:
            BadRowError: it has one.

        """
        if any(point.labels == labels for labels in moment.seen[point.name]):
            if is_stated:
                raise BadRowError("value comes twice", f"{point.name} has two values at one instant")
            detail = f"{point.name} comes again and no line says a time; keep each page in a file of its own"
            raise BadRowError("no time", detail)

    def _device_name(self, labels: Mapping[str, str]) -> DeviceName | None:
        """Find a series' device, once for one object of labels, which is kept so that its number stays its own."""
        known = self._devices.get(id(labels))
        if known is None:
            known = self._devices[id(labels)] = (labels, device_name(labels, self._options.node))
        return known[1]

    def _owner(self, labels: Mapping[str, str]) -> Workload | None:
        place = id(labels), target(labels) in self._exporting
        if place not in self._owners:
            self._owners[place] = workload(labels, self._exporter_pods, exported=place[1])
        return self._owners[place]

    def records(self, window: str, line: int) -> Iterator[Imported]:
        """Give one record for each device and exporter, and one for what was passed over; ``window`` names them."""
        found = sorted(self._moments.items(), key=lambda item: (str(item[0][0]), item[0][1]))
        read = {place: self._readings(place, moments) for place, moments in found}
        for (key, exporter), moments in found:
            readings, altered = read[key, exporter]
            inside = [at for at in moments if self._until_at is None or at < self._until_at]
            if inside:
                yield self._record(key, exporter, {at: moments[at] for at in inside}, readings, altered, (window, line))
        if self._unused:
            digest = self._unused_digest.hexdigest()
            yield Imported(line, f"{self._cluster}/other@{window}", digest, (), count=self._unused)

    # ------------------------------------------------------------------------------------------------- what is added

    def _key(self, device: DeviceName) -> _Key:
        if device.uuid is not None:
            if device.index is not None and device.uuid.startswith("GPU-"):
                self._uuids[device.node, device.index] = device.uuid
            return ("", device.uuid)
        return (device.node, device.index or 0)

    def _device(self, key: _Key) -> str:
        """Give a device's name in the store: its UUID, where any series gave one for its node and index."""
        node, which = key
        if isinstance(which, str):
            return which
        return self._uuids.get((node, which), f"{node}/gpu{which}")

    def _describe(self, key: _Key, facts: _Facts, point: Point, at: float) -> None:
        if point.name in MEMORY_TOTALS and not is_blank(point.value, BY_NAME["memory_used_bytes"].unit):
            facts.memory_bytes = point.value * MEMORY_TOTALS[point.name] or None
        elif point.name in DEVICE_INFOS:
            facts.pci_bus_id = point.labels.get("pci_bus_id") or None
            model = point.labels.get("name") or point.labels.get("model")
            if model:
                name = facts.name
                facts.name = DeviceName(name.node, name.uuid, name.index, model[:200], name.share_ratio)
        elif point.name in JOB_IDS and 0 < point.value < 2**53:
            job = str(int(point.value))
            self._jobs.setdefault(key, {})[at] = Workload("slurm", job)

    def _learn_pod(self, labels: Mapping[str, str]) -> None:
        where = (labels.get("exported_namespace") or labels.get("namespace", ""), labels.get("exported_pod", ""))
        place = (where[0], where[1] or labels.get("pod", ""))
        old = self._pods.get(place, PodFacts())
        made_by = labels.get("created_by_name") or labels.get("owner_name")
        uid = labels.get("exported_uid") or labels.get("uid")
        self._pods[place] = PodFacts(uid or old.uid, made_by if made_by and made_by != "<none>" else old.made_by)

    def _pass_over(self, point: Point, at: float | None) -> None:
        self._unused += 1
        text = f"{point.name}{sorted(point.labels.items())}{point.value!r}@{at}\n"
        self._unused_digest.update(text.encode("utf-8", "surrogatepass"))

    # ------------------------------------------------------------------------------------------- what comes of it

    def _readings(self, place: tuple[_Key, str], moments: dict[float, _Moment]) -> tuple[list[_Reading], list[Altered]]:
        key, exporter = place
        settings = self._options.settings
        cadence = Cadence(settings[IMPORT_LONE_CADENCE_SECONDS], settings[IMPORT_LONGEST_CADENCE_SECONDS])
        device, times = self._device(key), sorted(moments)
        found: list[_Reading] = []
        altered: list[Altered] = []
        for number, at in enumerate(times):
            if self._until_at is not None and at >= self._until_at:
                break
            following = times[number + 1] if number + 1 < len(times) else None
            length = cadence.of(None if following is None else following - at)
            goes_on = following is not None and following - at <= length
            after = moments[following] if goes_on and following is not None else None
            metrics = self._metrics(key, exporter, moments[at], after, length, altered)
            owners = dict(moments[at].owners)
            if (job := self._jobs.get(key, {}).get(at)) is not None and not owners:
                owners[job] = None
            runs = tuple(self._workloads.run_of(owner, at, self._pods) for owner in owners)
            for run in runs:
                run.sees(device, at, at + length)
            found.append(_Reading(at, length, metrics, runs))
        return found, altered[:MOST_ALTERED]

    def _metrics(
        self,
        key: _Key,
        exporter: str,
        moment: _Moment,
        after: _Moment | None,
        cadence_seconds: float,
        altered: list[Altered],
    ) -> dict[str, float]:
        measures = Measures()
        for name, (meaning, value, said) in moment.values.items():
            column = meaning.column
            if exporter == SLURM and key in self._is_sm_active and column == "driver_util_ratio":
                column = "sm_active_ratio"
            if meaning.kind is Kind.GAUGE:
                measures.put(column, value, meaning.factor, said)
                continue
            amount = value * cadence_seconds
            if is_blank(value, BY_NAME[column].unit):
                measures.altered.append(Altered(said, "blank, left out", repr(value)))
                continue
            if meaning.kind is Kind.COUNTER:
                if after is None or name not in after.values:
                    continue
                amount = after.values[name][1] - value
                if amount < 0:
                    measures.altered.append(Altered(said, "counter began anew, step left out", f"{value!r}, then less"))
                    continue
            amount *= meaning.factor
            if is_possible(BY_NAME[column], amount, cadence_seconds):
                measures.metrics[column] = amount
            else:
                measures.altered.append(Altered(said, "impossible value, left out", f"{amount:g}"))
        altered += measures.altered
        return measures.metrics

    def _record(
        self,
        key: _Key,
        exporter: str,
        moments: Mapping[float, _Moment],
        readings: list[_Reading],
        altered: list[Altered],
        place: tuple[str, int],
    ) -> Imported:
        window, line = place
        device, facts = self._device(key), self._facts[key]
        first, last = readings[0], readings[-1]
        known = Device(
            device_uuid=device,
            cluster=self._cluster,
            node=facts.name.node,
            since_at=first.at,
            until_at=last.at + last.cadence_seconds,
            device_index=facts.name.index,
            gpu_model=facts.name.gpu_model,
            memory_bytes=None if facts.memory_bytes is None else int(facts.memory_bytes),
            pci_bus_id=facts.pci_bus_id,
        )
        rows: dict[Record, None] = {known: None}
        samples: list[Sample] = []
        runs: dict[str, Run] = {}
        for reading in readings:
            for run in reading.runs:
                runs.setdefault(run.attempt_key, run)
            samples += self._samples(device, facts.name.node, exporter, reading)
        for run in runs.values():
            told = self._workloads.rows(run, device, facts.name.node, facts.name.gpu_model, facts.name.share_ratio)
            rows.update(dict.fromkeys(told))
        return Imported(
            line,
            f"{self._cluster}/{facts.name.node}/{device}/{exporter}@{window}",
            _content(moments),
            tuple(rows),
            tuple(altered),
            tuple(samples),
            sum(moment.count for moment in moments.values()),
        )

    def _samples(self, device: str, node: str, exporter: str, reading: _Reading) -> Iterator[Sample]:
        """Give one sample, or where several share the device, one for each with the device's values and its share."""
        sharers = len(reading.runs)
        for run in reading.runs or (None,):
            yield Sample(
                cluster=self._cluster,
                node=node,
                device_uuid=device,
                sampled_at=reading.at,
                cadence_seconds=reading.cadence_seconds,
                source=f"{SOURCE}:{exporter}",
                metrics=reading.metrics,
                attempt_key=None if run is None else run.attempt_key,
                share_ratio=None if run is None else 1.0 / sharers,
                attribution=None if run is None else ("scheduler" if sharers == 1 else "equal_split"),
            )


def _content(moments: Mapping[float, _Moment]) -> str:
    """Hash what was used; times that the source does not state are no part of it."""
    digest = blake2b(digest_size=16)
    for at in sorted(moments):
        moment = moments[at]
        values = sorted((name, value[1]) for name, value in moment.values.items())
        owners = sorted((owner.kind, owner.id, owner.pod_uid or "") for owner in moment.owners)
        digest.update(f"{at if moment.is_stated else ''}{values!r}{owners!r}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
