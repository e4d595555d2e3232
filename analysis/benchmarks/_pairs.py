"""How well one grouping agrees with another, over pairs of items."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warehouse.contract.units import ratio

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class PairScore:
    """Pairs of items that a grouping puts together, against those that belong together. None: there are no pairs."""

    precision: float | None
    recall: float | None

    @property
    def f1(self) -> float | None:
        """Give the harmonic mean of precision and recall."""
        if self.precision is None or self.recall is None or self.precision + self.recall == 0:
            return None
        return 2 * self.precision * self.recall / (self.precision + self.recall)

    def as_document(self) -> dict[str, float | None]:
        """Give the three figures by name."""
        return {"pair_precision": self.precision, "pair_recall": self.recall, "pair_f1": self.f1}


def score(found: Mapping[str, str], truth: Mapping[str, str]) -> PairScore:
    """Compare two groupings of the same items. O(items): pairs are counted, not listed."""
    together = _pairs(Counter(found.values()))
    belonging = _pairs(Counter(truth[item] for item in found))
    right = _pairs(Counter((group, truth[item]) for item, group in found.items()))
    return PairScore(ratio(right, together), ratio(right, belonging))


def _pairs(sizes: Counter[str] | Counter[tuple[str, str]]) -> int:
    return sum(size * (size - 1) // 2 for size in sizes.values())
