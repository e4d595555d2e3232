"""One session of the pages: the client, cached answers, the period that all pages share, and errors in one line."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import streamlit as st

from analysis.window import weeks_between, zone_of
from dashboards import sign_in
from dashboards.account import RUNG_WORDS
from dashboards.document import rows, text
from dashboards.page import Page, PageContext, pages
from dashboards.person import ALONE, Person
from dashboards.serving import PAGES_SETTINGS
from dashboards.settings import CACHE_ENTRIES, CACHE_SECONDS
from dashboards.text import markdown, plain
from dashboards.units import instant
from warehouse.client import Document, HttpClient, client_of, find_server
from warehouse.contract.errors import NotFoundError, RefusedError, StoreError, TrueloadError, UnreachableError
from warehouse.contract.metrics import Rung
from warehouse.contract.settings import load

_TOLD = {setting.variable for setting in PAGES_SETTINGS}
_SETTINGS = load(PAGES_SETTINGS, None, {name: value for name, value in os.environ.items() if name in _TOLD})


_WEEK = re.compile(r"\d{4}-W\d{2}\Z")


@st.cache_resource
def client() -> HttpClient:
    """Give the one client of this process; it is safe to share between sessions.

    Raises:
        UnreachableError: no server owns the directory.
        BadUseError: the token of the server cannot be read.

    """
    url, token = os.environ.get("TRUELOAD_PAGES_SERVER"), os.environ.get("TRUELOAD_PAGES_TOKEN")
    if url and token:
        return client_of(url, Path(token))
    data = Path(os.environ.get("TRUELOAD_DATA", "trueload-data"))
    found = find_server(data)
    if found is None:
        raise UnreachableError(f"{data}: no server is running for this directory")
    return found


@st.cache_data(ttl=_SETTINGS[CACHE_SECONDS], max_entries=_SETTINGS[CACHE_ENTRIES], show_spinner=False)
def _answer(who: Person, question: str, parameters: tuple[tuple[str, str], ...]) -> Document:
    """Answer as ``who`` may see it; who asks is part of what is cached."""
    whole = client()
    sees = whole if who.everything else whole.on_behalf_of(who.name, who.accounts)
    return sees.ask(question, dict(parameters))


def ask(question: str, parameters: Mapping[str, str]) -> Document:
    """Give the document that answers a question as the person of this session may see it, fresh or from the cache."""
    return _answer(_who(), question, tuple(sorted(parameters.items())))


def ask_as(login: str, question: str, parameters: Mapping[str, str]) -> Document:
    """Give the document that answers a question by somebody's own jobs alone.

    Raises:
        RefusedError: it is somebody else, and who looks does not see everything.

    """
    who = _who()
    if not (who.everything or login == who.name):
        raise RefusedError("These are somebody else's jobs.")
    return _answer(Person(login), question, tuple(sorted(parameters.items())))


def advice(action: str, asked: Mapping[str, object]) -> Document:
    """Keep or read what became of advice; a page offers it for advice that the person was told alone."""
    if action == "list":
        return _advice()
    if action == "mark":
        who = _who().name or "the person of this machine"
        sign_in.AUDIT.info("advice %s: %s by %s", asked.get("recommendation_id"), asked.get("state"), plain(who))
        _advice.clear()
    return client().advice(action, asked)


@st.cache_data(ttl=_SETTINGS[CACHE_SECONDS], max_entries=1, show_spinner=False)
def _advice() -> Document:
    return client().advice("list", {})


def _who() -> Person:
    """Give who this session is for: nobody is an operator by default, but for the one person of this machine."""
    return sign_in.person(_SETTINGS, _known_accounts)


def _known_accounts() -> Sequence[str]:
    """Give the accounts of the store, which the patterns of leads are held against."""
    found = _answer(ALONE, "waste", (("by", "account"),))
    return [key for row in rows(found, "rows") if (key := text(row, "key")) is not None]


def forget() -> None:
    """Drop all cached answers."""
    _answer.clear()
    _advice.clear()


def run() -> None:
    """Draw the menu, the period and the page that the address names."""
    st.set_page_config(page_title="trueload", page_icon=":material/speed:", layout="wide")
    who = None
    with explained():
        who = _who()
    if who is None:
        st.stop()
    found = pages()
    places: dict[str, st.Page] = {}
    period: dict[str, str] = {}
    context = PageContext(ask, period, _linker(places, period), ask_as, _who, advice)
    for index, page in enumerate(found):
        places[page.name] = st.Page(
            _body(page, context),
            title=page.title,
            icon=page.icon,
            url_path="" if index == 0 else page.name,
            default=index == 0,
        )
    sections: dict[str, list[st.Page]] = {}
    for page in found:
        sections.setdefault(page.section, []).append(places[page.name])
    # Streamlit serves the first page at "/" alone; its own address must lead there too.
    first = found[0]
    sections[first.section].append(
        st.Page(_body(first, context), title=first.title, url_path=first.name, visibility="hidden")
    )
    chosen = st.navigation(sections)
    target = sign_in.remembered() if who.name else None
    if target is not None and target[0] in places:
        st.switch_page(places[target[0]], query_params=target[1])
    period.update(_choose_period())
    sign_in.sign_out_button(who)
    chosen.run()


def _body(page: Page, context: PageContext) -> Callable[[], None]:
    def body() -> None:
        st.title(page.title)
        with explained():
            page.draw(context)

    body.__name__ = page.name
    return body


def _linker(places: Mapping[str, st.Page], period: Mapping[str, str]) -> Callable[[str, str, Mapping[str, str]], None]:
    def link(name: str, words: str, query: Mapping[str, str]) -> None:
        st.page_link(places[name], label=markdown(words), query_params={**period, **query})

    return link


@contextmanager
def explained() -> Iterator[None]:
    """Turn our own errors into one clear message; a server that is gone is looked up anew at the next try."""
    try:
        yield
    except (UnreachableError, StoreError) as error:
        client.clear()
        st.error(
            f"{markdown(str(error), 500)}\n\nStart it with `trueload up` or `trueload serve`, then reload this page."
        )
    except NotFoundError as error:
        st.warning(markdown(str(error), 500))
    except TrueloadError as error:
        st.error(markdown(str(error), 500))


def _choose_period() -> dict[str, str]:
    """Draw the period beside every page. What was chosen stands in the address, so that a link means the same to all.

    Dates are half-open, as everywhere: ``until`` is the first day left out.
    """
    with st.sidebar:
        st.subheader("Period")
        week = st.selectbox(
            "Week",
            _with_given(_weeks()),
            index=None,
            key="week",
            bind="query-params",
            placeholder="all, or as dated below",
        )
        since = st.date_input("From", None, key="since", bind="query-params", disabled=week is not None)
        until = st.date_input("To, not included", None, key="until", bind="query-params", disabled=week is not None)
        rung = st.selectbox(
            "Busy by",
            [str(rung) for rung in Rung],
            index=None,
            format_func=lambda rung: rung,
            key="rung",
            bind="query-params",
            placeholder="the best that covers enough",
            help="Which rung of the ladder counts as busy: " + ", ".join(RUNG_WORDS[str(rung)] for rung in Rung),
        )
    chosen = {"week": week} if week else {"since": since and since.isoformat(), "until": until and until.isoformat()}
    return {key: str(value) for key, value in {**chosen, "rung": rung}.items() if value}


def _with_given(weeks: list[str]) -> list[str]:
    """Give the weeks with the one in the address, which may be newer than the list, or outside the data."""
    given = st.query_params.get("week", "")
    return weeks if given in weeks or not _WEEK.match(given) else [given, *weeks]


def _weeks() -> list[str]:
    """Give the weeks between the first and the last of the data, newest first.

    None when the data cannot be reached, which the page itself says.
    """
    try:
        known = ask("waste", {})
        zone = zone_of(text(known, "zone") or "UTC")
    except TrueloadError:
        return []
    since, until = instant(text(known, "since")), instant(text(known, "until"))
    if since is None or until is None:
        return []
    return [name for name, _ in reversed(weeks_between(since.timestamp(), until.timestamp(), zone))]
