"""What Prometheus is told of the cluster: devices by what becomes of them, accounts, families, advice.

Worked out beside a scrape, never within one, and only while somebody scrapes; what is told may be
``metrics.figures_seconds`` old and says from when it is. Labels are bounded: the largest few of each kind, the other
accounts as one; no person, job or command is a label.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from warehouse.contract.units import SECONDS_PER_DAY, SECONDS_PER_HOUR, iso
from warehouse.server_settings import FIGURES_ROWS, FIGURES_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from prometheus_client import Metric

    from warehouse.client import Answer, Document
    from warehouse.contract.settings import Settings
    from warehouse.sight import Sight

LOG = logging.getLogger("trueload.server")
NOW_SECONDS = SECONDS_PER_HOUR
"""The window that counts as now: shorter ones move with every batch that comes late."""

ADVICE_SECONDS = 7 * SECONDS_PER_DAY
"""The window of families and advice: what a weekly report speaks of."""

OTHERS = "(others)"
LONGEST_LABEL = 60
_IDLE = ("no_process", "with_process", "gaps")
_HELD = ("used", *_IDLE, "held_idle", "unknown")
_FREE = ("unallocated", "down", "unreported")
BOUNDS = ("low", "likely", "high")


@dataclass(frozen=True, slots=True)
class Told:
    """The figures of one moment: the answers they are read from."""

    at: float
    seconds: float
    by_account: Document
    families: Document
    recommend: Document


@dataclass(eq=False)
class Figures(Collector):
    """Hands a registry the figures as they were worked out last, and has them worked out anew when they are old."""

    store: Sight
    answers: Mapping[str, Answer]
    settings: Settings
    rows: int = field(init=False)
    _told: Told | None = None
    _tried_at: float = float("-inf")
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Read how many of each kind are told."""
        self.rows = self.settings[FIGURES_ROWS]

    def describe(self) -> list[Metric]:
        """Give nothing: the names are fixed, and none is registered twice."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Give what is known, and see to it that the next scrape is told something newer."""
        self._refresh_if_due()
        told = self._told
        if told is not None:
            yield from families(told, self.rows)

    def _refresh_if_due(self) -> None:
        pause = self.settings[FIGURES_SECONDS]
        with self._lock:
            if not pause or time.monotonic() - self._tried_at < pause or not {"waste", "families"} <= set(self.answers):
                return
            self._tried_at = time.monotonic()
        # A daemon: a server that ends does not wait for figures.
        threading.Thread(target=self.refresh, name="figures", daemon=True).start()

    def refresh(self) -> None:
        """Work the figures out now; one that fails is said, and what was known stays."""
        now, began = time.time(), time.monotonic()
        try:
            hour = {"since": _instant(now - NOW_SECONDS), "until": _instant(now), "by": "account"}
            week = {"since": _instant(now - ADVICE_SECONDS), "until": _instant(now)}
            answers = (self._ask("waste", hour), self._ask("families", week), self._ask("recommend", week))
            self._told = Told(now, time.monotonic() - began, *answers)
        except Exception:  # the server goes on without
            LOG.exception("the figures for Prometheus could not be worked out")

    def _ask(self, question: str, parameters: Mapping[str, str]) -> Document:
        return self.answers[question](self.store, self.settings, parameters)


def _instant(at: float) -> str:
    return str(iso(float(int(at))))


def families(told: Told, most: int) -> Iterator[Metric]:
    """Give the metrics of one moment; what is not known has no sample."""
    total = told.by_account.get("gpu_seconds")
    fleet = _gauge("fleet_devices", "Devices by what became of them, mean over the last hour.", "part")
    for part, devices in _devices(total, (*_HELD, *_FREE)):
        fleet.add_metric([part], devices)
    yield fleet
    accounts = _gauge("account_devices", "Devices held, by account and what became of them.", "account", "part")
    for account, held in _accounts(_rows(told.by_account, "rows"), most):
        for part, devices in held:
            accounts.add_metric([account, part], devices)
    yield accounts
    coverage = told.by_account.get("coverage_ratio")
    if isinstance(coverage, float | int):
        yield GaugeMetricFamily(
            "trueload_fleet_coverage_ratio", "Share of the held device time of the last hour with data.", coverage
        )
    yield from _of_families(_rows(told.families, "families"), most)
    yield from _of_advice(_rows(told.recommend, "recommendations"), most)
    yield GaugeMetricFamily("trueload_figures_timestamp_seconds", "When these figures were worked out.", told.at)
    yield GaugeMetricFamily("trueload_figures_duration_seconds", "How long that took.", told.seconds)


def _of_families(found: Sequence[Mapping[str, Any]], most: int) -> Iterator[Metric]:
    parts = _gauge("family_gpu_seconds", "Device time of repeated work in the last 7 days.", "family_id", "part")
    info = _gauge("family_info", "What repeated work is called.", "family_id", "label")
    largest = sorted(found, key=lambda one: -(_seconds(one).get("held_idle") or 0.0))[:most]
    for family in largest:
        name = str(family.get("family_id"))
        info.add_metric([name, str(family.get("label"))[:LONGEST_LABEL]], 1.0)
        for part in ("allocated", "used", "held_idle"):
            value = _seconds(family).get(part)
            if value is not None:
                parts.add_metric([name, part], value)
    count = GaugeMetricFamily("trueload_families", "Kinds of work that were repeated in the last 7 days.", len(found))
    yield from (parts, info, count)


def _of_advice(found: Sequence[Mapping[str, Any]], most: int) -> Iterator[Metric]:
    count = _gauge("recommendations", "Open pieces of advice on the last 7 days.", "remedy")
    kinds = [str(one.get("remedy")) for one in found]
    for remedy in sorted(set(kinds)):
        count.add_metric([remedy], kinds.count(remedy))
    text = "Device time that following an advice would have saved in the last 7 days; bounds are not to be added up."
    savings = _gauge("recommendation_saving_gpu_seconds", text, "recommendation_id", "remedy", "bound")
    for one in found[:most]:
        saving = one.get("saving_gpu_seconds")
        for bound in BOUNDS:
            value = saving.get(bound) if isinstance(saving, dict) else None
            if value is not None:
                savings.add_metric([str(one.get("recommendation_id")), str(one.get("remedy")), bound], value)
    yield from (count, savings)


def _accounts(found: Sequence[Mapping[str, Any]], most: int) -> Iterator[tuple[str, Iterable[tuple[str, float]]]]:
    held = sorted(found, key=lambda row: -(_seconds(row).get("allocated") or 0.0))
    for row in held[:most]:
        yield str(row.get("key") or ""), _devices(row.get("gpu_seconds"), _HELD)
    rest: dict[str, float] = {}
    for row in held[most:]:
        for part, devices in _devices(row.get("gpu_seconds"), _HELD):
            rest[part] = rest.get(part, 0.0) + devices
    if rest:
        yield OTHERS, rest.items()


def _devices(account: object, parts: Iterable[str]) -> Iterator[tuple[str, float]]:
    """Give parts of an account in devices; held idle as one only where its parts are not known."""
    known = account if isinstance(account, dict) else {}
    is_split = known.get("gaps") is not None
    for part in parts:
        if known.get(part) is not None and (part != "held_idle" or not is_split):
            yield part, float(known[part]) / NOW_SECONDS


def _seconds(row: Mapping[str, Any]) -> Mapping[str, float | None]:
    found = row.get("gpu_seconds")
    return found if isinstance(found, dict) else {}


def _rows(document: Document, name: str) -> list[Mapping[str, Any]]:
    found = document.get(name)
    return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"trueload_{name}", text, labels=labels)
