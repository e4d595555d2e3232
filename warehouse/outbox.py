"""Which mails went out. One is claimed before it is sent: after a crash nobody gets the same mail twice.

A mail that was claimed and of which nothing was heard again may have gone out or not. It is never sent again by itself:
``list`` shows it as ``sending``, and ``release`` lets the next run send it.
"""

from __future__ import annotations

import hashlib
import json
import time
from enum import StrEnum
from typing import TYPE_CHECKING

from warehouse.contract.errors import BadUseError, NotFoundError
from warehouse.contract.units import SECONDS_PER_DAY, iso

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from warehouse.client import Document
    from warehouse.store import Store, Transaction

LONGEST_WORDS = 1000
_AT = "make_timestamp((?::DOUBLE * 1e6)::BIGINT)"


class MailState(StrEnum):
    """How a mail stands: claimed and not heard of, sent, refused by the mail server, or not sent on purpose."""

    SENDING = "sending"
    SENT = "sent"
    FAILED = "failed"
    SUPPRESSED = "suppressed"


def mail_id(report: str, audience: str, recipient: str) -> str:
    """Give the id of a mail: the same for the same report to the same person."""
    return hashlib.sha256(json.dumps([report, audience, recipient]).encode()).hexdigest()[:16]


def act(store: Store, action: str, asked: Mapping[str, object]) -> Document:
    """Do one of ``ACTIONS``.

    Raises:
        BadUseError: no such action, or something asked for that cannot be used.
        NotFoundError: there is no such mail.

    """
    if action not in ACTIONS:
        raise BadUseError(f"no action {action!r}; there are {', '.join(ACTIONS)}")
    return ACTIONS[action](store, asked)


def _claim(store: Store, asked: Mapping[str, object]) -> Document:
    """Claim a mail: ``granted`` says whether it may be sent now, ``reason`` why not."""
    report, audience, recipient = (_text(asked, name) for name in ("report", "audience", "recipient"))
    quiet_days = asked.get("quiet_days", 0)
    if isinstance(quiet_days, bool) or not isinstance(quiet_days, (int, float)) or not 0 <= quiet_days <= 366:  # noqa: PLR2004
        raise BadUseError("quiet_days: expected a number of days from 0 to 366")
    number, now = mail_id(report, audience, recipient), time.time()
    with store.transaction() as transaction:
        reason = _why_not(transaction, number, audience, recipient, now - quiet_days * SECONDS_PER_DAY)
        if reason is None:
            _put(transaction, (number, report, audience, recipient), MailState.SENDING, None, now)
        elif not _state(transaction, number):
            _put(transaction, (number, report, audience, recipient), MailState.SUPPRESSED, reason, now)
    return {"mail_id": number, "granted": reason is None, "reason": reason}


def _why_not(transaction: Transaction, number: str, audience: str, recipient: str, quiet_since_at: float) -> str | None:
    state = _state(transaction, number)
    if state == MailState.SENT:
        return "already sent"
    if state == MailState.SENDING:
        return "claimed by a run that said nothing more: it may have gone out; `trueload report mails --release ID`"
    if transaction.execute("SELECT 1 FROM mail_refusal WHERE recipient = ?", [recipient]):
        return "wants no mail"
    newer = "SELECT 1 FROM mail WHERE audience = ? AND recipient = ? AND state = 'sent' AND changed_at > "
    if transaction.execute(f"{newer}{_AT} LIMIT 1", [audience, recipient, quiet_since_at]):
        return "had one a few days ago"
    return None


def _suppress(store: Store, asked: Mapping[str, object]) -> Document:
    """Note a mail that was not sent on purpose, with the reason."""
    report, audience, recipient, reason = (_text(asked, name) for name in ("report", "audience", "recipient", "reason"))
    number = mail_id(report, audience, recipient)
    with store.transaction() as transaction:
        if _state(transaction, number) in (None, MailState.SUPPRESSED):
            _put(transaction, (number, report, audience, recipient), MailState.SUPPRESSED, reason, time.time())
    return {"mail_id": number}


def _finish(store: Store, asked: Mapping[str, object]) -> Document:
    """Say what became of a claimed mail: ``sent``, or ``failed`` for a reason; a failed one may be claimed again."""
    number, state = _text(asked, "mail_id"), asked.get("state")
    if state not in (MailState.SENT, MailState.FAILED):
        raise BadUseError("state: expected sent or failed")
    reason = asked.get("reason")
    return _move(store, number, str(state), str(reason)[:LONGEST_WORDS] if reason else None)


def _release(store: Store, asked: Mapping[str, object]) -> Document:
    """Let a mail be sent again that was claimed and of which nothing was heard."""
    return _move(store, _text(asked, "mail_id"), MailState.FAILED, "released by an operator")


def _move(store: Store, number: str, state: str, reason: str | None) -> Document:
    with store.transaction() as transaction:
        if _state(transaction, number) != MailState.SENDING:
            raise NotFoundError(f"no mail {number!r} that is being sent; `trueload report mails` lists them")
        transaction.execute(
            f"UPDATE mail SET state = ?, reason = ?, changed_at = {_AT} WHERE mail_id = ?",
            [state, reason, time.time(), number],
        )
    return {"mail_id": number, "state": state}


def _list(store: Store, asked: Mapping[str, object]) -> Document:
    """Give all mails, the latest first, or those of one report; and who wants none."""
    report = asked.get("report")
    found = store.read(
        "SELECT mail_id, report, audience, recipient, state, reason, epoch(changed_at) AS changed_at FROM mail "
        "WHERE ? IS NULL OR report = ? ORDER BY mail.changed_at DESC, recipient",
        [report, report],
    ).to_pylist()
    refusals = store.read("SELECT recipient FROM mail_refusal ORDER BY recipient").to_pylist()
    return {
        "mails": [{**row, "changed_at": iso(row["changed_at"])} for row in found],
        "refusals": [row["recipient"] for row in refusals],
    }


def _refuse(store: Store, asked: Mapping[str, object]) -> Document:
    """Send somebody no mails from now on."""
    recipient = _text(asked, "recipient")
    with store.transaction() as transaction:
        transaction.execute("DELETE FROM mail_refusal WHERE recipient = ?", [recipient])
        transaction.execute(f"INSERT INTO mail_refusal VALUES (?, {_AT})", [recipient, time.time()])
    return {"recipient": recipient, "wants_mail": False}


def _accept(store: Store, asked: Mapping[str, object]) -> Document:
    """Send somebody mails again."""
    recipient = _text(asked, "recipient")
    with store.transaction() as transaction:
        transaction.execute("DELETE FROM mail_refusal WHERE recipient = ?", [recipient])
    return {"recipient": recipient, "wants_mail": True}


def _text(asked: Mapping[str, object], name: str) -> str:
    value = asked.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_WORDS:
        raise BadUseError(f"{name}: expected a text of 1 to {LONGEST_WORDS} characters")
    return value


def _state(transaction: Transaction, number: str) -> str | None:
    rows = transaction.execute("SELECT state FROM mail WHERE mail_id = ?", [number])
    return str(rows[0][0]) if rows else None


def _put(
    transaction: Transaction, mail: tuple[str, str, str, str], state: MailState, reason: str | None, at: float
) -> None:
    transaction.execute("DELETE FROM mail WHERE mail_id = ?", [mail[0]])
    transaction.execute(f"INSERT INTO mail VALUES (?, ?, ?, ?, ?, ?, {_AT})", [*mail, state, reason, at])


ACTIONS: Mapping[str, Callable[[Store, Mapping[str, object]], Document]] = {
    "claim": _claim,
    "finish": _finish,
    "suppress": _suppress,
    "release": _release,
    "list": _list,
    "refuse": _refuse,
    "accept": _accept,
}
