"""The answers as text for people at a terminal. Hours, percent and money appear here, absent values as ``—``.

Names of jobs and users are whatever somebody typed: they are drawn as plain text, never as markup, and characters that
would steer a terminal are replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from analysis.fitting import Fitting
from warehouse.contract.metrics import Rung
from warehouse.contract.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from warehouse.client import Document

ABSENT = "—"
WIDTH_WITHOUT_TERMINAL = 160
CELL_CHARACTERS = 80
"""Longer words are cut in cells; ``--json`` has them whole."""
MOST_ROWS = 50
"""Rows stand in order of what matters; ``--json`` has all of them."""
RUNG_MEANING = {
    Rung.DRIVER_UTIL.value: "share of the driver's samples in which any kernel ran",
    Rung.ENGINE_ACTIVE.value: "share of time in which the compute engine was busy",
    Rung.GPU_BOUND.value: "share of time in which a kernel ran",
}
SHARE_MEANING = {
    "repetitive_single_gpu": "families of one-GPU jobs (46.2 % of GPU-hours in HFTA's study of a cluster, 2021)",
    "isolated_single_gpu": "one-GPU jobs outside any family",
    "multi_gpu": "jobs on several GPUs",
    "interactive_or_other": "sessions, trials, and jobs nothing is known of",
}
_PARTS = (
    ("allocated", "allocated"),
    ("used", "used"),
    ("held_idle", "held idle"),
    ("no_process", "no process"),
    ("with_process", "with process"),
    ("gaps", "gaps"),
    ("unknown", "unknown"),
    ("failed", "failed"),
)
_SPARED = ("failed", "gaps", "with process", "no process", "jobs", "unknown", "used of known")
"""What a narrow terminal goes without, first to last: details of a part first, what the account is about never."""


def show(content: RenderableType) -> None:
    """Print to stdout; where that is no terminal, wide enough for the tables."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDTH_WITHOUT_TERMINAL)
    console.print(content)


def plain(value: object, longest: int | None = CELL_CHARACTERS) -> Text:
    """Give any value as text that cannot steer a terminal; None is absent."""
    text = ABSENT if value is None else str(value)
    if longest is not None and len(text) > longest:
        text = f"{text[: longest - 1]}…"
    return Text("".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text))


def hours(seconds: float | None) -> str:
    """Give seconds as hours with one decimal."""
    return ABSENT if seconds is None else f"{seconds / SECONDS_PER_HOUR:,.1f}"


def percent(value: float | None) -> str:
    """Give a ratio in percent."""
    return ABSENT if value is None else f"{100 * value:.1f} %"


def waste_table(document: Document) -> RenderableType:
    """Show where the GPU time went, in all and by key."""
    rows: list[Sequence[str | Text]] = [
        [plain(row["key"]), str(row["jobs"]), *_account(row["gpu_seconds"]), *_ratios(row)]
        for row in _rows(document, "rows")[:MOST_ROWS]
    ]
    total = ["all", str(document["jobs"]), *_account(_mapping(document, "gpu_seconds")), *_ratios(document)]
    headings = _headings(str(document["by"]))
    table = Fitting("GPU-hours by what became of them", headings, rows, _SPARED, total=total)
    more = _more(document, "rows")
    beside = [Text(line) for line in _qualities(document)]
    return Group(table, *more, _capacity(_mapping(document, "gpu_seconds")), *beside, _footnote(document))


def _qualities(document: Document) -> Iterable[str]:
    """Say how well used time fills the cards and how failed time ended: qualities, which overlap with the parts."""
    if not document.get("qualities"):
        return
    known = _mapping(document, "qualities")
    words = {"sm_active_ratio": "SMs", "tensor_active_ratio": "tensor cores", "dram_active_ratio": "memory"}
    fills = [f"{word} {percent(part['value'])}" for name, word in words.items() if (part := known["of_used"].get(name))]
    if fills:
        yield f"While used, active were: {', '.join(fills)}."
    failed = sorted(known["failed_by_state"].items(), key=lambda pair: (-pair[1], pair[0]))
    if failed:
        ends = ", ".join(f"{hours(seconds)} {state.replace('_', ' ')}" for state, seconds in failed)
        yield f"Failed GPU-hours by how they ended: {ends}."


def families_table(document: Document) -> RenderableType:
    """Show the families, largest first, and how repetitive the site's work is."""
    table = Table(
        "family", "jobs", "allocated", "used", "why they belong together", "what varies", title_justify="left"
    )
    table.title = "Jobs that are the same work repeated (GPU-hours)"
    for column in table.columns[1:4]:
        column.justify = "right"
    for family in _rows(document, "families")[:MOST_ROWS]:
        held = hours(family["gpu_seconds"]["allocated"])
        varies = plain(", ".join(family["varies"]) or "nothing seen", 60)
        why = plain(family["reason"])
        members = str(len(family["members"]))
        table.add_row(plain(family["label"], 40), members, held, percent(family["used_ratio"]), why, varies)
    shares = Table("share", "of GPU time held by", box=None, show_header=False, title_justify="left")
    for name, share in _mapping(document, "share_of_gpu_seconds").items():
        shares.add_row(Text(percent(share), justify="right"), SHARE_MEANING.get(name, name))
    outside = document["ungrouped"]
    count = len(outside) if isinstance(outside, list) else 0
    more = _more(document, "families")
    return Group(table, *more, Text("Share of GPU time:"), shares, Text(f"{count} jobs are in no family."))


def edits_text(document: Document) -> RenderableType:
    """Show what people changed of the families, in order."""
    table = Table("number", "when", "who", "what", "family", "to, or by", "why", title_justify="left")
    for one in _rows(document, "edits"):
        table.add_row(*(plain(one[name]) for name in ("number", "at", "who", "do", "family_id", "value", "why")))
    return table if table.rows else Text("No family was ever changed.")


def recommend_text(document: Document) -> RenderableType:
    """Show the advice, best first, then what was refused and why."""
    alike: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in _rows(document, "recommendations"):
        alike.setdefault((one["remedy"], one["title"]), []).append(one)
    parts: list[RenderableType] = []
    for number, same in enumerate(list(alike.values())[:MOST_ROWS], start=1):
        parts += [*_advice(number, same[0]), *_repeated(same[1:]), Text("")]
    if not parts:
        parts.append(Text(_no_advice(document)))
    left_out = len(alike) - MOST_ROWS
    if left_out > 0:
        parts.append(Text(f"… and {left_out:,} more; --json has all of them."))
    return Group(*parts, *_refusals(document), Text(f"Window: {document['since']} to {document['until']}."))


def _no_advice(document: Document) -> str:
    """Say why there is none: where nobody measured, no change can be judged; it may be needed."""
    if document["rung"] is None:
        return (
            "No advice: nothing says how busy the GPUs were. Measure them (`trueload agent run`), or import readings "
            "(docs/import.md says which formats hold them)."
        )
    return "No change would give back enough GPU time to be worth advice."


def _repeated(others: Sequence[Mapping[str, Any]]) -> Iterable[RenderableType]:
    """Say in one line that the same holds for more subjects, such as the notebook of every night."""
    if others:
        savings = [one["saving_gpu_seconds"]["likely"] or one["saving_gpu_seconds"]["high"] for one in others]
        each = f"{hours(min(savings))} to {hours(max(savings))} GPU-hours each"
        yield Text(f"   the same on {len(others)} more, {each}; --json lists them")


def _advice(number: int, one: Mapping[str, Any]) -> Iterable[RenderableType]:
    saving = one["saving_gpu_seconds"]
    yield Text(f"{number}. ", style="bold").append_text(plain(one["title"], 160))
    low, likely, high = (hours(saving[key]) for key in ("low", "likely", "high"))
    what = f"at most {high} GPU-hours" if saving["likely"] is None else f"{likely} GPU-hours ({low} to {high})"
    yield Text(f"   would have saved {what}{_money(one['money'])}; {one['confidence']}: {one['how']}")
    yield Text(f"   {one['remedy']} · {one['recommendation_id']} · busy by {one['rung']}", style="dim")
    for row in one["evidence"]:
        yield Text("   · ").append_text(plain(row, None))
    for line in one["action"].splitlines():
        yield Text("     ").append_text(plain(line, None))
    for risk in one["risks"]:
        yield Text("   ! ").append_text(plain(risk, None))
    if one["excludes"]:
        yield Text(f"   instead of, not beside: {', '.join(one['excludes'])}")


def _money(money: Mapping[str, Any]) -> str:
    if money["currency"] is None:
        return ""
    if money["likely"] is None:
        return f", at most {money['high']:,.0f} {money['currency']}"
    return f", {money['likely']:,.0f} {money['currency']} ({money['low']:,.0f} to {money['high']:,.0f})"


def _refusals(document: Document) -> Iterable[RenderableType]:
    """Put equal refusals together: a thousand jobs without samples are one line."""
    counts: dict[tuple[str, str, str], int] = {}
    for one in _rows(document, "refusals"):
        key = (one["remedy"], one["reason"], "; ".join(one["needs"]))
        counts[key] = counts.get(key, 0) + 1
    if counts:
        yield Text("Not estimable:", style="bold")
    for (remedy, reason, needs), count in counts.items():
        yield Text(f"   {remedy} on {count} subject{'s' if count > 1 else ''}: {reason}")
        if needs:
            yield Text(f"      needs {needs}")


def outcomes_table(document: Document) -> RenderableType:
    """Show advice with what became of it, the latest first, and how advice fared."""
    table = Table(title="Advice that was given (GPU-hours)", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    # Whoever answers an advice needs its id whole.
    table.add_column("advice", no_wrap=True, min_width=18)
    for heading in ("remedy", "about", "said", "gave", "what became of it"):
        table.add_column(heading, overflow="fold")
    for one in _rows(document, "recommendations")[:MOST_ROWS]:
        likely, high = one["likely_gpu_seconds"], one["high_gpu_seconds"]
        said = f"at most {hours(high)}" if likely is None else hours(likely)
        became = f"{one['state']}: {one['reason']}" if one["reason"] else str(one["state"])
        about = plain(one["subject_id"], 40)
        row = (plain(one["recommendation_id"]), plain(one["remedy"]), about, said)
        table.add_row(*row, hours(one["realised_gpu_seconds"]), plain(became, 60))
    return Group(table, *_more(document, "recommendations"), Text(str(_mapping(document, "record")["sentence"])))


def job_text(document: Document) -> RenderableType:
    """Show one job: what it is, its attempts, and the rungs of the ladder that are known."""
    job = document["job"]
    facts = Table(box=None, show_header=False)
    for name, value in job.items() if isinstance(job, dict) else [("job", job)]:
        if value is not None:
            facts.add_row(Text(str(name), style="dim"), plain(value, 160))
    facts.add_row(Text("family", style="dim"), plain(document["family_id"]))
    rows: list[Sequence[str | Text]] = []
    for attempt in _rows(document, "attempts"):
        words = [plain(attempt[key]) for key in ("attempt", "state", "start_at", "end_at", "node")]
        rows.append([*words, *_account(attempt["gpu_seconds"])])
    headings = ["attempt", "state", "start", "end", "node", *(heading for _, heading in _PARTS)]
    table = Fitting("GPU-hours", headings, rows, _SPARED, words=5)
    ladders = [_ladder(attempt) for attempt in _rows(document, "attempts")]
    ladders += [_tracer(attempt) for attempt in _rows(document, "attempts") if attempt.get("tracer")]
    findings = [Text("· ").append_text(plain(_finding(finding), None)) for finding in _rows(document, "findings")]
    return Group(facts, table, *ladders, *findings)


def _finding(finding: object) -> str:
    if isinstance(finding, dict):
        return str(finding.get("title") or finding.get("text") or finding.get("detail") or finding.get("kind"))
    return str(finding)


def _ladder(attempt: Mapping[str, Any]) -> RenderableType:
    table = Table("how busy", "mean", "source", "coverage", title=plain(attempt["attempt"]), title_justify="left")
    for name, reading in attempt["ladder"].items():
        if reading is not None and reading["value"] is not None:
            value, coverage = percent(reading["value"]), percent(reading["coverage_ratio"])
            table.add_row(name, value, plain(reading["source"]), coverage)
    return table if table.rows else plain(f"{attempt['attempt']}: nothing says how busy its GPUs were.", None)


_KERNELS_SHOWN = 5
"""Kernels that fit beside all else; the document names more."""


def _tracer(attempt: Mapping[str, Any]) -> Table:
    """Show what the tracer tells of an attempt; what it does not know is left out."""
    known = attempt["tracer"]
    title = f"traced: {known['source']}, covers {percent(known['coverage_ratio'])} of {attempt['attempt']}"
    table = Table(box=None, show_header=False, title=plain(title), title_justify="left")
    inflation = attempt["inflation_ratio"]
    facts = {
        "driver utilization over the best measure": None if inflation is None else f"{100 * inflation:+.0f} points",
        "launches per second": known["launches_per_second"],
        "mean kernel length": _microseconds(known["mean_kernel_seconds"]),
        "steps": None if known["steps_total"] is None else f"{known['steps_total']:,}",
        "steps per second": known["steps_per_second"],
    }
    for name, value in facts.items():
        if value is not None:
            table.add_row(name, f"{value:,.4g}" if isinstance(value, float) else plain(value))
    estimates = {
        "GPU-bound without the tracer's own cost": known["gpu_bound_corrected_ratio"],
        "GPU-bound over all of the time, pauses included": known["gpu_bound_extrapolated_ratio"],
    }
    for name, one in estimates.items():
        if one is not None:
            table.add_row(name, f"{percent(one['likely'])} ({percent(one['low'])} to {percent(one['high'])})")
    for kernel in known["kernels"][:_KERNELS_SHOWN]:
        shape = f"{kernel['launch_count']:,} launches of {_microseconds(kernel['mean_seconds'])}"
        shape += f", grid {kernel['grid']}" if kernel["grid"] else ""
        table.add_row(plain(kernel["kernel"]), plain(shape))
    for gap in known["gap_lengths"]:
        longest = gap["longest_seconds"]
        until = "" if longest is None else f" to {_microseconds(longest)}"
        table.add_row(f"gaps of {_microseconds(gap['shortest_seconds'])}{until}", f"{gap['count']:,}")
    return table


def _microseconds(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds * 1e6:,.4g} µs"


def bench_text(document: Document) -> RenderableType:
    """Show a benchmark's bars, figures, and what it does not show."""
    table = Table("bar", "value", "asked for", "holds", title=f"bench {document['bench']}", title_justify="left")
    for bar in _rows(document, "bars"):
        value = ABSENT if bar["value"] is None else f"{bar['value']:.6g}"
        table.add_row(plain(bar["name"]), value, bar["bar"], "yes" if bar["holds"] else "NO")
    figures = Table("figure", "value", box=None, show_header=False)
    for name, value in _flat(_mapping(document, "figures")):
        figures.add_row(plain(name), f"{value:,.6g}" if isinstance(value, float) else plain(value))
    gaps = document["not_shown"]
    lines = [Text("· not shown: ").append_text(plain(gap, None)) for gap in (gaps if isinstance(gaps, list) else [])]
    return Group(table, figures, *lines)


def facts_text(document: Document) -> RenderableType:
    """Show a flat document as names and values."""
    table = Table(box=None, show_header=False)
    for name, value in _flat(document):
        table.add_row(plain(name), plain(value))
    return table


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}: ")
        else:
            yield f"{prefix}{name}", value


def _headings(key: str) -> list[str]:
    return [key, "jobs", *(heading for _, heading in _PARTS), "used of known", "coverage"]


def _account(seconds: Mapping[str, Any]) -> list[str]:
    return [hours(seconds[name]) for name, _ in _PARTS]


def _ratios(row: Mapping[str, Any]) -> tuple[str, str]:
    return percent(row["used_ratio"]), percent(row["coverage_ratio"])


def _capacity(seconds: Mapping[str, Any]) -> Text:
    if seconds.get("capacity") is None:
        return Text("Capacity is not known: there is no inventory of devices for this window.", style="dim")
    parts = ", ".join(f"{hours(seconds[name])} {name}" for name in ("allocated", "unallocated", "down", "unreported"))
    return Text(f"Capacity {hours(seconds['capacity'])} GPU-hours: {parts}.")


def _footnote(document: Document) -> Text:
    rung = document["rung"]
    meaning = RUNG_MEANING.get(str(rung), "not known, from accounting alone")
    busy = f"Busy by {rung} ({meaning})" if rung else f"Use: {meaning}"
    coverage = percent(document["coverage_ratio"])  # type: ignore[arg-type]
    window = f"{document['since']} to {document['until']}, zone {document['zone']}"
    return Text(f"{busy}; coverage {coverage}. {ABSENT}: not known. {window}.", style="dim")


def _more(document: Document, key: str) -> list[Text]:
    left_out = len(_rows(document, key)) - MOST_ROWS
    return [Text(f"… and {left_out:,} more; --json has all of them.")] if left_out > 0 else []


def _rows(document: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    return list(document[key])


def _mapping(document: Mapping[str, Any], key: str) -> dict[str, Any]:
    return dict(document[key])
