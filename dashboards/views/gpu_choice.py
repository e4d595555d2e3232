"""GPU choice: one family on every GPU that is known, with its time, cost and energy, and what another price changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from dashboards import address, charts, frame, table
from dashboards.document import Row, number, part, rows, text
from dashboards.page import Page, PageContext
from dashboards.table import Column
from dashboards.text import markdown, plain
from dashboards.units import gib, gpu_hours, percent, span
from warehouse.contract.errors import NotFoundError

CHARTED = 15
BOUNDS = ("low", "likely", "high")


@dataclass(frozen=True, slots=True)
class Offer:
    """One GPU for the family: ratios over the present one, each low, likely and high; cost None: no price is known."""

    row: Row
    time: tuple[float, float, float] | None
    cost: tuple[float, float, float] | None

    @property
    def name(self) -> str:
        """Give the GPU, with its slice."""
        profile = text(self.row, "profile")
        return plain(text(self.row, "name")) + (f" {plain(profile)}" if profile else "")


def draw(context: PageContext) -> None:
    """Draw one family, named in the address as ``/gpu_choice?family=ID``, on every GPU."""
    families = {text(one, "family_id") or "": one for one in rows(context.answer("families"), "families")}
    if not families:
        frame.nothing_yet(context.period)
        return
    named = address.given("family", families)
    ids = list(families)
    chosen = st.selectbox(
        "Family",
        ids,
        index=ids.index(named) if named is not None else 0,
        format_func=lambda one: plain(text(families[one], "label") or one),
    )
    address.keep("family", chosen)
    try:
        document = context.answer("gpu_options", id=chosen or ids[0])
    except NotFoundError as error:
        st.info(markdown(str(error), 500))
        return
    _present(document)
    offers = _priced(
        [Offer(row, _range(row, "time_ratio"), _range(row, "cost_ratio")) for row in rows(document, "options")]
    )
    if not offers:
        st.info("No other GPU is estimable; below stands why.")
    else:
        _charts(offers)
        _table(offers)
    _refused(rows(document, "not_estimable"))


def _present(document: Row) -> None:
    gpu = part(document, "gpu")
    said = [
        f"now on {markdown(text(gpu, 'name'))}",
        f"{gpu_hours(number(document, 'allocated_gpu_seconds'))} held",
        f"busy {percent(number(document, 'busy_ratio'))} of them",
        f"memory peak {gib(number(document, 'memory_bytes'))}",
        f"waits {span(number(gpu, 'wait_seconds'))} for a GPU",
    ]
    st.caption(" · ".join(said))


def _range(row: Row, key: str) -> tuple[float, float, float] | None:
    values = [number(part(row, key), bound) for bound in BOUNDS]
    low, likely, high = values
    return None if low is None or likely is None or high is None else (low, likely, high)


def _priced(offers: list[Offer]) -> list[Offer]:
    """Let the reader move one price; gives the offers in order of the likely cost, those without a price last."""
    priced = [offer.name for offer in offers if offer.cost is not None]
    if priced:
        left, right = st.columns(2)
        with left:
            moved = st.selectbox(
                "If the price of", priced, index=None, placeholder="no price is moved", key="gpu_moved"
            )
        with right:
            factor = st.slider("were so many times what it is", 0.1, 3.0, 1.0, 0.05, disabled=moved is None)
        offers = [_moved(offer, factor) if offer.name == moved else offer for offer in offers]
    return sorted(offers, key=lambda offer: (offer.cost is None, (offer.cost or offer.time or (0.0, 0.0))[1]))


def _moved(offer: Offer, factor: float) -> Offer:
    if offer.cost is None:
        return offer
    low, likely, high = (bound * factor for bound in offer.cost)
    return Offer(offer.row, offer.time, (low, likely, high))


def _charts(offers: Sequence[Offer]) -> None:
    st.caption(
        "Ratios over the present GPU: 1 is as now, less is better. Bars reach from the 10th to the 90th percentile, "
        "the mark is the likely value. Cost is time x price; without a price there is no cost."
    )
    for heading, key in (("Cost", "cost"), ("Time", "time")):
        known = [(offer.name, bounds) for offer in offers[:CHARTED] if (bounds := getattr(offer, key)) is not None]
        if known:
            st.subheader(heading)
            st.plotly_chart(
                charts.ratios(known),
                key=f"gpu_{key}",
                alt=f"{heading} of the same work on each GPU, over the present one.",
            )


def _table(offers: Sequence[Offer]) -> None:
    columns = [
        table.words("GPU", "the model", "name"),
        table.words("Slice", "MIG profile; none: the whole card", "profile"),
        Column("Here", "whether the site has it", lambda row: "yes" if row.get("at_site") else "no"),
        *(_ratio(word, meaning, key) for word, meaning, key in _RATIOS),
        Column("Fits", "by the memory peak", _fits),
        table.words("Confidence", "how it was reached", "confidence"),
        table.words("By", "the estimator with the least known error for this evidence", "estimator"),
        table.words("How", "what it rests on", "how", wide=True),
    ]
    table.show([offer.row for offer in offers], columns, "gpu_choice_rows")


def _fits(row: Row) -> str | None:
    known = row.get("fits")
    return ("yes" if known else "no") if isinstance(known, bool) else None


_RATIOS = (
    ("Time x", "likely time over the present one", "time_ratio"),
    ("Cost x", "likely cost over the present one, at known prices", "cost_ratio"),
    ("Energy x", "likely energy over the present one", "energy_ratio"),
)


def _ratio(word: str, meaning: str, key: str) -> Column:
    return Column(word, meaning, lambda row: number(part(row, key), "likely"), "ratio")


def _refused(refused: list[Row]) -> None:
    if refused:
        st.subheader("Not estimable")
        columns = [table.words("GPU", "the model", "name"), table.words("Why", "what is lacking", "reason", wide=True)]
        table.show(refused, columns, "gpu_choice_refused")


PAGE = Page(
    name="gpu_choice",
    title="GPU choice",
    icon=":material/swap_horiz:",
    section="Work",
    order=45,
    description="Shows one family on every known GPU: time, cost and energy, and what another price changes.",
    draw=draw,
)
