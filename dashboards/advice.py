"""Advice as people read it: what is advised alike for many subjects is one piece of advice, with the others named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dashboards.document import Row, number, part, text
from dashboards.text import plain
from dashboards.units import bounds, count

LONGEST_TITLE = 200


@dataclass(frozen=True, slots=True)
class Advice:
    """The best of the recommendations with the same remedy and title, and the others of them."""

    first: Row
    others: Sequence[Row]

    @property
    def title(self) -> str:
        """Give the title in plain text; of several alike it says so, for the saving shown is that of one of them."""
        title = plain(text(self.first, "title"), LONGEST_TITLE)
        return f"{title} (the first of {count(len(self.others) + 1)} alike)" if self.others else title

    @property
    def saving(self) -> str:
        """Give the range of the first; ranges are never added up."""
        return saving_words(self.first)


def alike(recommendations: Sequence[Row]) -> list[Advice]:
    """Put recommendations with the same remedy and title together, in order of the best of each."""
    groups: dict[tuple[str | None, str | None], list[Row]] = {}
    for item in recommendations:
        groups.setdefault((text(item, "remedy"), text(item, "title")), []).append(item)
    return [Advice(first, others) for first, *others in groups.values()]


def without_alternatives(recommendations: Sequence[Row]) -> list[Row]:
    """Leave out what is to be done instead of something before it: of a short list each line can be done."""
    kept: dict[str | None, Row] = {}
    for item in recommendations:
        excluded = item.get("excludes")
        if not isinstance(excluded, Sequence) or not any(other in kept for other in excluded):
            kept[text(item, "recommendation_id")] = item
    return list(kept.values())


def saving_words(item: Row) -> str:
    """Give the range of a recommendation in GPU-hours."""
    saving = part(item, "saving_gpu_seconds")
    return bounds(number(saving, "low"), number(saving, "likely"), number(saving, "high"))


def subject_words(item: Row) -> str | None:
    """Name what a recommendation or refusal is about."""
    subject = part(item, "subject")
    kind, key = text(subject, "kind"), text(subject, "id")
    return None if key is None else f"{kind} {key}"
