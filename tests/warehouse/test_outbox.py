"""No mail goes twice: claimed before it is sent, near and far, by several at once, whatever crashes in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.warehouse.test_server import Running
from warehouse import outbox, purge
from warehouse.client import HttpClient, LocalClient
from warehouse.contract.errors import BadUseError, NotFoundError
from warehouse.contract.settings import Settings
from warehouse.purge import Whom
from warehouse.store import Store, open_store

WEEK = {"report": "weekly/2026-W44", "audience": "user", "recipient": "alice"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Give an empty store."""
    opened = open_store(tmp_path / "data", create=True)
    yield opened
    opened.close()


def claim(store: Store, **other: object) -> dict[str, Any]:
    return outbox.act(store, "claim", {**WEEK, **other})


def finish(store: Store, mail: dict[str, Any], state: str) -> None:
    outbox.act(store, "finish", {"mail_id": mail["mail_id"], "state": state})


def states(store: Store) -> dict[str, str]:
    found: Any = outbox.act(store, "list", {})["mails"]
    return {row["recipient"]: row["state"] for row in found}


def test_a_mail_is_claimed_once(store: Store) -> None:
    mail = claim(store)
    assert (mail["granted"], mail["reason"]) == (True, None)
    assert claim(store)["granted"] is False
    finish(store, mail, "sent")
    assert claim(store)["reason"] == "already sent"
    assert claim(store, recipient="bob")["granted"] is True
    assert states(store) == {"alice": "sent", "bob": "sending"}


def test_of_many_who_claim_at_once_one_is_granted_it(store: Store) -> None:
    with ThreadPoolExecutor(8) as pool:
        granted = list(pool.map(lambda _: claim(store)["granted"], range(16)))
    assert granted.count(True) == 1


def test_one_that_failed_may_be_claimed_again(store: Store) -> None:
    finish(store, claim(store), "failed")
    assert claim(store)["granted"] is True


def test_what_a_crash_left_is_not_sent_again_until_a_person_says_so(tmp_path: Path) -> None:
    first = open_store(tmp_path / "data", create=True)
    mail = claim(first)
    first.close()
    again = open_store(tmp_path / "data")
    refused = claim(again)
    assert (refused["granted"], "--release" in refused["reason"]) == (False, True)
    outbox.act(again, "release", {"mail_id": mail["mail_id"]})
    assert claim(again)["granted"] is True
    again.close()


def test_nobody_gets_two_within_the_quiet_days(store: Store) -> None:
    finish(store, claim(store), "sent")
    later = {"report": "weekly/2026-W45", "quiet_days": 6}
    assert claim(store, **later)["reason"] == "had one a few days ago"
    assert states(store) == {"alice": "sent"} or claim(store, **later)["granted"] is False
    assert claim(store, report="weekly/2026-W45", quiet_days=0)["granted"] is True
    assert claim(store, **later, audience="lead")["granted"] is True


def test_who_wants_none_gets_none_until_they_do(store: Store) -> None:
    outbox.act(store, "refuse", {"recipient": "alice"})
    outbox.act(store, "refuse", {"recipient": "alice"})
    assert outbox.act(store, "list", {})["refusals"] == ["alice"]
    assert claim(store)["reason"] == "wants no mail"
    outbox.act(store, "accept", {"recipient": "alice"})
    assert claim(store)["granted"] is True


def test_what_was_kept_back_is_known_with_its_reason(store: Store) -> None:
    outbox.act(store, "suppress", {**WEEK, "reason": "below the floor"})
    found: Any = outbox.act(store, "list", {"report": WEEK["report"]})["mails"]
    assert [(row["state"], row["reason"]) for row in found] == [("suppressed", "below the floor")]
    assert outbox.act(store, "list", {"report": "weekly/2026-W45"})["mails"] == []
    assert claim(store)["granted"] is True
    outbox.act(store, "suppress", {**WEEK, "reason": "too late"})  # a claim stays a claim
    assert states(store) == {"alice": "sending"}


def test_a_purge_forgets_the_persons_mails_and_no_others(store: Store) -> None:
    for name in ("alice", "bob"):
        finish(store, claim(store, recipient=name), "sent")
        outbox.act(store, "refuse", {"recipient": name})
    rows: Any = purge.purge(store, Whom("user", "alice"), dry_run=True)["rows"]
    assert (rows["mail"], rows["mail_refusal"], len(states(store))) == (1, 1, 2)
    purge.purge(store, Whom("user", "alice"))
    assert states(store) == {"bob": "sent"}
    assert outbox.act(store, "list", {})["refusals"] == ["bob"]


@pytest.mark.parametrize("other", [{"recipient": ""}, {"report": 1}, {"quiet_days": -1}, {"quiet_days": "6"}])
def test_what_cannot_be_is_refused(store: Store, other: dict[str, object]) -> None:
    with pytest.raises(BadUseError):
        claim(store, **other)


def test_what_is_not_there_is_said(store: Store) -> None:
    with pytest.raises(BadUseError, match="no action 'send'; there are claim"):
        outbox.act(store, "send", {})
    with pytest.raises(NotFoundError, match="no mail 'x' that is being sent"):
        outbox.act(store, "finish", {"mail_id": "x", "state": "sent"})


def test_near_and_far_do_the_same(tmp_path: Path) -> None:
    server = Running(tmp_path / "data")
    try:
        clients: list[LocalClient | HttpClient] = [LocalClient(server.store, {}, Settings()), server.client()]
        makers: list[Callable[[], bool]] = [lambda one=one: bool(one.mail("claim", WEEK)["granted"]) for one in clients]  # type: ignore[misc]
        assert [make() for make in makers] == [True, False]
        with pytest.raises(NotFoundError):
            clients[1].mail("release", {"mail_id": "x"})
    finally:
        server.stop()
