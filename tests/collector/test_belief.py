"""Sources that went numb and drivers that fall silent: what is believed, what is said, what begins anew."""

from __future__ import annotations

from collector.aggregate import Moment
from collector.belief import NumbSources, Silence
from collector.source import Reading


class Watched:
    """A watch of three rounds, and what it told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.watch = NumbSources(3, lambda kind, device, _detail: self.told.append((kind, device)))

    def round(self, driver: float | None, engine: float, card: str = "GPU-a") -> tuple[dict[str, float], int]:
        """Give what is believed of the counters, and how many sources have to begin anew."""
        plain = {} if driver is None else {"driver_util_ratio": driver}
        counters = {"engine_active_ratio": engine, "sm_active_ratio": engine, "pcie_received_bytes": 7.0}
        found = {"nvml": [Reading(card, plain)], "gpm": [Reading(card, counters)]}
        believed, begin_anew = self.watch.judge(found)
        assert believed["nvml"] == found["nvml"]
        return dict(believed["gpm"][0].values), len(begin_anew)


def test_u11_counters_that_read_nothing_of_a_busy_card_begin_anew_once_and_are_absent_not_zero() -> None:
    watched = Watched()
    rounds = [watched.round(1.0, 0.0) for _ in range(10)]
    assert [anew for _, anew in rounds] == [0, 0, 1, 0, 0, 0, 0, 0, 0, 0]
    assert "engine_active_ratio" in rounds[1][0]
    assert rounds[2][0] == rounds[9][0] == {"pcie_received_bytes": 7.0}
    assert watched.told == [("source_unreliable", "GPU-a")]


def test_u11_counters_that_read_something_again_are_believed_again() -> None:
    watched = Watched()
    for _ in range(4):
        watched.round(1.0, 0.0)
    assert "engine_active_ratio" not in watched.round(0.0, 0.0)[0]  # an idle card proves nothing
    assert watched.round(1.0, 0.4)[0]["engine_active_ratio"] == 0.4
    assert watched.told[-1] == ("source_believed", "GPU-a")
    assert watched.round(1.0, 0.0)[0]["engine_active_ratio"] == 0.0


def test_an_idle_card_and_one_whose_driver_says_nothing_stay_zero() -> None:
    watched = Watched()
    for driver in (0.0, None, 0.4) * 5:
        assert watched.round(driver, 0.0)[0]["engine_active_ratio"] == 0.0
    assert watched.told == []


def test_rounds_of_nothing_have_to_follow_each_other() -> None:
    watched = Watched()
    for _ in range(5):
        assert watched.round(1.0, 0.0)[1] == 0
        assert watched.round(1.0, 0.0)[1] == 0
        watched.round(1.0, 0.001)
    assert watched.told == []


def test_one_numb_card_costs_no_other() -> None:
    watched = Watched()
    for _ in range(5):
        watched.round(1.0, 0.0, "GPU-a")
        assert watched.round(1.0, 0.7, "GPU-b")[0]["engine_active_ratio"] == 0.7


def test_silence_counts_from_the_first_round_without_any_value() -> None:
    silence = Silence()
    speaks, says_nothing = [Reading("GPU-a", {"power_watts": 1.0})], [Reading("GPU-a", {})]
    told = [
        silence.seconds(Moment(at, at), {"nvml": found}, has_devices=True)
        for at, found in enumerate((speaks, says_nothing, says_nothing, [], speaks))
    ]
    assert told == [0.0, 0.0, 1.0, 2.0, 0.0]
    assert silence.seconds(Moment(9.0, 9.0), {}, has_devices=False) == 0.0
