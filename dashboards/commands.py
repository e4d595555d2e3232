"""Commands of the dashboards: ``up`` and ``report``."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dashboards import report_mail
from dashboards.advice import alike, without_alternatives
from dashboards.document import Row, rows, text
from dashboards.settings import PAGES_PORT, TOP_FINDINGS
from warehouse.contract.errors import BadUseError, TrueloadError
from warehouse.contract.identity import IDENTITY_FILE, read_directory
from warehouse.options import data_option, json_option, pass_composition

if TYPE_CHECKING:
    from warehouse.client import Composition, Document

SERVER_PORT_SETTING = "server.port"
WIDE = 100


@click.command("up")
@data_option
@click.option(
    "--demo/--no-demo",
    "demo_wanted",
    default=None,
    help="Play a made-up cluster, or never do; default: play it where there is no GPU and no data yet.",
)
@click.option("--port", type=click.IntRange(0, 65535), help="Port of the server; default: setting server.port.")
@click.option("--pages-port", type=click.IntRange(1, 65535), help="Port of the pages; default: setting pages.port.")
@click.option("--once", is_flag=True, help="No pages: collect for a short while, analyse, print the findings, exit.")
@json_option
@pass_composition
def up_command(
    composition: Composition,
    data: Path,
    demo_wanted: bool | None,
    port: int | None,
    pages_port: int | None,
    once: bool,
    as_json: bool,
) -> None:
    """Start everything here: server, pages and, without a GPU, a demo cluster. Ctrl-C ends it all.

    Where `trueload serve` owns the directory already, its pages alone are started.
    """
    from dashboards import up
    from warehouse.client import find_server

    if as_json and not once:
        raise BadUseError("--json prints one document and exits, so it goes with --once")
    settings = composition.settings()
    with_demo, with_agent = up.choose(data, demo_wanted=demo_wanted, driver=up.has_driver())
    beside = find_server(data) is not None
    if beside and (demo_wanted or port is not None):
        raise BadUseError(
            f"{data}: a server owns it already: without --demo and --port its pages are shown; or stop it"
        )
    chosen_port = _setting_port(composition) if port is None else port
    plan = up.Plan(
        data=data,
        with_demo=with_demo and not beside,
        with_agent=with_agent and not beside,
        port=chosen_port if not once or port is not None else 0,
        pages_port=None if once else pages_port or settings[PAGES_PORT],
        beside=beside,
    )

    def answer() -> Document:
        return _ask(composition, data, "recommend", {})

    def show(document: Document, url: str | None) -> None:
        if as_json:
            click.echo(json.dumps(document, indent=2, allow_nan=False))
        else:
            _print_findings(document, settings[TOP_FINDINGS])
        if url is not None:
            click.echo(f"\nPages   {url}\nData    {data}\nCtrl-C ends it.", err=as_json)

    up.run(plan, settings, lambda words: click.echo(f"{words} ...", err=True), answer, show)


@click.command("pages")
@data_option
@click.option("--server", "url", help="The server's URL, where it does not run on this machine; with --token-file.")
@click.option("--token-file", type=click.Path(dir_okay=False, path_type=Path), help="File with an operator's token.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), help="Port of the pages; default: setting pages.port.")
@pass_composition
def pages_command(
    composition: Composition, data: Path, url: str | None, token_file: Path | None, host: str, port: int | None
) -> None:
    """The pages alone, until they are ended. Who may see what is settled by the settings [sign_in]."""
    from dashboards import serving

    if (url is None) != (token_file is None):
        raise BadUseError("--server and --token-file go together")
    settings = composition.settings()
    serving.check(host, settings)
    source = serving.Source(data) if url is None else serving.Source(None, url, token_file)
    arguments = serving.command(host, port or settings[PAGES_PORT], settings)
    # In the place of this process, so that a supervisor's signals reach the pages themselves.
    os.execve(arguments[0], arguments, {**os.environ, **serving.environment(source, settings)})  # noqa: S606 - no shell


def _setting_port(composition: Composition) -> int:
    setting = next(one for one in composition.registry() if one.name == SERVER_PORT_SETTING)
    value = composition.settings().values.get(setting.name, setting.default)
    if not isinstance(value, int):
        raise BadUseError(f"{SERVER_PORT_SETTING}: {value!r} is no port")
    return value


def _ask(composition: Composition, data: Path, question: str, parameters: dict[str, str]) -> Document:
    client = composition.open_client(data, False)  # noqa: FBT003 - a question creates no store
    try:
        return client.ask(question, parameters)
    finally:
        client.close()


def _print_findings(document: Row, top: int) -> None:
    found = alike(without_alternatives(rows(document, "recommendations")))[:top]
    console = Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=WIDE)
    if not found:
        console.print("No findings yet: nothing was held idle that a change would give back.")
        return
    table = Table("", "finding", "would have saved", title="Top findings", title_justify="left")
    table.columns[2].justify = "right"
    for place, one in enumerate(found, start=1):
        table.add_row(str(place), Text(one.title), one.saving)
    console.print(table)


@click.group("report")
def report_command() -> None:
    """The weekly report."""


report_command.add_command(report_mail.mails_command)
report_command.add_command(report_mail.unsubscribe_command)


@report_command.command("weekly")
@data_option
@click.option("--server", "url", help="The server's URL, where it does not run on this machine; with --token-file.")
@click.option("--token-file", type=click.Path(dir_okay=False, path_type=Path), help="File with an operator's token.")
@click.option("--week", help="ISO week such as 2026-W44; default: the last complete week that has data.")
@click.option(
    "--format",
    "format_name",
    type=click.Choice(("html", "pdf", "md", "txt", "json")),
    default="html",
    show_default=True,
    help="Kind of file.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write; default: standard output.",
)
@click.option(
    "--audience",
    type=click.Choice(("operator", "lead", "user")),
    default="operator",
    show_default=True,
    help="For whom: the whole cluster, the accounts that somebody answers for, or one person's own jobs.",
)
@click.option("--name", help="With --audience lead or user: whose report, by login.")
@click.option("--mail", is_flag=True, help="Send it to everybody whom the settings [mail] name, each once.")
@click.option("--dry-run", is_flag=True, help="With --mail: say who would get what, and send nothing.")
@click.option("--any-day", is_flag=True, help="With --mail: send on a day off too.")
@click.option("--pseudonyms", is_flag=True, help="Show pseudonyms for people and accounts, to pass the report on.")
@pass_composition
def weekly_command(
    composition: Composition,
    data: Path,
    week: str | None,
    format_name: str,
    out: Path | None,
    audience: str,
    name: str | None,
    *,
    url: str | None,
    token_file: Path | None,
    mail: bool,
    dry_run: bool,
    any_day: bool,
    pseudonyms: bool,
) -> None:
    """One week in one document: what was held, what was used, what to change."""
    if (name is None) != (audience == "operator"):
        raise BadUseError("--name goes with --audience lead or user, and names the login")
    where = report_mail.Where(data, url, token_file)
    asked = {"week": week} if week else {}
    if mail or dry_run:
        if name is not None or out is not None or pseudonyms:
            raise BadUseError("--mail sends to everybody whom the settings [mail] name; without --name, --out and such")
        report_mail.send_week(composition, where, asked, dry_run=dry_run, any_day=any_day)
        return
    from dashboards.report.sending import report_limits
    from dashboards.report.weekly import render

    asked |= {"pseudonyms": "yes"} if pseudonyms else {}
    document = _weekly(composition, where, {**asked, "audience": audience}, name)
    limits = report_limits(composition.settings())
    content = render(document, "html" if format_name == "pdf" else format_name, limits).encode("utf-8", "replace")
    if format_name == "pdf":
        from dashboards.report.pdf import to_pdf

        content = to_pdf(content.decode())
    if out is None:
        click.echo(content, nl=False)
        return
    try:
        out.write_bytes(content)
    except OSError as cause:
        raise TrueloadError(f"{out}: cannot be written ({cause.strerror}); name another file with --out") from cause
    click.echo(f"wrote {out}", err=True)


def _weekly(composition: Composition, where: report_mail.Where, asked: dict[str, str], name: str | None) -> Document:
    """Ask for a week: everything, or what somebody may see of it."""
    client = where.open(composition)
    try:
        if name is None:
            return client.ask("weekly", asked)
        directory = read_directory(composition.settings()[IDENTITY_FILE])
        accounts = directory.leads.get(name, ()) if asked["audience"] == "lead" else ()
        if accounts:
            whole = client.ask("waste", {"by": "account", **({"week": asked["week"]} if "week" in asked else {})})
            accounts = directory.led_by(name, [key for row in rows(whole, "rows") if (key := text(row, "key"))])
        return client.on_behalf_of(name, accounts).ask("weekly", asked)
    finally:
        client.close()
