"""Which cards of a node reach each other by NVLink, and what those get that hold some of them: Blink's audit.

A board is a matrix of links between cards by index. Cards that one broadcast can reach over links are connected; the
best rate of a broadcast is the least maximum flow from its root to any other card (Edmonds), in units of one link. On
boards with a switch every card reaches every other: there nothing is fragmented, and nothing is to be gained. The agent
does not read links yet, so no board is known of a site by itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import combinations, permutations

Links = Sequence[Sequence[int]]


def reaches(links: Links, cards: Sequence[int]) -> bool:
    """Say whether links alone connect some cards of a board; one card is connected."""
    if not cards:
        return True
    seen, waiting = {cards[0]}, deque([cards[0]])
    while waiting:
        at = waiting.popleft()
        for other in cards:
            if other not in seen and links[at][other] > 0:
                seen.add(other)
                waiting.append(other)
    return len(seen) == len(set(cards))


def broadcast_rate(links: Links, cards: Sequence[int], root: int) -> int:
    """Give the best rate of a broadcast from a card to the others, in links: the least maximum flow from the root."""
    return min(_flow(links, cards, root, other) for other in cards if other != root)


def _flow(links: Links, cards: Sequence[int], source: int, sink: int) -> int:
    room = {(one, other): links[one][other] for one in cards for other in cards}
    total = 0
    while True:
        before: dict[int, int] = {source: source}
        waiting = deque([source])
        while waiting and sink not in before:
            at = waiting.popleft()
            for other in cards:
                if other not in before and room[at, other] > 0:
                    before[other] = at
                    waiting.append(other)
        if sink not in before:
            return total
        path, at = [], sink
        while at != source:
            path.append((before[at], at))
            at = before[at]
        step = min(room[edge] for edge in path)
        for one, other in path:
            room[one, other] -= step
            room[other, one] += step
        total += step


def distinct_subsets(links: Links, sizes: Sequence[int]) -> int:
    """Count the connected sets of cards that differ by more than a renaming of cards. Exponential: for one board."""
    seen = set()
    for size in sizes:
        for cards in combinations(range(len(links)), size):
            if reaches(links, cards):
                seen.add((size, _canonical(links, cards)))
    return len(seen)


def _canonical(links: Links, cards: Sequence[int]) -> tuple[int, ...]:
    """Give the same words for sets that differ by names alone: the least matrix over all orders of like cards."""
    by_degree: dict[tuple[int, ...], list[int]] = {}
    for card in cards:
        kind = tuple(sorted(links[card][other] for other in cards))
        by_degree.setdefault(kind, []).append(card)
    orders: list[list[int]] = [[]]
    for _, alike in sorted(by_degree.items()):
        orders = [[*begun, *order] for begun in orders for order in permutations(alike)]
    return min(tuple(links[one][other] for one in order for other in order) for order in orders)
