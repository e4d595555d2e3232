"""The command ``recommendations``: advice that was given, and what became of it."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime
from time import time
from typing import TYPE_CHECKING, Any, Protocol

import click

from analysis import tables
from analysis.outcome import QUIET_DAYS, Later, Told, follow, judge_intervals, record
from warehouse.contract.model import Saving
from warehouse.contract.units import SECONDS_PER_DAY, iso
from warehouse.options import data_option, json_option, pass_composition

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from warehouse.client import Client, Composition, Document
    from warehouse.contract.settings import Settings

QUARTER_DAYS = 91
FOLLOW_DAYS = 7
"""Later work is that of the last week: shorter, and the work of a day decides."""


class Desk(Protocol):
    """A client that keeps advice."""

    def advice(self, action: str, asked: Mapping[str, object]) -> Document:
        """See ``warehouse.advice_desk``."""
        ...


@click.group("recommendations", invoke_without_command=True)
@click.pass_context
def recommendations_command(context: click.Context) -> None:
    """Advice that was given, and what became of it."""
    if context.invoked_subcommand is None:
        context.invoke(list_command)


@recommendations_command.command("list")
@click.option("--all", "everything", is_flag=True, help="Settled and quiet ones, too.")
@data_option
@json_option
@pass_composition
def list_command(composition: Composition, data: Path, *, everything: bool, as_json: bool) -> None:
    """Keep what is advised now, hold earlier advice against later work, and list it."""
    client = composition.open_client(data, False)  # noqa: FBT003 - a question creates no store
    try:
        document = bring_up_to_date(client, composition.settings(), time())
    finally:
        client.close()
    shown = document["recommendations"]
    if not everything and isinstance(shown, list):
        document["recommendations"] = [one for one in shown if not one["quiet"]]
    if as_json:
        click.echo(json.dumps(document, indent=2, allow_nan=False))
    else:
        tables.show(tables.outcomes_table(document))


def bring_up_to_date(client: Client, settings: Settings, now: float) -> Document:
    """Keep what is advised, find what was followed, and give all advice with the record of the last quarter."""
    desk: Any = client
    advised = client.ask("recommend", {})
    desk.advice("record", {"recommendations": _as_records(advised)})
    known: Any = desk.advice("list", {})
    _follow_up(client, desk, known["recommendations"], advised, settings)
    return outcomes_document(desk.advice("list", {}), now)


def _as_records(advised: Document) -> list[dict[str, object]]:
    found: Any = advised["recommendations"]
    edges = {f"{name}_at": _instant(advised[name]) for name in ("since", "until")}
    kept = ("recommendation_id", "remedy", "subject", "saving_gpu_seconds", "subject_gpu_seconds")
    return [{**edges, **{name: one[name] for name in kept}} for one in found]


def _follow_up(client: Client, desk: Desk, known: list[Any], advised: Document, settings: Settings) -> None:
    """Hold advice whose window ended at least a week before the last thing known against the last week."""
    until = _instant(advised["until"])
    since = until - FOLLOW_DAYS * SECONDS_PER_DAY
    old = [one for one in known if one["state"] not in ("adopted", "rejected") and _instant(one["until_at"]) <= since]
    if not old:
        return
    later: Any = client.ask("recommend", {"since": str(iso(since))})
    for one in old:
        account = later["family_gpu_seconds"].get(one["subject_id"], {})
        told = Told(
            *(one[name] for name in ("remedy", "likely_gpu_seconds", "allocated_gpu_seconds", "used_gpu_seconds"))
        )
        marked = one["recommendation_id"] in later["marked"]
        found = follow(told, Later(account.get("allocated"), account.get("used"), marked), settings)
        if found.adopted:
            desk.advice(
                "mark",
                {
                    "recommendation_id": one["recommendation_id"],
                    "state": "adopted",
                    "reason": found.reason,
                    "predicted_gpu_seconds": found.predicted,
                    "realised_gpu_seconds": found.realised,
                },
            )


def outcomes_document(kept: Document, now: float) -> Document:
    """Give all advice, whether it is quiet now, its changes, and the record of the last quarter as a sentence."""
    rows: Any = kept["recommendations"]
    for one in rows:
        quiet_until = one["quiet_until_at"]
        one["quiet"] = one["state"] in ("done", "adopted") or (quiet_until is not None and _instant(quiet_until) > now)
    quarter = [one for one in rows if _instant(one["first_told_at"]) > now - QUARTER_DAYS * SECONDS_PER_DAY]
    found = record(
        (one["state"] in ("adopted", "done"), one["predicted_gpu_seconds"], one["realised_gpu_seconds"])
        for one in quarter
    )
    return {
        "recommendations": rows,
        "outcomes": kept["outcomes"],
        "record": {
            "days": QUARTER_DAYS,
            "told": found.told,
            "adopted": found.adopted,
            "realised_ratio": found.realised_ratio,
            "sentence": found.sentence("the last quarter"),
            "intervals": _intervals(rows),
        },
    }


def _intervals(rows: list[Any]) -> dict[str, object] | None:
    """Hold the ranges of advice whose outcome is known against it, scaled to the work that they spoke of."""
    pairs: list[tuple[Saving, float]] = []
    for one in rows:
        likely, said, gave = (one[f"{name}_gpu_seconds"] for name in ("likely", "predicted", "realised"))
        if likely and said and gave is not None:
            saving = Saving(one["low_gpu_seconds"], likely, one["high_gpu_seconds"])
            pairs.append((saving, gave * likely / said))
    found = judge_intervals(pairs)
    return None if found is None else asdict(found)


def _instant(text: Any) -> float:
    return datetime.fromisoformat(str(text)).timestamp()


@recommendations_command.command("snooze")
@click.argument("id", metavar="ID")
@click.option("--days", type=click.FloatRange(0.0, 3660.0), default=14.0, show_default=True, help="How long.")
@data_option
@json_option
@pass_composition
def snooze_command(composition: Composition, data: Path, *, days: float, as_json: bool, **named: str) -> None:
    """Be quiet about an advice for some days."""
    asked = {"recommendation_id": named["id"], "state": "snoozed", "quiet_days": days}
    _mark(composition, data, asked, as_json=as_json)


@recommendations_command.command("reject")
@click.argument("id", metavar="ID")
@click.option("--reason", required=True, help="Why: it helps to give better advice.")
@data_option
@json_option
@pass_composition
def reject_command(composition: Composition, data: Path, *, reason: str, as_json: bool, **named: str) -> None:
    """Say that an advice is not followed, and why; it is told again after ``outcome.quiet_days``."""
    days = composition.settings()[QUIET_DAYS]
    asked = {"recommendation_id": named["id"], "state": "rejected", "reason": reason, "quiet_days": days}
    _mark(composition, data, asked, as_json=as_json)


@recommendations_command.command("done")
@click.argument("id", metavar="ID")
@data_option
@json_option
@pass_composition
def done_command(composition: Composition, data: Path, *, as_json: bool, **named: str) -> None:
    """Say that an advice was followed; later work shows what it gave."""
    _mark(composition, data, {"recommendation_id": named["id"], "state": "done"}, as_json=as_json)


@recommendations_command.command("seen")
@click.argument("id", metavar="ID")
@data_option
@json_option
@pass_composition
def seen_command(composition: Composition, data: Path, *, as_json: bool, **named: str) -> None:
    """Say that somebody has read an advice."""
    _mark(composition, data, {"recommendation_id": named["id"], "state": "seen"}, as_json=as_json)


def _mark(composition: Composition, data: Path, asked: Mapping[str, object], *, as_json: bool) -> None:
    client: Any = composition.open_client(data, False)  # noqa: FBT003 - an answer creates no store
    try:
        document = client.advice("mark", asked)
    finally:
        client.close()
    if as_json:
        click.echo(json.dumps(document, indent=2))
    else:
        tables.show(tables.facts_text(document))
