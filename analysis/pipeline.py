"""The questions that the data can be asked, and the only module of this room that reads the store.

An answer reads its parameters, gathers what it needs, and leaves judging and wording to the pure modules. What was
gathered and answered is remembered until the data change, so that equal questions run once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.asking import WINDOW_PARAMETERS, Asked, check_names, read_asked, read_choice
from analysis.memory import Memory
from analysis.study import Gathered, Study, gather, judge, resolve
from analysis.waste import GROUPINGS, nothing_wasted, waste_document
from analysis.window import edge, weeks_between
from warehouse.settings import CLUSTER_ZONE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warehouse.client import Answer, Document, Parameters
    from warehouse.contract.settings import Settings
    from warehouse.store import Store

_gathered: Memory[Gathered] = Memory(4)
_documents: Memory[Document] = Memory(64)


def _remembered(name: str, known: tuple[str, ...], answer: Answer) -> Answer:
    """Check the names of the parameters, and answer equal questions to the same data once."""

    def ask(store: Store, settings: Settings, parameters: Parameters) -> Document:
        check_names(parameters, known)
        key = (store.data_version(), name, *sorted(parameters.items()), _fingerprint(settings))
        return _documents.get(key, lambda: answer(store, settings, parameters))

    return ask


def _fingerprint(settings: Settings) -> str:
    return repr(sorted(settings.values.items()))


def _asked(settings: Settings, parameters: Parameters) -> Asked:
    return read_asked(parameters, settings, settings[CLUSTER_ZONE])


def _study(store: Store, settings: Settings, asked: Asked, *, weeks: bool = False) -> Study | None:
    """Study the window that was asked for, in one piece or by week; None: there is nothing in the store."""
    version = store.data_version()
    with store.snapshot() as tables:
        span = resolve(tables, asked.window)
        if span is None:
            return None
        since, until, last = span
        inner = [edge(week.since_at) for _, week in weeks_between(since, until, asked.zone)] if weeks else []
        edges = (since, *(at for at in inner if since < at < until), until)
        gathered = _gathered.get(
            (version, edges, _fingerprint(settings)), lambda: gather(tables, edges, last, settings)
        )
    return judge(gathered, settings, rung=asked.rung)


def _waste(store: Store, settings: Settings, parameters: Parameters) -> Document:
    asked = _asked(settings, parameters)
    by = read_choice(parameters, "by", GROUPINGS, "user")
    found = _study(store, settings, asked, weeks=by == "week")
    return nothing_wasted(asked.window, by, asked.zone) if found is None else waste_document(found, by, asked.zone)


ANSWERS: Mapping[str, Answer] = {
    "waste": _remembered("waste", (*WINDOW_PARAMETERS, "by", "rung"), _waste),
}
"""Every question with its answer."""
