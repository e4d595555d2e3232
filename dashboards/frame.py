"""What the pages have in common: the line that says what the numbers rest on, the metrics, and the empty store."""

from __future__ import annotations

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboards.account import (
    ALLOCATED_PARTS,
    ALLOCATED_PARTS_COARSE,
    CAPACITY_PARTS,
    CAPACITY_PARTS_COARSE,
    DOWN,
    FAILED,
    GAPS,
    NO_PROCESS,
    RUNG_MEANINGS,
    UNALLOCATED,
    UNREPORTED,
    WITH_PROCESS,
    Part,
    rung_word,
)
from dashboards.document import Row, number, seconds, text
from dashboards.text import markdown
from dashboards.units import clock, gpu_hours, percent
from warehouse.contract.units import ratio


def basis(document: Row) -> None:
    """Draw the line under a heading: period, zone, rung and coverage of a document."""
    rung = text(document, "rung")
    meaning = RUNG_MEANINGS.get(rung or "")
    said = [
        "GPU-hours",
        f"{clock(text(document, 'since'))} to {clock(text(document, 'until'))}",
        f"busy = {rung_word(rung)}" + (f" ({meaning})" if meaning else ""),
        f"coverage {percent(number(document, 'coverage_ratio'))} of the allocated time",
    ]
    zone = text(document, "zone")
    if zone and zone != "UTC":
        said.append(f"weeks in {zone}")
    st.caption(" · ".join(markdown(words, 200) for words in said))


def account_metrics(document: Row, *, capacity: bool = False) -> None:
    """Draw the account of GPU time as metrics in GPU-hours; labels are stable, for tests and for who comes back."""
    allocated = seconds(document, "allocated")
    whole = [("Capacity", "capacity", "all devices in the inventory over the whole time")] if capacity else []
    shown = [
        *whole,
        ("Allocated", "allocated", "held by jobs, busy or not"),
        ("Used", "used", "busy share by the rung named, times the time covered by data"),
        ("Held idle", "held_idle", "allocated, with data, and not busy"),
        ("Unknown", "unknown", "allocated, but no data or no owner of the data"),
    ]
    columns = st.columns(6)
    for column, (label, key, meaning) in zip(columns, shown, strict=False):
        _metric(column, label, seconds(document, key), meaning, None if key in {"capacity", "allocated"} else allocated)
    columns[len(shown)].metric(
        "Used ratio",
        percent(number(document, "used_ratio")),
        help="used / (used + held idle): of the time that is known",
    )
    identity = "Held idle = no process + with process + gaps."
    if capacity:
        identity += " Capacity = allocated + unallocated + down + unreported."
    st.caption(identity)
    parts = (NO_PROCESS, WITH_PROCESS, GAPS, *((UNALLOCATED, DOWN, UNREPORTED) if capacity else (FAILED,)))
    for column, piece in zip(st.columns(6), parts, strict=False):
        of = seconds(document, "capacity") if piece in (UNALLOCATED, DOWN, UNREPORTED) else allocated
        _metric(column, piece.heading, seconds(document, piece.key), piece.meaning, of)


def _metric(column: DeltaGenerator, label: str, value: float | None, meaning: str, of: float | None) -> None:
    share = ratio(value, of)
    column.metric(
        label,
        gpu_hours(value, unit=False),
        None if share is None else percent(share),
        delta_color="off",
        delta_arrow="off",
        help=f"GPU-hours: {meaning}" + ("" if share is None else "; below, the share of the allocated (or capacity)"),
    )


def known_parts(document: Row, *, capacity: bool = False) -> tuple[Part, ...]:
    """Give the parts to draw: the three states of held idle where they are known, else held idle as one."""
    fine = seconds(document, "gaps") is not None
    if capacity:
        return CAPACITY_PARTS if fine else CAPACITY_PARTS_COARSE
    return ALLOCATED_PARTS if fine else ALLOCATED_PARTS_COARSE


def is_empty(document: Row) -> bool:
    """Say whether a document of the account speaks of nothing at all."""
    return not seconds(document, "allocated") and not seconds(document, "capacity")


def nothing_yet(chosen: Row) -> None:
    """Say what to do when there is nothing to show: widen the period, or bring data in."""
    if chosen:
        st.info("Nothing in this period. Clear the week and the dates in the side bar to see all there is.")
        return
    st.info("There are no data yet. Bring some in by one of these ways, then reload this page.")
    st.code(
        "trueload import sacct FILE --data DIR         # accounting of Slurm: sacct -P -D text\n"
        "trueload import clustercockpit FILE --data DIR\n"
        "trueload agent run                            # on a GPU node: measures what runs there\n"
        "trueload up --demo                            # a made-up cluster, to look around",
        language="shell",
    )
