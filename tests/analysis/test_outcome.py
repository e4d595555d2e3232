"""What became of advice, held against later work."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from analysis import outcome_commands, pipeline
from analysis.outcome import Followed, Interval, Later, Record, Told, calibrated, follow, judge_intervals, record
from analysis.tables import outcomes_table
from tests.analysis.worlds import T0, World, allocation, attempt, job, sample
from warehouse.client import LocalClient
from warehouse.contract.model import Saving
from warehouse.contract.settings import Settings
from warehouse.contract.units import iso

HOUR = 3600.0
TOLD = Told("release", likely=60 * HOUR, allocated=100 * HOUR, used=20 * HOUR)


def test_a_family_that_holds_less_for_its_work_has_followed() -> None:
    # 10 h of work cost 50 h before, 25 h now: 25 h realised where 30 h were predicted.
    found = follow(TOLD, Later(allocated=25 * HOUR, used=10 * HOUR), Settings())
    assert found == Followed(adopted=True, reason="its later work cost less", predicted=30 * HOUR, realised=25 * HOUR)


def test_a_family_that_goes_on_as_before_has_not() -> None:
    found = follow(TOLD, Later(allocated=48 * HOUR, used=10 * HOUR), Settings())
    assert (found.adopted, found.realised) == (False, None)


def test_what_cannot_be_told_is_not_counted_as_refused() -> None:
    assert follow(TOLD, Later(allocated=None, used=None), Settings()).adopted is None
    assert follow(TOLD, Later(allocated=HOUR, used=600.0), Settings()).adopted is None
    assert follow(Told("release", None, HOUR, HOUR), Later(HOUR, HOUR), Settings()).adopted is None
    assert follow(Told("release", HOUR, None, None), Later(HOUR, HOUR), Settings()).adopted is None


def test_another_gpu_counts_by_its_mark_alone_and_claims_no_saving() -> None:
    told = Told("fuse", likely=60 * HOUR, allocated=100 * HOUR, used=20 * HOUR)
    assert follow(told, Later(10 * HOUR, 10 * HOUR), Settings()).adopted is None
    marked = follow(told, Later(10 * HOUR, 10 * HOUR, marked=True), Settings())
    assert (marked.adopted, marked.realised) == (True, None)


def test_the_record_reads_as_a_sentence() -> None:
    # 31 of 100 adopted; they gave 82 of 100 h said.
    rows = [(True, 10 * HOUR, 8.2 * HOUR)] * 10 + [(True, None, None)] * 21 + [(False, None, None)] * 69
    found: Any = record(rows)
    assert found == Record(100, 31, pytest.approx(0.82))  # type: ignore[arg-type]
    assert record(rows).sentence("last quarter") == (
        "Of last quarter's advice 31% was adopted and gave 82% of what we said."
    )
    assert record([]).sentence("last quarter") == "No advice was told in last quarter."
    assert record([(False, 1.0, None)]).sentence("May").endswith("what it gave is not known.")


def test_outcomes_scale_the_next_estimate_by_hand() -> None:
    # Ratios 0.5, 0.6 … 1.5: the 10th percentile is 0.6, the median 1.0, the 90th 1.4.
    ratios = [0.5 + at / 10 for at in range(11)]
    found = calibrated(Saving(1.0, 10.0, 20.0), ratios, 100.0, Settings())
    assert found is not None
    assert [found.low, found.likely, found.high] == pytest.approx([6.0, 10.0, 14.0])
    assert calibrated(Saving(1.0, 10.0, 20.0), ratios[:9], 100.0, Settings()) is None
    assert calibrated(Saving(0.0, None, 20.0), ratios, 100.0, Settings()) is None


def test_ranges_are_judged_pooled_with_their_width_by_hand() -> None:
    # Of four outcomes three lie within; widths 2 + 2 + 4 + 4 over likely 5 + 5 + 10 + 10.
    narrow, wide = Saving(4.0, 5.0, 6.0), Saving(8.0, 10.0, 12.0)
    found = judge_intervals([(narrow, 4.0), (narrow, 7.0), (wide, 9.0), (wide, 12.0), (Saving(0.0, None, 9.0), 5.0)])
    assert found == Interval(4, 0.75, 0.4)
    assert judge_intervals([]) is None


@given(st.lists(st.floats(-2.0, 5.0), min_size=10, max_size=40), st.floats(0.0, 1e6), st.floats(0.0, 1e6))
def test_a_calibrated_saving_is_ordered_within_the_allocation(ratios: list[float], likely: float, most: float) -> None:
    found = calibrated(Saving(0.0, likely, likely), ratios, most, Settings())
    assert found is not None
    assert found.likely is not None
    assert 0 <= found.low <= found.likely <= found.high <= most


@given(st.integers(20, 60))
def test_the_scaled_range_holds_four_fifths_of_what_it_was_made_of(count: int) -> None:
    ratios = [at / count for at in range(count)]
    found = calibrated(Saving(0.0, 1.0, 1.0), ratios, 10.0, Settings())
    assert found is not None
    inside = sum(1 for ratio in ratios if found.low <= ratio <= found.high)
    assert abs(inside / count - 0.8) <= 2 / count


def weeks(world: World, later_idle_hours: float) -> tuple[LocalClient, float]:
    """Four nights of one work that holds a card for 12 h and uses 2, then four that are idle for so long instead."""
    records: list[Any] = []
    samples: list[dict[str, Any]] = []
    for night in range(8):
        number, start = night + 1, night * 2 * 86_400.0
        idle = 10.0 if night < 4 else later_idle_hours
        end = start + (2 + idle) * HOUR
        records += [
            job(number, name=f"dream_{number}", user="ada", command="python dream.py"),
            attempt(number, start=start, end=end),
            allocation(number, f"GPU-{number}", start=start, end=end),
        ]
        samples += [
            sample(
                start + at * 300.0,
                f"GPU-{number}",
                number,
                cadence=300.0,
                driver_util_ratio=1.0 if at < 24 else 0.0,
                process_count=1.0,
            )
            for at in range(round((2 + idle) * 12))
        ]
    world.fill(records, samples)
    with world.store.transaction() as transaction:
        transaction.execute("DELETE FROM recommendation")
        transaction.execute("DELETE FROM outcome")
    return LocalClient(world.store, pipeline.ANSWERS, world.settings), T0 + 15 * 86_400.0


@pytest.mark.parametrize(("later_idle_hours", "state"), [(0.5, "adopted"), (10.0, "open")])
def test_advice_is_followed_from_one_week_into_the_next(world: World, later_idle_hours: float, state: str) -> None:
    client, now = weeks(world, later_idle_hours)
    until = str(iso(T0 + 7 * 86_400.0))
    first: Any = client.ask("recommend", {"until": until})
    assert [one["remedy"] for one in first["recommendations"]] == ["release"]
    client.advice("record", {"recommendations": outcome_commands._as_records(first)})
    document: Any = outcome_commands.bring_up_to_date(client, world.settings, now)
    (told,) = [one for one in document["recommendations"] if one["remedy"] == "release"]
    assert told["state"] == state
    if state == "adopted":
        # The last week holds 4 nights of 2 used hours: 8 x 6 h before, 10 h now: 38 h, where 4 x 9 h were predicted.
        assert told["predicted_gpu_seconds"] == pytest.approx(36 * HOUR, rel=0.02)
        assert told["realised_gpu_seconds"] == pytest.approx(38 * HOUR, rel=0.02)
        assert document["record"]["adopted"] == 1


def test_the_list_shows_whole_ids_in_80_columns() -> None:
    row = {"recommendation_id": "r-01216e28bd767d8b", "remedy": "choose_gpu", "subject_id": "f-a340293cba803899"}
    row |= {"state": "rejected", "reason": "needed for a demo of the whole group next week"}
    figures = {"likely_gpu_seconds": None, "high_gpu_seconds": 2.1e6, "realised_gpu_seconds": None}
    document: Any = {"recommendations": [row | figures], "record": {"sentence": "Of it 31% was adopted."}}
    stream = StringIO()
    Console(file=stream, width=80).print(outcomes_table(document))
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert any("r-01216e28bd767d8b" in line for line in lines)
    assert "at most" in stream.getvalue()
    assert lines[-1] == "Of it 31% was adopted."
