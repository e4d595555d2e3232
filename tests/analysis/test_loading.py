"""The rates and cache formulas of data stalls, against values worked by hand and by simulation."""

from __future__ import annotations

from collections import OrderedDict
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import loading

RATES = st.floats(1.0, 1e6)
SHARES = st.floats(0.0, 1.0)


def test_fetching_half_from_memory_takes_the_mean_of_both_times() -> None:
    # Half at 100 samples/s, half at 900: 0.005 + 0.000556 s a sample.
    assert loading.fetch_rate(100.0, 900.0, 0.5) == pytest.approx(180.0)


def test_the_slowest_rate_is_the_bottleneck_and_near_ties_are_mixed() -> None:
    assert loading.bottleneck(1000.0, 400.0, 700.0) == "prepare"
    assert loading.bottleneck(1000.0, 700.0, 400.0) == "fetch"
    assert loading.bottleneck(300.0, 700.0, 400.0) == "gpu"
    assert loading.bottleneck(1000.0, 410.0, 400.0) == "mixed"
    assert loading.prepare_stall_ratio(1000.0, 400.0) == pytest.approx(0.6)


def test_the_cache_that_hides_fetching_by_hand() -> None:
    # S 100, C 900, wanted 180: half of the data must come from memory.
    assert loading.cached_share_needed(100.0, 900.0, 180.0) == pytest.approx(0.5)
    assert loading.cached_share_needed(100.0, 900.0, 90.0) == 0.0
    assert loading.cached_share_needed(100.0, 900.0, 1000.0) is None


@pytest.mark.parametrize(("share", "hits"), [(0.35, 0.0700), (0.5, 0.1534), (0.65, 0.2826), (0.8, 0.4781)])
def test_a_cache_of_recent_samples_under_a_new_order_each_epoch(share: float, hits: float) -> None:
    assert loading.hits_least_recently_used(share) == pytest.approx(hits, abs=5e-5)
    assert loading.hits_kept(share) == share
    least, lru = loading.cache_share_for(hits)
    assert least == hits
    assert lru == pytest.approx(share, abs=2e-4)


def test_the_formula_of_a_cache_of_recent_samples_agrees_with_one_that_is_played_through() -> None:
    random, samples, size = Random(7), list(range(1000)), 650
    cache: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for epoch in range(6):
        random.shuffle(samples)
        for one in samples:
            hits += one in cache and epoch > 0
            cache[one] = None
            cache.move_to_end(one)
            if len(cache) > size:
                cache.popitem(last=False)
    assert hits / 5000 == pytest.approx(loading.hits_least_recently_used(0.65), abs=0.02)


def test_cores_and_shared_preparation_by_hand() -> None:
    assert loading.cpus_needed(8, 1000.0, 400.0) == 20
    # Four jobs share 400 samples/s: 100 each, and 400 each once they prepare together.
    assert loading.shared_preparation_gain(1000.0, 400.0, 4) == pytest.approx(4.0)
    assert loading.shared_preparation_gain(150.0, 400.0, 4) == pytest.approx(1.5)


def test_two_nodes_that_each_cache_half_need_no_storage() -> None:
    # Half from memory at 1000, half from the other node at 500: 0.0005 + 0.001 s.
    assert loading.partitioned_fetch_rate(10.0, 1000.0, 500.0, 0.5, 2) == pytest.approx(1 / 0.0015)


@given(RATES, RATES, SHARES)
def test_fetching_lies_between_both_rates(storage: float, memory: float, share: float) -> None:
    slow, fast = sorted((storage, memory))
    assert slow * (1 - 1e-9) <= loading.fetch_rate(storage, memory, share) <= fast * (1 + 1e-9)


@given(RATES, RATES, RATES)
def test_the_share_needed_gives_the_rate_wanted(storage: float, memory: float, wanted: float) -> None:
    share = loading.cached_share_needed(storage, memory, wanted)
    if share is not None and share > 0:
        assert loading.fetch_rate(storage, memory, share) == pytest.approx(wanted, rel=1e-6)


@given(SHARES)
def test_a_cache_that_never_evicts_serves_at_least_as_much(share: float) -> None:
    assert loading.hits_least_recently_used(share) <= loading.hits_kept(share) + 1e-12
