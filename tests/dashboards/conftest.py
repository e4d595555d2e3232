"""Pages before a client that answers with documents written by hand; see documents/."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from dashboards import session
from warehouse.contract.errors import NotFoundError

DOCUMENTS = Path(__file__).parent / "documents"
RUN_SECONDS = 60


class FakeClient:
    """Answers every question with its document, and remembers what was asked."""

    def __init__(self, documents: dict[str, Any]) -> None:
        self.documents = documents
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.acted: list[tuple[str, dict[str, object]]] = []
        self.behalf: list[tuple[str, tuple[str, ...]]] = []

    def ask(self, question: str, parameters: Mapping[str, str]) -> dict[str, Any]:
        self.asked.append((question, dict(parameters)))
        answer = self.documents.get(question)
        if answer is None:
            raise NotFoundError(f"nothing to say on {question}")
        if isinstance(answer, Exception):
            raise answer
        return copy.deepcopy(answer)

    def on_behalf_of(self, name: str, accounts: Sequence[str] = ()) -> FakeClient:
        """Answer the same, and remember for whom."""
        self.behalf.append((name, tuple(accounts)))
        return self

    def advice(self, action: str, asked: Mapping[str, object]) -> dict[str, Any]:
        """Keep what was done, and give what a test lays down as known."""
        self.acted.append((action, dict(asked)))
        return copy.deepcopy(self.documents.get("advice") or {"recommendations": []})

    def asked_with(self, question: str) -> list[dict[str, str]]:
        return [parameters for name, parameters in self.asked if name == question]


@pytest.fixture
def documents() -> dict[str, Any]:
    """Give the documents written by hand, by question; a test may change its copy."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in DOCUMENTS.glob("*.json")}


@pytest.fixture
def client(documents: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeClient]:
    """Put a fake client in the place of the server, and forget what other tests were told."""
    fake = FakeClient(documents)
    monkeypatch.setattr(session, "find_server", lambda _data: fake)
    session.client.clear()
    session.forget()
    yield fake
    session.client.clear()
    session.forget()


def _script(name: str, period: dict[str, str]) -> None:
    import streamlit as st

    from dashboards import page, session

    def link(name: str, words: str, query: dict[str, str]) -> None:
        st.caption(f"link to {name} with {sorted(query.items())}: {words}")

    context = page.PageContext(session.ask, period, link, session.ask_as, session._who, session.advice)  # type: ignore[arg-type]
    with session.explained():
        next(one for one in page.pages() if one.name == name).draw(context)


Show = Callable[..., AppTest]


@pytest.fixture
def show(client: FakeClient) -> Show:
    """Give a function that runs one page, with a query and a period, and gives what it drew."""

    def run(name: str, query: Mapping[str, str] | None = None, period: Mapping[str, str] | None = None) -> AppTest:
        test = AppTest.from_function(_script, kwargs={"name": name, "period": dict(period or {})})
        for key, value in (query or {}).items():
            test.query_params[key] = value
        test.run(timeout=RUN_SECONDS)
        assert not test.exception, test.exception[0].stack_trace
        return test

    return run


@pytest.fixture
def metrics() -> Callable[[AppTest], dict[str, str]]:
    """Give a function that gives the metrics of a page by label."""

    def read(test: AppTest) -> dict[str, str]:
        return {metric.label: metric.value for metric in test.metric}

    return read


@pytest.fixture
def written() -> Callable[[AppTest], str]:
    """Give a function that gives all the Markdown of a page."""

    def read(test: AppTest) -> str:
        kinds = (test.markdown, test.caption, test.info, test.warning, test.error, test.subheader)
        return "\n".join(str(element.value) for kind in kinds for element in kind)

    return read
