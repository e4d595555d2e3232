"""Advice that was given, and what became of it: ``recommendation`` as it stands, ``outcome`` change by change.

The numbers of an advice are those of the first time that it was told: what was promised is what it is held against.
"""

from __future__ import annotations

import time
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from warehouse.contract.errors import BadUseError, NotFoundError
from warehouse.contract.units import SECONDS_PER_DAY, iso

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from warehouse.client import Document
    from warehouse.store import Store, Transaction

LONGEST_WORDS = 1000
MOST_AT_ONCE = 10_000
_AT = "make_timestamp((?::DOUBLE * 1e6)::BIGINT)"
_INSTANTS = ("since_at", "until_at", "quiet_until_at", "first_told_at", "last_told_at")


class AdviceState(StrEnum):
    """What became of an advice. ``done``: somebody says so; ``adopted``: later work shows it."""

    OPEN = "open"
    SEEN = "seen"
    SNOOZED = "snoozed"
    REJECTED = "rejected"
    DONE = "done"
    ADOPTED = "adopted"


def act(store: Store, action: str, asked: Mapping[str, object]) -> Document:
    """Do one of ``ACTIONS``.

    Raises:
        BadUseError: no such action, or something asked for that cannot be used.
        NotFoundError: there is no such advice.

    """
    if action not in ACTIONS:
        raise BadUseError(f"no action {action!r}; there are {', '.join(ACTIONS)}")
    return ACTIONS[action](store, asked)


def _record(store: Store, asked: Mapping[str, object]) -> Document:
    """Keep advice that was told: new ones as they are, known ones by the day on which they were told last."""
    given = asked.get("recommendations")
    if not isinstance(given, list) or len(given) > MOST_AT_ONCE:
        raise BadUseError(f"recommendations: expected a list of at most {MOST_AT_ONCE}")
    now = time.time()
    rows = [_row(one) for one in given]
    known = {
        str(row["recommendation_id"]): float(row["last_told_at"])
        for row in store.read(
            "SELECT recommendation_id, epoch(last_told_at) AS last_told_at FROM recommendation"
        ).to_pylist()
    }
    new = [row for row in rows if row[0] not in known]
    again = [row[0] for row in rows if row[0] in known and now - known[row[0]] > SECONDS_PER_DAY]
    if new or again:
        with store.transaction() as transaction:
            for row in new:
                transaction.execute(
                    f"INSERT INTO recommendation VALUES (?, ?, ?, ?, ?, {_AT}, {_AT}, ?, ?, ?, ?, ?, 'open', NULL, "
                    f"NULL, {_AT}, {_AT}, NULL, NULL)",
                    [*row, now, now],
                )
                _note(transaction, str(row[0]), AdviceState.OPEN, None, None, now)
            for name in again:
                transaction.execute(
                    f"UPDATE recommendation SET last_told_at = {_AT} WHERE recommendation_id = ?", [now, name]
                )
    return {"new": len(new), "known": len(rows) - len(new)}


def _row(one: object) -> list[Any]:
    if not isinstance(one, dict):
        raise BadUseError("recommendations: expected objects as `trueload recommend --json` gives them")
    try:
        subject, saving = one["subject"], one["saving_gpu_seconds"]
        account = one.get("subject_gpu_seconds") or {}
        row = [one["recommendation_id"], one["remedy"], subject["kind"], subject["id"]]
        words = [_word(value) for value in row]
        numbers = [
            *(float(one[name]) for name in ("since_at", "until_at")),
            *(None if saving[name] is None else float(saving[name]) for name in ("low", "likely", "high")),
            *(None if account.get(name) is None else float(account[name]) for name in ("allocated", "used")),
        ]
    except (KeyError, TypeError, ValueError) as cause:
        raise BadUseError(f"recommendations: {cause!r} is missing or no number") from cause
    return [*words, subject["id"] if subject["kind"] == "job" else None, *numbers]


def _mark(store: Store, asked: Mapping[str, object]) -> Document:
    """Say what became of an advice; snoozed and rejected ones are quiet for some days."""
    name, state = _word(asked.get("recommendation_id")), asked.get("state")
    if not isinstance(state, str) or state not in set(AdviceState):
        raise BadUseError(f"state: expected one of {', '.join(AdviceState)}")
    reason = asked.get("reason")
    if state == AdviceState.REJECTED and not reason:
        raise BadUseError("reason: an advice is rejected with a reason, which helps to give better ones")
    words = None if reason is None else _word(reason)
    days = asked.get("quiet_days")
    if days is not None and (isinstance(days, bool) or not isinstance(days, (int, float)) or not 0 <= days <= 3660):  # noqa: PLR2004
        raise BadUseError("quiet_days: expected a number of days from 0 to 3660")
    figures = tuple(_figure(asked, key) for key in ("predicted_gpu_seconds", "realised_gpu_seconds"))
    now = time.time()
    until = None if days is None else now + days * SECONDS_PER_DAY
    with store.transaction() as transaction:
        if not transaction.execute("SELECT 1 FROM recommendation WHERE recommendation_id = ?", [name]):
            raise NotFoundError(f"no advice {name!r}; `trueload recommendations list` lists them")
        transaction.execute(
            f"UPDATE recommendation SET state = ?, reason = ?, quiet_until_at = {_AT}, predicted_gpu_seconds = "
            "coalesce(?, predicted_gpu_seconds), realised_gpu_seconds = coalesce(?, realised_gpu_seconds) "
            "WHERE recommendation_id = ?",
            [state, words, until, *figures, name],
        )
        _note(transaction, name, AdviceState(state), words, figures, now)
    return {"recommendation_id": name, "state": state}


def _note(
    transaction: Transaction,
    name: str,
    state: AdviceState,
    reason: str | None,
    figures: tuple[float | None, ...] | None,
    at: float,
) -> None:
    transaction.execute(
        f"INSERT INTO outcome SELECT recommendation_id, job_key, {_AT}, ?, ?, ?, ? FROM recommendation "
        "WHERE recommendation_id = ?",
        [at, state, reason, *(figures or (None, None)), name],
    )


def _list(store: Store, _asked: Mapping[str, object]) -> Document:
    """Give all advice as it stands, the latest first, and every change."""
    instants = ", ".join(f"epoch({name}) AS {name}" for name in _INSTANTS)
    rows = store.read(
        f"SELECT * REPLACE ({instants}) FROM recommendation ORDER BY first_told_at DESC, recommendation_id"
    ).to_pylist()
    changes = store.read(
        "SELECT * REPLACE (epoch(happened_at) AS happened_at) FROM outcome ORDER BY happened_at, recommendation_id"
    ).to_pylist()
    return {
        "recommendations": [
            {name: iso(value) if name in _INSTANTS else value for name, value in row.items()} for row in rows
        ],
        "outcomes": [{**row, "happened_at": iso(row["happened_at"])} for row in changes],
    }


def _word(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_WORDS:
        raise BadUseError(f"expected a text of 1 to {LONGEST_WORDS} characters, not {str(value)[:50]!r}")
    return value


def _figure(asked: Mapping[str, object], name: str) -> float | None:
    value = asked.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BadUseError(f"{name}: expected GPU-seconds")
    return float(value)


ACTIONS: Mapping[str, Callable[[Store, Mapping[str, object]], Document]] = {
    "record": _record,
    "mark": _mark,
    "list": _list,
}
