"""Which cards reach each other by NVLink, against the counts and rates of two known boards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis.topology import broadcast_rate, distinct_subsets, reaches

PATHS = ((0, 1, 1), (1, 2, 2), (2, 3, 1))


def board(pairs: list[list[int]] | tuple[tuple[int, int, int], ...], size: int = 8) -> list[list[int]]:
    links = [[0] * size for _ in range(size)]
    for one, other, count in pairs:
        links[one][other] = links[other][one] = count
    return links


def test_a_chain_of_four_cards_by_hand() -> None:
    links = board(PATHS, 4)
    assert reaches(links, (0, 1, 2))
    assert not reaches(links, (0, 2))
    assert reaches(links, (3,))
    # The thinnest part of the way decides.
    assert broadcast_rate(links, (1, 2), 1) == 2
    assert broadcast_rate(links, (0, 1, 2, 3), 1) == 1
    # Sets of two: three chains, one of them thick; of three: both alike but for the thick link's place; all four.
    assert distinct_subsets(links, (2,)) == 2
    assert distinct_subsets(links, (3, 4)) == 2


@pytest.mark.parametrize("name", ["dgx1_p100", "dgx1_v100"])
def test_known_boards_have_the_counts_and_rates_that_are_known(data_root: Path, name: str) -> None:
    known = json.loads((data_root / "blink" / "topologies.json").read_text(encoding="utf-8"))[name]
    links = board(known["links"])
    assert broadcast_rate(links, range(8), 0) == known["expected_8gpu_broadcast_rate_links"]
    assert distinct_subsets(links, range(3, 9)) == known["expected_unique_connected_allocations_3_to_8"]
