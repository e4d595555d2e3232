"""The recommendations page ranks the changes worth making and says what was refused."""

from __future__ import annotations

from typing import Any

import pytest

from dashboards import session
from dashboards.person import Person


def test_each_recommendation_tells_its_range(show: Any) -> None:
    labels = [expander.label.replace("\\", "") for expander in show("recommendations").expander]
    assert labels[0].endswith("18.0 GPU-h (10.0 to 30.0)")
    assert labels[1].endswith("between 0.00 and 20.0 GPU-h")


def test_what_to_do_is_shown_as_written(show: Any) -> None:
    assert [code.value for code in show("recommendations").code] == ["#SBATCH --time=08:00:00", "run two at a time"]


def test_confidence_risks_and_evidence_are_told(show: Any, written: Any) -> None:
    text = written(show("recommendations")).replace("\\", "")
    assert "only a bound" in text
    assert "may break: the session ends and loses its memory" in text
    assert "evidence: 3 stretches without a process, 20 GPU-h" in text


def test_money_stands_only_where_there_is_a_price(show: Any, written: Any) -> None:
    text = written(show("recommendations")).replace("\\", "")
    assert text.count("**Money**") == 1
    assert "18 EUR" in text


def test_refusals_are_shown_with_what_they_need(show: Any) -> None:
    table = show("recommendations").dataframe[0].value
    assert list(table["Reason"]) == ["no data on processes"]
    assert list(table["Needs"]) == ["process samples"]


def test_a_refusal_leads_to_the_job_or_family_that_it_is_about(show: Any, documents: dict[str, Any]) -> None:
    job, family = {"kind": "job", "id": "c/1#0"}, {"kind": "family", "id": "f-1"}
    first = documents["recommend"]["refusals"][0]
    documents["recommend"] = {
        **documents["recommend"],
        "refusals": [{**first, "subject": one} for one in (job, family)],
    }
    table = show("recommendations").dataframe[0].value
    assert list(table["Page"]) == ["job?id=c%2F1%230", "families?family=f-1"]


def test_a_title_of_users_is_no_markup(show: Any) -> None:
    label = show("recommendations").expander[0].label
    assert "\\<script\\>" in label
    assert "\\:smile\\:" in label


def test_an_empty_store_says_what_to_do_next(show: Any, written: Any, documents: dict[str, Any]) -> None:
    documents["recommend"] = {"recommendations": [], "refusals": []}
    assert "no data yet" in written(show("recommendations"))


def test_a_link_of_a_mail_opens_its_advice_first(show: Any, documents: dict[str, Any]) -> None:
    named = documents["recommend"]["recommendations"][-1]["recommendation_id"]
    page = show("recommendations", {"id": named})
    assert [one.proto.expanded for one in page.expander][:2] == [True, False]
    assert named in [caption.value.replace("\\", "").removeprefix("id ") for caption in page.expander[0].caption]
    assert not any(one.proto.expanded for one in show("recommendations", {"id": "<b>nothing</b>"}).expander)


def _acted(client: Any) -> list[tuple[str, dict[str, object]]]:
    return [one for one in client.acted if one[0] != "list"]


def test_not_for_me_wants_a_reason_and_is_on_record(show: Any, client: Any, documents: dict[str, Any]) -> None:
    name = documents["recommend"]["recommendations"][0]["recommendation_id"]
    page = show("recommendations")
    assert page.button(key=f"reject_{name}").disabled
    page.text_input(key=f"reason_{name}").set_value("it is interactive").run()
    page.button(key=f"reject_{name}").click().run()
    (recorded, given), (marked, change) = _acted(client)
    assert (recorded, marked) == ("record", "mark")
    assert given["recommendations"][0]["recommendation_id"] == name  # type: ignore[index]
    assert change == {
        "recommendation_id": name,
        "state": "rejected",
        "quiet_days": 90.0,
        "reason": "it is interactive",
    }


def test_who_rejects_stands_before_the_reason(
    show: Any, client: Any, monkeypatch: Any, documents: dict[str, Any]
) -> None:
    monkeypatch.setattr(session, "_who", lambda: Person("amy", everything=True))
    name = documents["recommend"]["recommendations"][0]["recommendation_id"]
    page = show("recommendations")
    page.text_input(key=f"reason_{name}").set_value("no").run()
    page.button(key=f"reject_{name}").click().run()
    assert _acted(client)[-1][1]["reason"] == "amy: no"


def test_what_became_of_an_advice_is_shown(show: Any, documents: dict[str, Any], written: Any) -> None:
    name = documents["recommend"]["recommendations"][0]["recommendation_id"]
    known = {"recommendation_id": name, "state": "snoozed", "quiet_until_at": "2026-12-01T00:00:00Z"}
    documents["advice"] = {"recommendations": [known]}
    page = show("recommendations")
    assert page.expander[0].label.replace("\\", "").endswith("put off until 2026-12-01 00:00 UTC")


@pytest.mark.parametrize(("button", "state"), [("snooze", "snoozed"), ("done", "done")])
def test_one_press_puts_it_off_or_says_that_it_is_done(
    show: Any, client: Any, documents: dict[str, Any], button: str, state: str
) -> None:
    name = documents["recommend"]["recommendations"][0]["recommendation_id"]
    show("recommendations").button(key=f"{button}_{name}").click().run()
    assert _acted(client)[-1][1]["state"] == state
