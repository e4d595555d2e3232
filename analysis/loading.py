"""How fast data reach a GPU: the rates and cache formulas of CoorDL and DS-Analyzer.

Rates are samples per second of one job: ``gpu`` what it takes in when data never lack, ``prepared`` what the loader
gives when everything is cached, ``storage`` and ``memory`` what they deliver. A share is one of the data set. Formulas
hold for any unit of work that all rates have in common.
"""

from __future__ import annotations

from math import ceil, inf, log1p
from typing import Final

MIXED_RATIO: Final = 0.05
"""Two rates this near each other are one bottleneck: probes repeat no better."""


def fetch_rate(storage: float, memory: float, cached_share: float) -> float:
    """Give the rate at which data are fetched when a share of them lies in memory: 1 / (x / C + (1 - x) / S)."""
    return 1.0 / (cached_share / memory + (1.0 - cached_share) / storage)


def bottleneck(gpu: float, prepared: float, fetched: float) -> str:
    """Name what bounds the speed: ``gpu``, ``prepare``, ``fetch``, or ``mixed`` where the two slowest are near."""
    rates = sorted((("gpu", gpu), ("prepare", prepared), ("fetch", fetched)), key=lambda pair: pair[1])
    return "mixed" if rates[1][1] <= rates[0][1] * (1.0 + MIXED_RATIO) else rates[0][0]


def prepare_stall_ratio(gpu: float, prepared: float) -> float:
    """Give the share of time in which the GPU waits for preparation."""
    return max(0.0, 1.0 - min(gpu, prepared) / gpu)


def cached_share_needed(storage: float, memory: float, wanted: float) -> float | None:
    """Give the least share that must come from memory to fetch at a wanted rate; None: memory itself is too slow."""
    if wanted <= storage:
        return 0.0
    if wanted > memory:
        return None
    return (1.0 / storage - 1.0 / wanted) / (1.0 / storage - 1.0 / memory)


def hits_kept(cache_share: float) -> float:
    """Give the share of an epoch that a cache which never evicts serves (MinIO): all that it holds."""
    return min(cache_share, 1.0)


def hits_least_recently_used(cache_share: float) -> float:
    """Give the share that an LRU cache serves when each epoch comes in a new random order: c + (1 - c) ln(1 - c)."""
    if cache_share >= 1.0:
        return 1.0
    return cache_share + (1.0 - cache_share) * log1p(-cache_share)


def cache_share_for(hits: float) -> tuple[float, float]:
    """Give how much of the data set a cache must hold to serve a share of it: never evicting, and LRU.

    A real page cache lies between the two.
    """
    low, high = hits, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if hits_least_recently_used(middle) < hits else (low, middle)
    return hits, high


def cpus_needed(cpus: float, gpu: float, prepared: float) -> int:
    """Give the cores that keep the GPU fed, if preparation scales with them."""
    return ceil(cpus * gpu / prepared - 1e-9)


def shared_preparation_gain(gpu: float, prepared: float, jobs: int) -> float:
    """Give how much faster each of ``jobs`` on a node gets when they prepare the same data once and share it."""
    return min(gpu, prepared) / min(gpu, prepared / jobs)


def partitioned_fetch_rate(storage: float, memory: float, remote: float, cache_share: float, nodes: int) -> float:
    """Give the rate when nodes cache parts of one data set for each other; ``remote`` is the rate over the network."""
    held = min(1.0, nodes * cache_share)
    local = held / nodes
    parts = ((local, memory), (held - local, remote), (1.0 - held, storage))
    seconds = sum(share / rate for share, rate in parts if share > 0)
    return 1.0 / seconds if seconds > 0 else inf
