"""The page kind: one file in ``dashboards/views/`` = one page, found by a scan for its constant ``PAGE``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dashboards.person import Person
from warehouse.client import Document
from warehouse.contract.plugins import scan


@dataclass(frozen=True, slots=True)
class PageContext:
    """What a page may use: questions to the data, and links to other pages. It knows no store and no address.

    ``period`` holds what the reader chose beside every page (``since``, ``until``, ``week``, ``rung``; only what was
    chosen). ``ask`` gives cached documents. ``link`` draws a link to another page, with a query that survives in the
    address, and keeps the period. ``person`` is who looks; ``ask_as(login, question, parameters)`` answers as somebody
    may see it by the own jobs alone: oneself, or anybody where the person sees everything. ``advice`` keeps what became
    of advice (``warehouse.advice_desk``); who acts is written down.
    """

    ask: Callable[[str, Mapping[str, str]], Document]
    period: Mapping[str, str]
    link: Callable[[str, str, Mapping[str, str]], None]
    ask_as: Callable[[str, str, Mapping[str, str]], Document]
    person: Callable[[], Person]
    advice: Callable[[str, Mapping[str, object]], Document]

    def answer(self, question: str, **parameters: str) -> Document:
        """Give the document that answers a question over the chosen period.

        Raises:
            TrueloadError: as the client of the warehouse raises; the frame around the page shows it.

        """
        return self.ask(question, {**self.period, **parameters})


@dataclass(frozen=True, slots=True)
class Page:
    """One page. ``name`` is its path in the address, ``icon`` a Material symbol, ``section`` its group in the menu.

    ``order`` is its place in the menu, from the question asked most often on.
    """

    name: str
    title: str
    icon: str
    section: str
    order: int
    description: str
    draw: Callable[[PageContext], None]


def pages() -> list[Page]:
    """Find all pages, in the order of the menu.

    Raises:
        PluginError: a module of ``dashboards.views`` lacks its ``PAGE``.

    """
    return sorted(scan("dashboards.views", "PAGE", Page).values(), key=lambda page: (page.order, page.name))
