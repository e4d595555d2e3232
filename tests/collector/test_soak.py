"""The soak in its short form, and how it tells growth from noise."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from collector.benchmarks import soak
from collector.benchmarks._trend import growth
from collector.benchmarks._trouble import KINDS
from collector.benchmarks._watched import Size
from collector.simulate.standin import library_path
from warehouse.contract.errors import TrueloadError

MIB = 1024**2


def test_a_straight_line_grows_by_what_it_gains() -> None:
    found = growth([(float(at), 3.0 * at) for at in range(101)])
    assert found is not None
    assert (found.low, found.likely, found.high) == pytest.approx((300.0, 300.0, 300.0))


def test_noise_around_a_level_does_not_grow() -> None:
    draw = random.Random(3)
    found = growth([(float(at), 100.0 + draw.gauss(0, 5)) for at in range(400)])
    assert found is not None
    assert found.low < 0 < found.high
    assert abs(found.likely) < 5


def test_a_step_in_the_middle_is_growth() -> None:
    found = growth([(float(at), 100.0 if at < 200 else 120.0) for at in range(400)])
    assert found is not None
    assert found.low > 0


def test_too_few_values_tell_no_growth() -> None:
    assert growth([(float(at), 1.0) for at in range(19)]) is None


def seen(leak_bytes_per_second: float = 0.0) -> soak.Seen:
    sizes = [Size(at, 40 * MIB, int(25 * MIB + leak_bytes_per_second * at), 14, 7) for at in range(100)]
    ledger: dict[str, float] = {"lost": 0, "doubled": 0, "doubled_samples": 0, "batches": 50, "samples": 400}
    return soak.Seen(sizes, grace_seconds=1.0, back=8, left_in_spool=0, ledger=ledger)


def missed(what: soak.Seen, seconds: float = 100.0) -> list[str]:
    return [bar.name for bar in soak.judge(what, seconds).bars if not bar.holds]


def test_each_bar_can_be_missed() -> None:
    assert missed(seen()) == []
    assert missed(seen(leak_bytes_per_second=MIB / 10)) == ["growth of the agent's memory, upper end, bytes"]
    whole = seen()
    many = replace(whole.sizes[-1], threads=200, open_files=900)
    assert missed(replace(whole, sizes=[*whole.sizes, many])) == ["threads", "open files"]
    assert missed(replace(whole, ledger={**whole.ledger, "lost": 1})) == ["batches lost"]
    assert missed(replace(whole, ledger={**whole.ledger, "doubled_samples": 2})) == ["batches or rows doubled"]
    assert missed(replace(whole, back=7)) == ["devices that read again afterwards"]
    assert missed(replace(whole, grace_seconds=None)) == ["seconds to end with a call that is out"]
    assert missed(replace(whole, left_in_spool=3)) == ["batches left in the spool"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_half_a_minute_of_trouble_leaves_no_trace() -> None:
    try:
        library_path()
    except TrueloadError as error:
        pytest.skip(str(error))
    found = soak.soak(25.0, seed=11)
    assert missed(found, 25.0) == []
    assert found.disturbed["the server was killed"] >= 1
    assert sum(found.disturbed[kind] for kind in KINDS) >= 20
