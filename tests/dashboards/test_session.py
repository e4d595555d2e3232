"""The frame around the pages: menu, period in the address, cache, and errors in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from dashboards import session
from dashboards.page import pages
from warehouse.contract.errors import UnreachableError

RUN_SECONDS = 60


@pytest.fixture
def app(repository: Path, client: Any) -> AppTest:
    return AppTest.from_file(str(repository / "dashboards" / "app.py"), default_timeout=RUN_SECONDS)


def test_the_app_opens_on_the_fleet(app: AppTest) -> None:
    app.run()
    assert not app.exception
    assert [title.value for title in app.title] == ["Fleet"]


def test_a_week_in_the_address_is_asked_for(app: AppTest, client: Any) -> None:
    app.query_params["week"] = "2026-W44"
    app.query_params["rung"] = "engine_active"
    app.run()
    assert client.asked_with("fleet") == [{"week": "2026-W44", "rung": "engine_active"}]


def test_a_week_outside_the_data_is_asked_for_too(app: AppTest, client: Any) -> None:
    app.query_params["week"] = "2020-W02"
    app.run()
    assert client.asked_with("fleet") == [{"week": "2020-W02"}]


def test_dates_in_the_address_are_asked_for(app: AppTest, client: Any) -> None:
    app.query_params["since"] = "2026-10-26"
    app.query_params["until"] = "2026-10-28"
    app.run()
    assert client.asked_with("fleet") == [{"since": "2026-10-26", "until": "2026-10-28"}]


def test_the_newest_week_stands_first(app: AppTest, documents: dict[str, Any]) -> None:
    documents["waste"].update(since="2026-10-25T00:00:00Z", until="2026-10-26T00:00:01Z")
    app.run()
    assert app.sidebar.selectbox[0].options == ["2026-W44", "2026-W43"]


def test_the_same_question_is_asked_once(app: AppTest, client: Any) -> None:
    app.run()
    app.run()
    assert len(client.asked_with("fleet")) == 1


def test_a_server_that_is_gone_is_one_message_with_what_to_do(app: AppTest, documents: dict[str, Any]) -> None:
    for question in documents:
        documents[question] = UnreachableError("http://127.0.0.1:8411: the server does not answer")
    app.run()
    assert not app.exception
    assert len(app.error) == 1
    assert "does not answer" in app.error[0].value
    assert "trueload serve" in app.error[0].value


def test_a_server_that_comes_back_is_found(app: AppTest, documents: dict[str, Any]) -> None:
    fleet, documents["fleet"] = documents["fleet"], UnreachableError("gone")
    app.run()
    documents["fleet"] = fleet
    app.run()
    assert not app.error
    assert app.metric


def test_no_server_for_the_directory_is_one_message(app: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "find_server", lambda _data: None)
    app.run()
    assert "no server is running" in app.error[0].value


def test_every_page_has_its_place_and_its_section() -> None:
    found = pages()
    assert found[0].name == "fleet"
    assert len({page.order for page in found}) == len(found)
    assert all(page.icon.startswith(":material/") and page.section for page in found)
