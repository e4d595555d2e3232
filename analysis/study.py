"""What one document is made of, gathered once: holdings, stretches, means, the rung, and the booked time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.activity import gather_activity
from analysis.booking import Books, Entries, Evidence, book, enter, known_seconds
from analysis.frames import Bools, Tables, codes
from analysis.holdings import Holdings, Span, holdings
from analysis.inventory import Inventory, gather_inventory
from analysis.rung import choose_rung
from analysis.sources import Sources, gather_sources
from analysis.summaries import gather_summaries
from warehouse.contract.model import Window

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.account import GpuSeconds
    from warehouse.contract.metrics import Rung
    from warehouse.contract.settings import Settings


@dataclass(frozen=True, slots=True)
class Gathered:
    """The evidence of ``[edges[0], edges[-1])``, before a rung is chosen.

    ``known`` is the first and the last instant that the store speaks of. ``inventory`` is None where only some attempts
    are studied.
    """

    evidence: Evidence
    entries: Entries
    inventory: Inventory | None
    sources: Sources
    known: Span


@dataclass(frozen=True, slots=True)
class Study:
    """Evidence with its time booked, in the windows between the edges."""

    gathered: Gathered
    books: Books

    @property
    def evidence(self) -> Evidence:
        """Give what the accounts are made of."""
        return self.gathered.evidence

    @property
    def entries(self) -> Entries:
        """Give the holdings by window."""
        return self.gathered.entries

    @property
    def edges(self) -> Sequence[float]:
        """Give the edges of the windows, in seconds since the epoch."""
        return self.evidence.edges

    @property
    def held(self) -> Holdings:
        """Give who held what."""
        return self.evidence.held

    @property
    def rung(self) -> Rung | None:
        """Give the rung that the time is booked by; None when nothing is known by any."""
        return self.books.rung

    def words(self, name: str) -> list[Any]:
        """Give for each entry a column of what is known about its allocation, attempt and job."""
        words = self.held.pick(name)
        return [words[at] for at in self.entries.holding]

    def job_keys(self) -> list[str]:
        """Give for each entry the key of its job."""
        keys = job_keys(self.held)
        return [keys[at] for at in self.entries.holding]

    def total(self, window: int | None = None) -> GpuSeconds:
        """Give the account of one window, or of all, with capacity where it is known."""
        (account,) = self.books.add_up(np.where(self.inside(window), 0, -1), 1)
        inventory = self.gathered.inventory
        return account if inventory is None else inventory.complete_account(account, self.span(window))

    def span(self, window: int | None = None) -> Span:
        """Give where a window begins and ends, or all of them together."""
        first, last = (0, len(self.edges) - 1) if window is None else (window, window + 1)
        return self.edges[first], self.edges[last]

    def inside(self, window: int | None = None) -> Bools:
        """Say of each entry whether it lies in a window; in None all do."""
        return self.entries.window >= 0 if window is None else self.entries.window == window


def job_keys(held: Holdings) -> list[str]:
    """Give the job key of each holding; of an attempt that nobody described, from the attempt's own key."""
    known = zip(held.pick("job_key"), held.attempt, strict=True)
    return [key or held.attempt_keys[at].rpartition(":")[0] or held.attempt_keys[at] for key, at in known]


def resolve(known: Span, window: Window) -> Span:
    """Give the edges of a window; an open side ends at what the store knows."""
    since, until = window.since_at, window.until_at
    if since is None:
        since = known[0] if until is None else min(known[0], until)
    return since, max(known[1], since) if until is None else until


def gather(tables: Tables, edges: Sequence[float], known: Span, settings: Settings) -> Gathered:
    """Gather what is known of the time between the edges: one scan of the samples."""
    held = holdings(tables, Window(edges[0], edges[-1]), known[1])
    activity = gather_activity(tables, held, edges, settings)
    evidence = Evidence(held, activity, gather_summaries(tables), tuple(edges))
    inventory = gather_inventory(tables, held, activity, known[1])
    return Gathered(evidence, enter(held, edges), inventory, gather_sources(tables), known)


def gather_attempts(tables: Tables, keys: Sequence[str], window: Span, known: Span, settings: Settings) -> Gathered:
    """Gather what is known of some attempts alone; shares of devices are settled among all who held them."""
    held = holdings(tables, Window(*window), known[1]).only(keys)
    activity = gather_activity(tables, held, window, settings, owners=keys)
    evidence = Evidence(held, activity, gather_summaries(tables), window)
    return Gathered(evidence, enter(held, window), None, gather_sources(tables), known)


def judge(gathered: Gathered, settings: Settings, *, rung: Rung | None = None, judged: int | None = None) -> Study:
    """Book the time by ``rung``, or by the best one that covers enough.

    ``judged`` names the window whose time decides on the rung; None: all of them.
    """
    evidence, entries = gathered.evidence, gathered.entries
    if rung is None:
        known = known_seconds(evidence, entries)
        if judged is not None:
            known = {name: np.where(entries.window == judged, parts, 0.0) for name, parts in known.items()}
        jobs, _ = codes(job_keys(evidence.held))
        rung = choose_rung(known, jobs[entries.holding], settings)
    return Study(gathered, book(evidence, entries, rung, settings))
