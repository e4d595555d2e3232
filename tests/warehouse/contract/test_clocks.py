"""One exchange bounds how far two clocks are apart, however its time is shared between the two ways."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from warehouse.contract.clocks import Offset, offset_between

delays = st.floats(0.0, 100.0)


@given(ahead=st.floats(-1e6, 1e6), there=delays, work=delays, back=delays)
def test_the_true_offset_lies_within_and_the_width_is_the_round_trip(
    ahead: float, there: float, work: float, back: float
) -> None:
    asked = 1000.0
    found = offset_between(asked + ahead, asked + there + work + back + ahead, asked + there, asked + there + work)
    assert found is not None
    assert found.low - 1e-6 <= ahead <= found.high + 1e-6
    assert math.isclose(found.high - found.low, there + back, abs_tol=1e-6)


def test_instants_that_contradict_each_other_tell_nothing() -> None:
    assert offset_between(10.0, 10.0, 5.0, 6.0) is None  # answered later than heard, by an offset of 5 that was certain


def test_a_slow_exchange_proves_nothing() -> None:
    assert not offset_between(0.0, 60.0, 30.0, 30.0).is_beyond(2.0)  # type: ignore[union-attr]
    assert Offset(2.5, 60.0).is_beyond(2.0)
    assert Offset(-60.0, -2.5).is_beyond(2.0)


def test_in_words() -> None:
    assert str(Offset(2.0, 3.0)) == "2.5 s ahead (give or take 0.5 s)"
    assert str(Offset(-3.0, -2.0)) == "2.5 s behind (give or take 0.5 s)"
    assert str(Offset(2.0, math.inf)) == "at least 2.0 s ahead"
    assert str(Offset(-2.0, math.inf)) == "at most 2.0 s behind"
