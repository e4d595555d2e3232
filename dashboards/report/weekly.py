"""The weekly report: from the document of one week to HTML, Markdown or JSON. Pure.

Order of what it says: what was held and used and how that changed; at most a few findings with one change each; who
holds what idle; what is repeated; the trend; the fleet by model; what became of advice; what the numbers rest on.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from dashboards import account
from dashboards.account import Part, rung_word
from dashboards.advice import Advice, alike, subject_words
from dashboards.document import Row, number, part, rows, seconds, text, texts
from dashboards.report import svg
from dashboards.report.digest import Digest, Figure, Finding, Limits, Line, Section
from dashboards.report.traced import traced
from dashboards.text import markdown_file, plain
from dashboards.units import ABSENT, change, clock, count, gpu_hours, money, percent, points
from warehouse.client import Document
from warehouse.contract.errors import BadUseError
from warehouse.contract.units import SECONDS_PER_HOUR, ratio

GROUPS = {
    "operator": (("by_user", "user"), ("by_account", "account"), ("by_gpu_model", "GPU model")),
    "lead": (("by_user", "member"), ("by_account", "account"), ("by_gpu_model", "GPU model")),
    "user": (("by_gpu_model", "GPU model"),),
}
"""The tables of each audience; a person alone is no table."""

TITLES = {
    "operator": "GPU time in week {week}",
    "lead": "GPU time of your accounts in week {week}",
    "user": "Your GPU time in week {week}",
}
WELL_USED_RATIO = 0.8
"""A family that uses this share of what it holds is said to go well: little is left to gain there."""
COMPARABLE_RATIO = 0.9
"""A week is compared with one that has at least this share of its capacity in the data: an eighth of a week is no
trend."""
LONGEST_NAME = 60
TEXT_NAME = 40
MAIL_COLUMNS = 78
"""RFC 5322: lines of a mail should not be longer."""
LONGEST_WORDS = 400
CONFIDENCE = {
    "measured": "Measured on this work.",
    "calibrated": "A model checked against this site's own outcomes.",
    "modelled": "A model, not yet checked here.",
    "bound": "Only a bound: the evidence does not tell how much of it can be had.",
}
ACCOUNT_HEADINGS = ("held idle", "no process", "with process", "gaps", "used", "allocated", "used ratio", "coverage")


def render(document: Document, format_name: str, limits: Limits) -> str:
    """Give the report as text of a format: ``html``, ``md``, ``txt`` or ``json`` (the document itself).

    Raises:
        BadUseError: there is no such format.

    """
    if format_name == "json":
        return json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    if format_name not in {"html", "md", "txt"}:
        raise BadUseError(f"no format {format_name!r}; there are html, md, txt and json")
    return lay_out(digest(document, limits), format_name)


def lay_out(what: Digest, format_name: str) -> str:
    """Give a digest as text of a format that has a template: ``html``, ``md`` or ``txt``."""
    return _environment().get_template(f"weekly.{format_name}.j2").render(d=what).strip() + "\n"


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("dashboards.report"),
        autoescape=select_autoescape(["html.j2"], default=False),
        undefined=StrictUndefined,
    )
    environment.filters["md"] = lambda value: markdown_file(str(value), LONGEST_WORDS)
    environment.filters["code"] = _code
    environment.filters["fill"] = _fill
    environment.filters["short"] = lambda value: plain(str(value), TEXT_NAME)
    return environment


def _fill(value: str, margin: str = "") -> str:
    """Give text in lines of a mail's width."""
    return textwrap.fill(value, MAIL_COLUMNS, initial_indent=margin, subsequent_indent=margin, break_on_hyphens=False)


def _code(value: str) -> str:
    """Give text as an indented block of Markdown, which nothing inside can end."""
    return "\n".join(f"    {line}" for line in value.splitlines())


def digest(document: Row, limits: Limits) -> Digest:
    """Put the document of a week into words and drawings."""
    waste = part(document, "waste")
    fleet = {**part(document, "fleet"), "before": _before(document)}
    found = alike(rows(part(document, "recommendations"), "recommendations"))
    week, audience = text(document, "week") or ABSENT, _audience(document)
    trend = rows(waste, "trend")
    return Digest(
        week=week,
        period=f"{clock(text(document, 'since'))} to {clock(text(document, 'until'))}",
        zone=text(document, "zone") or "UTC",
        audience=audience,
        title=TITLES[audience].format(week=week),
        basis=_basis(document),
        headline=_headline(fleet),
        went_well=_went_well(part(document, "families")),
        figures=_figures(fleet),
        bar=_bar(fleet),
        findings=_findings(found[: limits.findings], limits.pages_url),
        findings_left_out=max(0, len(found) - limits.findings),
        groups=[
            _group(waste, key, word, limits.rows, compared=bool(fleet["before"]))
            for key, word in GROUPS[audience]
            if rows(waste, key)
        ],
        families=_families(part(document, "families"), limits.rows),
        trend=_trend(trend),
        trend_words=[(piece.word, piece.colour) for piece in _TREND],
        trend_table=_trend_table(trend),
        models=_models(rows(fleet, "by_model"), limits.rows) if audience == "operator" else None,
        traced=traced(part(document, "tracer"), limits.rows),
        coverage=_coverage(document, fleet),
        outcomes=_outcomes(document),
        address=limits.pages_url.rstrip("/"),
        definitions=[
            ("Allocated", "GPU-hours that jobs held devices, busy or not; = used + held idle + unknown."),
            *((piece.word, f"{piece.meaning}.") for piece in (account.USED, *_IDLE, account.UNKNOWN)),
            ("Used ratio", "used / (used + held idle): of the time that is known."),
            ("Coverage", "the share of the allocated time for which there are data."),
            (
                "low, likely, high",
                "10th, 50th and 90th percentile of what the same work in this week would have saved.",
            ),
        ],
    )


def _audience(document: Row) -> str:
    named = text(document, "audience")
    return named if named in GROUPS else "operator"


def _went_well(families: Row) -> str:
    """Name the repeated work that used most of what it held; empty where none did."""
    good = [one for one in rows(families, "families") if (number(one, "used_ratio") or 0.0) >= WELL_USED_RATIO]
    best = max(good, key=lambda one: seconds(one, "used") or 0.0, default=None)
    if best is None or not seconds(best, "used"):
        return ""
    used = f"{percent(number(best, 'used_ratio'), 0)} of the time that is known"
    return f"Went well: {_name(best, 'label')} used {used}, {gpu_hours(seconds(best, 'used'))} in all."


def _before(document: Row) -> Row:
    """Give the account of the week before; nothing where the data cover too little of it to compare with."""
    previous = part(part(document, "waste"), "previous_gpu_seconds")
    here = seconds(part(document, "fleet"), "capacity")
    there = number(previous, "capacity")
    if not previous or (here is not None and there is not None and there < COMPARABLE_RATIO * here):
        return {}
    return {"gpu_seconds": previous}


_TREND = (account.USED, account.HELD_IDLE, account.UNKNOWN)
_IDLE = (account.NO_PROCESS, account.WITH_PROCESS, account.GAPS)


def _parts(fleet: Row) -> Sequence[Part]:
    idle = _IDLE if seconds(fleet, "gaps") is not None else (account.HELD_IDLE,)
    return (account.USED, *reversed(idle), account.UNKNOWN, account.UNALLOCATED, account.DOWN, account.UNREPORTED)


def _basis(document: Row) -> str:
    rung = text(document, "rung")
    meaning = account.RUNG_MEANINGS.get(rung or "")
    return f"week in {text(document, 'zone') or 'UTC'} · busy = {rung_word(rung)}" + (
        f" ({meaning})" if meaning else ""
    )


def _headline(fleet: Row) -> str:
    allocated, idle = seconds(fleet, "allocated"), seconds(fleet, "held_idle")
    before = part(fleet, "before")
    if not allocated:
        return "No GPU was allocated in this week."
    if idle is None:
        return f"{gpu_hours(allocated)} were allocated. How much of them was used is not known: accounting alone."
    share = percent(number(fleet, "used_ratio"), 0)
    moved = _moved(number(fleet, "used_ratio"), _used_ratio(before))
    return (
        f"{gpu_hours(allocated)} were allocated; of the time that is known, {share} was used{moved}. "
        f"{gpu_hours(idle)} were held idle."
    )


def _used_ratio(row: Row) -> float | None:
    used, idle = seconds(row, "used"), seconds(row, "held_idle")
    return None if used is None or idle is None else ratio(used, used + idle)


def _moved(now: float | None, before: float | None) -> str:
    return "" if now is None or before is None else f" ({points(now - before)} against last week)"


def _figures(fleet: Row) -> list[Figure]:
    before = part(fleet, "before")
    whole = seconds(fleet, "capacity") or seconds(fleet, "allocated")
    return [
        Figure(
            word=piece.word,
            colour=piece.colour,
            hours=gpu_hours(seconds(fleet, piece.key), unit=False),
            share=percent(ratio(seconds(fleet, piece.key), whole)),
            change=change(seconds(fleet, piece.key), seconds(before, piece.key)),
            meaning=piece.meaning,
        )
        for piece in _parts(fleet)
    ]


def bar_shares(row: Row) -> list[svg.Share]:
    """Give the parts of the bar at the top: what became of the GPU-hours, in GPU-seconds."""
    return [svg.Share(piece.word, value, piece.colour) for piece in _parts(row) if (value := seconds(row, piece.key))]


def _bar(row: Row) -> Markup:
    shares = bar_shares(row)
    label = "GPU-hours by what became of them: " + ", ".join(
        f"{share.word} {gpu_hours(share.value)}" for share in shares
    )
    return Markup(svg.stacked_bar(shares, label))  # noqa: S704 - our own drawing, its words escaped


def _findings(found: Sequence[Advice], pages_url: str) -> list[Finding]:
    ceiling = max((number(part(one.first, "saving_gpu_seconds"), "high") or 0.0 for one in found), default=0.0)
    return [_finding(one, ceiling, pages_url) for one in found]


def _finding(one: Advice, ceiling: float, pages_url: str) -> Finding:
    item = one.first
    saving, cost = part(item, "saving_gpu_seconds"), part(item, "money")
    low, likely, high = (number(saving, key) for key in ("low", "likely", "high"))
    likely_cost = number(cost, "likely")
    how = text(item, "how")
    confidence = CONFIDENCE.get(text(item, "confidence") or "", "") + (f" {_sentence(how)}" if how else "")
    drawn = svg.range_bar(
        svg.Range(low or 0.0, likely, high or 0.0), ceiling, account.USED.colour, f"saving {one.saving}"
    )
    return Finding(
        title=one.title,
        saving=one.saving,
        cost="" if likely_cost is None else f"about {money(likely_cost, text(cost, 'currency'))}",
        confidence=f"{confidence} Busy by {rung_word(text(item, 'rung'))}.",
        action=text(item, "action") or ABSENT,
        evidence=[plain(words, LONGEST_WORDS) for words in texts(item, "evidence")[:3]],
        risks=[plain(words, LONGEST_WORDS) for words in texts(item, "risks")[:3]],
        identity=f"{plain(text(item, 'recommendation_id'))}, {plain(subject_words(item))}",
        drawing=Markup(drawn),  # noqa: S704 - our own drawing, its words escaped
        address=_address(pages_url, text(item, "recommendation_id")),
    )


def _address(pages_url: str, recommendation_id: str | None) -> str:
    if not pages_url or recommendation_id is None:
        return ""
    return f"{pages_url.rstrip('/')}/recommendations?{urlencode({'id': recommendation_id})}"


def _sentence(words: str) -> str:
    said = plain(words, LONGEST_WORDS).rstrip(".")
    return f"{said[:1].upper()}{said[1:]}."


def _account_cells(row: Row) -> list[str]:
    keys = ("no_process", "with_process", "gaps", "used", "allocated")
    hours = [gpu_hours(seconds(row, key), unit=False) for key in keys]
    return [_idle_cell(row), *hours, percent(number(row, "used_ratio")), percent(number(row, "coverage_ratio"))]


def _idle_cell(row: Row) -> str:
    """Give what was held idle, with its change against the week before where that is known."""
    idle = seconds(row, "held_idle")
    moved = change(idle, number(part(row, "previous_gpu_seconds"), "held_idle"))
    return gpu_hours(idle, unit=False) + ("" if moved == ABSENT else f" ({moved})")


def _group(waste: Row, key: str, word: str, limit: int, *, compared: bool) -> Section:
    items = [item if compared else {**item, "previous_gpu_seconds": None} for item in rows(waste, key)]
    shown = items[:limit]
    ceiling = max((seconds(item, "held_idle") or 0.0 for item in shown), default=0.0)
    return Section(
        title=f"Held idle, by {word}",
        headings=(word, *ACCOUNT_HEADINGS),
        lines=[_account_line(item, ceiling) for item in shown],
        left_out=len(items) - len(shown),
        note="GPU-hours, most held idle first" + ("; in brackets the change against last week." if compared else "."),
    )


def _account_line(item: Row, ceiling: float) -> Line:
    idle = _IDLE if seconds(item, "gaps") is not None else (account.HELD_IDLE,)
    shares = [svg.Share(piece.word, value, piece.colour) for piece in idle if (value := seconds(item, piece.key))]
    drawn = svg.small_bar(shares, ceiling, f"held idle {gpu_hours(seconds(item, 'held_idle'))}")
    return Line(_name(item, "key"), _account_cells(item), Markup(drawn))  # noqa: S704 - our own drawing


def _name(item: Row, key: str) -> str:
    return plain(text(item, key) or "(not known)", LONGEST_NAME)


def _families(document: Row, limit: int) -> Section | None:
    families = rows(document, "families")
    if not families:
        return None
    shown = families[:limit]
    lines = [
        Line(
            _name(family, "label"),
            [
                count(len(texts(family, "members")) or number(family, "member_count")),
                gpu_hours(seconds(family, "allocated"), unit=False),
                gpu_hours(seconds(family, "held_idle"), unit=False),
                percent(number(family, "used_ratio")),
                plain(", ".join(texts(family, "varies")) or ABSENT, LONGEST_NAME),
            ],
            Markup(),
        )
        for family in shown
    ]
    share = number(part(document, "share_of_gpu_seconds"), "repetitive_single_gpu")
    return Section(
        title="Work that is repeated",
        headings=("family", "jobs", "allocated", "held idle", "used ratio", "varies"),
        lines=lines,
        left_out=len(families) - len(shown),
        note=f"Repeated work on one GPU holds {percent(share)} of the allocated GPU-seconds."
        if share is not None
        else "",
    )


def trend_lines(weeks: Sequence[Row]) -> tuple[list[svg.Line], list[str]]:
    """Give the lines of the trend, in GPU-hours, and the names of their weeks."""
    ticks = [(text(week, "week") or "")[-3:] for week in weeks]
    return [
        svg.Line(piece.word, [_in_hours(seconds(week, piece.key)) for week in weeks], piece.colour) for piece in _TREND
    ], ticks


def _trend(weeks: Sequence[Row]) -> Markup:
    lines, ticks = trend_lines(weeks)
    label = "GPU-hours per week: used, held idle and unknown"
    return Markup(svg.trend(lines, ticks, label, unit=""))  # noqa: S704 - our own drawing


def _in_hours(value: float | None) -> float | None:
    return None if value is None else value / SECONDS_PER_HOUR


def _trend_table(weeks: Sequence[Row]) -> Section | None:
    if not weeks:
        return None
    lines = [Line(text(week, "week") or ABSENT, _account_cells(week), Markup()) for week in weeks]
    return Section("By week", ("week", *ACCOUNT_HEADINGS), lines, note="GPU-hours.")


def _models(models: Sequence[Row], limit: int) -> Section | None:
    if not models:
        return None
    keys = ("capacity", "allocated", "used", "held_idle", "unallocated", "down")
    lines = [
        Line(
            _name(model, "key"),
            [
                count(number(model, "device_count")),
                *(gpu_hours(seconds(model, key), unit=False) for key in keys),
                percent(number(model, "used_ratio")),
            ],
            Markup(),
        )
        for model in models[:limit]
    ]
    headings = ("GPU model", "GPUs", "capacity", "allocated", "used", "held idle", "unallocated", "down", "used ratio")
    return Section("The fleet by model", headings, lines, left_out=max(0, len(models) - limit), note="GPU-hours.")


def _coverage(document: Row, fleet: Row) -> list[tuple[str, str]]:
    known = part(document, "coverage")
    return [
        ("rung that counts as busy", rung_word(text(document, "rung"))),
        ("coverage: share of the allocated time with data", percent(number(known, "coverage_ratio"))),
        ("of that, where the source does not tell its coverage", gpu_hours(number(known, "assumed_gpu_seconds"))),
        ("unknown: allocated without data or owner of data", gpu_hours(seconds(fleet, "unknown"))),
        ("unreported: capacity that no inventory told of", gpu_hours(seconds(fleet, "unreported"))),
        ("devices, and of them lost at the end", _devices(fleet)),
        ("last week", "compared with" if fleet["before"] else "not compared with: the data hold too little of it"),
    ]


def _devices(fleet: Row) -> str:
    return f"{count(number(fleet, 'device_count'))}, {count(number(fleet, 'lost_device_count'))}"


def _outcomes(document: Row) -> list[str]:
    reason = text(part(document, "outcomes"), "reason")
    return [reason or "Nothing is known yet of what became of advice."]
