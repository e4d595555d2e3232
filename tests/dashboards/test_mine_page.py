"""My view shows one person's own jobs: oneself, or anybody to who sees everything."""

from __future__ import annotations

from typing import Any

import pytest

from dashboards import session
from dashboards.person import Person
from warehouse.contract.errors import RefusedError


@pytest.fixture
def as_ben(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_who", lambda: Person("ben", ("ml",)))


@pytest.mark.usefixtures("as_ben")
def test_a_person_sees_the_own_view_whatever_the_address(show: Any, client: Any, written: Any) -> None:
    page = show("mine", {"user": "amy"})
    assert set(client.behalf) == {("ben", ())}
    assert not page.selectbox
    assert "You answer for ml" in written(page)


@pytest.mark.usefixtures("as_ben")
def test_nobody_asks_as_somebody_else(client: Any) -> None:
    with pytest.raises(RefusedError):
        session.ask_as("amy", "waste", {})
    assert client.behalf == []


def test_an_operator_chooses_whose_view(show: Any, client: Any, written: Any) -> None:
    assert show("mine").selectbox[0].options[:2] == ["amy", "ben"]
    page = show("mine", {"user": "amy"})
    assert page.selectbox[0].value == "amy"
    assert set(client.behalf) == {("amy", ())}
    assert "80\u202f% of the known time was used" in written(page)


def test_at_most_three_changes_are_asked_for(show: Any, documents: dict[str, Any], written: Any) -> None:
    first = documents["recommend"]["recommendations"][0]
    documents["recommend"]["recommendations"] = [{**first, "title": f"Change {at}"} for at in range(5)]
    page = show("mine", {"user": "amy"})
    assert [one.label.split(" · ")[0] for one in page.expander] == ["Change 0", "Change 1", "Change 2"]
    assert "and 2 more" in written(page)


def test_who_has_no_jobs_is_told(show: Any, documents: dict[str, Any], client: Any) -> None:
    page = show("mine", {"user": "amy"})
    assert page.metric
    client.documents["waste"] = {"gpu_seconds": {}, "rows": [{"key": "amy"}]}
    session.forget()
    assert "Nothing is known of jobs of amy" in show("mine", {"user": "amy"}).info[0].value
