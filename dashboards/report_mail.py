"""Commands about the mails of the weekly report: send a week's, list what went out, and who wants none."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table
from rich.text import Text

from dashboards.document import rows, text, texts
from dashboards.text import plain
from dashboards.units import clock
from warehouse.contract.errors import BadUseError, TrueloadError
from warehouse.options import data_option, json_option, pass_composition

if TYPE_CHECKING:
    from warehouse.client import Composition, Document, HttpClient, LocalClient


@dataclass(frozen=True, slots=True)
class Where:
    """Where a report asks: the store of a directory, through its server if one runs, or a server at an address."""

    data: Path
    url: str | None = None
    token_file: Path | None = None

    def open(self, composition: Composition) -> LocalClient | HttpClient:
        """Reach it.

        Raises:
            BadUseError: an address without a token's file or the other way round, or no token in it.
            StoreError: there is no store.

        """
        from warehouse.client import client_of, open_client

        if self.url is not None and self.token_file is not None:
            return client_of(self.url, self.token_file)
        if self.url is not None or self.token_file is not None:
            raise BadUseError("--server and --token-file go together")
        return open_client(self.data, composition.answers(), composition.settings())


def send_week(composition: Composition, where: Where, asked: dict[str, str], *, dry_run: bool, any_day: bool) -> None:
    """Send a week's reports to everybody whom the settings name, and say what became of each.

    Raises:
        BadUseError: the settings cannot be used.
        TrueloadError: some mail could not be sent.

    """
    from analysis.settings import REPORT_ZONE
    from analysis.window import zone_of
    from dashboards.report import sending

    settings = composition.settings()
    today = datetime.now(zone_of(settings[REPORT_ZONE] or "UTC")).date()
    if not (dry_run or any_day or sending.is_sending_day(today, settings)):
        click.echo(f"{today} is a day off ([mail] work_days, holidays): nothing is sent; --any-day sends all the same")
        return
    with ExitStack() as stack:
        client = where.open(composition)
        stack.callback(client.close)
        hand_over = None if dry_run else stack.enter_context(sending.smtp(settings))
        counts = sending.Run(client, settings, hand_over, lambda line: click.echo(plain(line, 500))).week(asked)
    click.echo(
        ", ".join(f"{count} {word}" for word, count in sorted(counts.items())) or "nobody to write to: see [mail]"
    )
    if counts["failed"] or counts["uncertain"]:
        raise TrueloadError("some mails did not go out as they should; `trueload report mails` lists them")


def _mail(composition: Composition, data: Path, action: str, asked: dict[str, object]) -> Document:
    client = Where(data).open(composition)
    try:
        return client.mail(action, asked)
    finally:
        client.close()


@click.command("mails")
@data_option
@click.option("--week", help="Only those of this ISO week.")
@click.option("--release", "mail_id", help="Let the next run send this mail, of which a crash left nobody sure.")
@json_option
@pass_composition
def mails_command(
    composition: Composition, data: Path, week: str | None, mail_id: str | None, *, as_json: bool
) -> None:
    """List the reports that went out by mail, those kept back and why, and who wants none."""
    if mail_id is not None:
        _mail(composition, data, "release", {"mail_id": mail_id})
        click.echo(f"{mail_id}: the next run sends it")
        return
    document = _mail(composition, data, "list", {"report": f"weekly/{week}" if week else None})
    if as_json:
        click.echo(json.dumps(document, indent=2))
        return
    table = Table("id", "report", "for", "state", "when")
    for row in rows(document, "mails"):
        state, reason = text(row, "state"), text(row, "reason")
        words = (
            text(row, "mail_id"),
            text(row, "report"),
            f"{text(row, 'audience')} {plain(text(row, 'recipient'))}",
            f"{state}: {plain(reason)}" if reason else state,
            clock(text(row, "changed_at")),
        )
        table.add_row(*(Text(str(word)) for word in words))
    table.columns[0].no_wrap = True
    from rich.console import Console

    Console(highlight=False).print(table)
    if refusals := texts(document, "refusals"):
        click.echo("want no mail: " + ", ".join(plain(name) for name in refusals))


@click.command("unsubscribe")
@data_option
@click.argument("login")
@click.option("--undo", is_flag=True, help="Send them mails again.")
@pass_composition
def unsubscribe_command(composition: Composition, data: Path, login: str, *, undo: bool) -> None:
    """Send somebody no more reports."""
    if not login:
        raise BadUseError("name the login, or an operator's address")
    _mail(composition, data, "accept" if undo else "refuse", {"recipient": login})
    click.echo(f"{plain(login)} gets {'mails again' if undo else 'no more mails'}")
