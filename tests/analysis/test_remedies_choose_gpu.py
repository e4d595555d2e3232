"""What another GPU or a slice would have cost for the same work."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.account import GpuSeconds
from analysis.estimate import Range
from analysis.evidence import AttemptEvidence, Reading
from analysis.gpu_catalogue import Catalogue, Price
from analysis.gpu_file import read_catalogue
from analysis.gpu_options import Option, Subject, options, price_ratio, times, with_host
from analysis.gpu_site import SiteGpus, site_gpus
from analysis.occupancy import Launch
from analysis.remedies.choose_gpu import LONGEST_TIME, MODELS, REMEDY, SLICES
from analysis.remedy import Case
from analysis.waves import Kernel, Work
from warehouse.contract import model
from warehouse.contract.metrics import Rung
from warehouse.contract.model import AttemptState, Recommendation, Refusal
from warehouse.contract.settings import Settings

HOUR = 3600.0
GIB = 2.0**30
V100, A100 = "Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-40GB"
H100 = "NVIDIA H100 80GB HBM3"


def catalogue(**per_hour: float) -> Catalogue:
    """Give the catalogue with the site's own prices alone, by id with _ for -."""
    prices = [Price(gpu.replace("_", "-"), price, "EUR", "site") for gpu, price in per_hour.items()]
    return replace(read_catalogue(), prices=tuple(prices))


PRICED = catalogue(v100_sxm2_16=1.0, a100_sxm4_40=1.0)
UNPRICED = catalogue()


def member(number: int, gpu: str | None = V100, hours: float = 10, used: float | None = 0.8, **more: Any) -> Any:
    """A member on one GPU that is busy for a share of its time; its pauses are short."""
    held = hours * HOUR
    known = (
        None
        if used is None
        else GpuSeconds(held, 0.0, 0.0, held * used, held * (1 - used), 0.0, 0.0, held * (1 - used))
    )
    facts: dict[str, Any] = {
        "attempt_key": f"c/{number}#0:1",
        "job_key": f"c/{number}#0",
        "scheduler_job_id": str(number),
        "cluster": "c",
        "state": AttemptState.COMPLETED,
        "start_at": 0.0,
        "end_at": hours * HOUR,
        "gpu_count": 1.0,
        "node_count": 1,
        "gpu_seconds": known or GpuSeconds(held, held, 0.0),
        "gpu_model": gpu,
        "device_memory_bytes": None,
        "memory_peak_bytes": 8 * GIB,
    }
    return AttemptEvidence(**(facts | more))


def case(*attempts: AttemptEvidence, prices: Catalogue = PRICED, site: SiteGpus | None = None) -> Case:
    known = site or site_gpus(attempts, [("f-1", attempts)], prices)
    return Case(model.Subject("family", "f-1"), "ada: unet", attempts, Rung.GPU_BOUND, 0.0, 1000 * HOUR, site=known)


def judge(*attempts: AttemptEvidence, prices: Catalogue = PRICED, **settings: Any) -> Recommendation | Refusal | None:
    return REMEDY.judge(case(*attempts, prices=prices), Settings(settings))


def advice(*attempts: AttemptEvidence, **more: Any) -> Recommendation:
    found = judge(*attempts, **more)
    assert isinstance(found, Recommendation), found
    return found


def refusal(*attempts: AttemptEvidence, **more: Any) -> Refusal:
    found = judge(*attempts, **more)
    assert isinstance(found, Refusal), found
    return found


def on_both(fast_hours: float = 5.0) -> list[Any]:
    """Three runs of ten hours on V100s, and three shorter ones on A100s."""
    slow = [member(number) for number in range(3)]
    return [*slow, *(member(number, A100, fast_hours) for number in range(3, 6))]


def test_a_family_that_ran_on_both_by_hand() -> None:
    # Equal runs: 10 h and 5 h, so x 0.5 with the least spread, exp(1.2816 x 0.05) = 1.0662.
    # 30 GPU-hours of V100 at equal prices: 30 x (1 - 0.5), and with x 0.5331 and x 0.4690 at the ends.
    found = advice(*on_both())
    saving = found.saving_gpu_seconds
    width = math.exp(1.2816 * 0.05)
    assert saving.likely == pytest.approx(15 * HOUR)
    assert saving.low == pytest.approx(30 * HOUR * (1 - 0.5 * width))
    assert saving.high == pytest.approx(30 * HOUR * (1 - 0.5 / width))
    assert found.confidence == "measured"
    assert found.title == f"Take another GPU ({A100}): ada: unet"
    assert found.evidence[0] == f"3 jobs on {V100}: 30.0 GPU-hours of work, 80% of them busy"
    assert found.evidence[2] == f"frees these hours there, and takes 14.07 / 15.00 / 15.99 hours on {A100}"
    assert "run time x 0.47 / 0.50 / 0.53, price x 1.00" in found.evidence[3]
    assert "memory: 8.0 GiB at most in use, 40 GiB there" in found.evidence


def test_a_dearer_gpu_has_to_be_faster_by_more() -> None:
    # At 1.5 times the price the cost is x 0.75: 7.5 of 30 hours; at twice the price nothing is saved.
    found = advice(*on_both(), prices=catalogue(v100_sxm2_16=1.0, a100_sxm4_40=1.5))
    assert found.saving_gpu_seconds.likely == pytest.approx(7.5 * HOUR)
    assert judge(*on_both(), prices=catalogue(v100_sxm2_16=1.0, a100_sxm4_40=2.0)) is None


def light(*members: Any) -> list[Any]:
    """Let members weigh one GPU-hour each, so that others are the subject's main work."""
    return [replace(one, gpu_seconds=GpuSeconds(HOUR, 0.0, 0.0, HOUR, 0.0)) for one in members]


def test_a_slower_and_cheaper_gpu_is_advice_too_within_the_longest_time() -> None:
    # 45 hours on A100s. On V100s, at a fifth of the price, it takes twice the time: x 0.4.
    slow = light(*(member(n, V100, 30.0) for n in range(3, 6)))
    members = [*(member(n, A100, 15.0) for n in range(3)), *slow]
    prices = catalogue(v100_sxm2_16=0.2, a100_sxm4_40=1.0)
    assert advice(*members, prices=prices).saving_gpu_seconds.likely == pytest.approx(45 * HOUR * 0.6)
    assert judge(*members, prices=prices, **{LONGEST_TIME.name: 2.0}) is None


def test_what_does_not_fit_is_never_advised() -> None:
    # 16 GiB less a tenth: 14.4 GiB fit on the V100, 14.5 do not.
    def on_a100(peak: float) -> list[Any]:
        large = [member(n, A100, 15.0, memory_peak_bytes=peak) for n in range(3)]
        return [*large, *light(*(member(n, V100, 15.0, memory_peak_bytes=GIB) for n in range(3, 6)))]

    cheap = catalogue(v100_sxm2_16=0.2, a100_sxm4_40=1.0)
    assert advice(*on_a100(14.3 * GIB), prices=cheap).title.startswith(f"Take another GPU ({V100})")
    assert judge(*on_a100(14.5 * GIB), prices=cheap, **{SLICES.name: False}) is None


def test_a_slice_for_work_that_needs_a_seventh_of_the_card() -> None:
    small = member(1, H100, used=0.1, ladder={"sm_active_ratio": Reading(0.05, "gpm", 1.0)})
    found = advice(small, prices=UNPRICED)
    assert found.title == "Take a slice (1g.10gb): ada: unet"
    saving = found.saving_gpu_seconds
    # Nine tenths of the time is the host's: a seventh of the card for little more time.
    assert 10 * HOUR * 0.7 < saving.low < (saving.likely or 0) < saving.high < 10 * HOUR * (1 - 1 / 7)
    assert "nvidia.com/mig-1g.10gb: 1" in found.action
    assert any("partitioned" in risk for risk in found.risks)
    assert judge(small, prices=UNPRICED, **{SLICES.name: False}) is None


def test_work_that_fills_its_card_gets_no_slice_and_no_advice() -> None:
    full = {"sm_active_ratio": Reading(0.9, "gpm", 1.0)}
    assert judge(member(1, H100, used=0.95, ladder=full), prices=UNPRICED) is None


def test_a_job_of_several_gpus_gets_no_slice() -> None:
    wide = member(1, H100, used=0.1, gpu_count=8.0, ladder={"sm_active_ratio": Reading(0.05, "gpm", 1.0)})
    assert judge(wide, prices=UNPRICED) is None


@pytest.mark.parametrize(
    ("attempts", "prices", "reason", "needs"),
    [
        ([member(1, None)], PRICED, "The model of the GPUs", "GPU types in accounting"),
        ([member(1, "Fancy 9000")], PRICED, "The catalogue does not know Fancy 9000", "gpus.file"),
        ([member(1, used=None), member(2, A100)][:1], PRICED, "Accounting tells who held", "device samples"),
        (
            [member(1, memory_peak_bytes=None), member(2, A100, 1, memory_peak_bytes=None)],
            PRICED,
            "How much device memory",
            "memory in use",
        ),
        ([member(1), member(2, A100, 1)], UNPRICED, "No provider is known to price both", "gpus.file"),
        ([member(1, H100)], UNPRICED, "No other GPU can be judged, and of slices", "SM activity"),
    ],
)
def test_each_missing_input_is_a_refusal_that_says_what_it_needs(
    attempts: list[Any], prices: Catalogue, reason: str, needs: str
) -> None:
    found = refusal(*attempts, prices=prices)
    assert found.reason.startswith(reason)
    assert any(needs in need for need in found.needs)


def test_where_there_is_nothing_else_there_is_nothing_to_say() -> None:
    assert judge(member(1)) is None  # one model, and no slices
    assert judge(member(1, hours=0.05), member(2, A100, 0.05)) is None  # too short
    assert judge(member(1, gpu_count=0.5)) is None  # a slice already


def test_the_site_may_name_models_that_no_work_ran_on() -> None:
    # Data sheets alone: the A100 takes about half; at a twentieth of the price that is sure.
    cheap = catalogue(v100_sxm2_16=1.0, a100_sxm4_40=0.05)
    found = advice(member(1), prices=cheap, **{MODELS.name: ("a100-sxm4-40",)})
    assert found.confidence == "calibrated"
    assert "reference measurements of A100 and V100" in found.how


def test_long_idle_stretches_are_not_claimed() -> None:
    idle = GpuSeconds(100 * HOUR, 10 * HOUR, 0.0, 8 * HOUR, 82 * HOUR, 40 * HOUR, 40 * HOUR, 2 * HOUR)
    members = [replace(one, gpu_seconds=idle) if one.gpu_model == V100 else one for one in on_both()]
    found = advice(*members)
    assert found.saving_gpu_seconds.likely == pytest.approx(3 * 10 * HOUR / 2)  # 8 used + 2 of pauses, of each


def test_waiting_times_stand_beside_the_speed() -> None:
    waited = [replace(one, submit_at=-HOUR * (2 if one.gpu_model == V100 else 0.5)) for one in on_both()]
    assert f"wait in the queue, median: 2.0 h for {V100} (3), 0.5 h for {A100} (3)" in advice(*waited).evidence


# ---------------------------------------------------------------------------------------------------------- estimators


def chosen(subject: Subject, site: SiteGpus, name: str = A100) -> Option:
    (found,) = options(subject, [name], site, 0.1)
    assert isinstance(found, Option)
    return found


def subject(site: SiteGpus, **more: Any) -> Subject:
    return Subject("f-1", V100, site.gpus(V100), 0.9, 8 * GIB, **more)


def test_the_narrowest_estimator_is_taken_and_says_so() -> None:
    alone = site_gpus([member(1)], (), PRICED)
    assert chosen(subject(alone), alone).estimator == "specifications"
    others = site_gpus([member(1)], [(f"f-{n}", on_both()) for n in range(2, 5)], PRICED)
    assert chosen(subject(others), others).estimator == "transfer"
    work = Work(10.0, 9.0, (Kernel(1, 9.0, 100_000, Launch(256, 32, 0)),))
    traced = chosen(subject(alone, works=(work,)), alone)
    assert traced.estimator == "waves"
    assert traced.time.likely == pytest.approx((1 + 9 * 900 / 1555) / 10, rel=0.01)  # by the bandwidths
    own = site_gpus([member(1)], [("f-1", on_both())], PRICED)
    assert chosen(subject(own, works=(work,)), own).estimator == "measured"


def test_two_runs_are_too_few_to_be_measured() -> None:
    pair = [member(1), member(2), member(3, A100), member(4, A100)]
    assert site_gpus(pair, [("f-1", pair)], PRICED).measured == {}


def test_memory_tells_variants_of_a_model_apart() -> None:
    found = site_gpus([member(1, "a100", device_memory_bytes=79.2 * GIB)], (), PRICED)
    assert {gpu.id for gpu in found.gpus("a100")} == {"a100-sxm4-80", "a100-pcie-80"}


def test_prices_are_compared_at_one_provider() -> None:
    one = Price("v100-sxm2-16", 2.0, "USD", "s", "2025", provider="x", kind="on_demand")
    same = replace(one, gpu="a100-sxm4-40", per_gpu_hour=3.0)
    newer = replace(same, per_gpu_hour=4.0, date="2026")
    elsewhere = replace(same, per_gpu_hour=0.1, provider="y")
    gpus = {gpu.id: gpu for gpu in read_catalogue().gpus}
    sides = [gpus["v100-sxm2-16"]], [gpus["a100-sxm4-40"]]

    def ratio(*prices: Price) -> Any:
        return price_ratio(replace(read_catalogue(), prices=prices), *sides)

    assert ratio(one, same, newer, elsewhere) == (Range(2.0, 2.0, 2.0), "prices of x, dated 2025 to 2026")
    assert ratio(one, elsewhere) == (None, "no provider is known to price both")


RATIOS = st.tuples(st.floats(0.05, 1.0), st.floats(1.0, 20.0), st.floats(0.05, 20.0)).map(
    lambda three: Range(three[0] * three[2], three[2], three[1] * three[2])
)


@given(RATIOS, RATIOS)
def test_a_product_is_wider_than_either_and_narrower_than_both_together(one: Range, other: Range) -> None:
    found = times(one, other)
    assert found.likely == pytest.approx(one.likely * other.likely)
    assert one.low * other.low * (1 - 1e-9) <= found.low
    assert found.high <= one.high * other.high * (1 + 1e-9)
    assert found.high / found.likely >= max(one.high / one.likely, other.high / other.likely) * (1 - 1e-9)


@given(RATIOS, st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_the_more_the_host_works_the_less_a_gpu_changes(ratio: Range, less: float, more: float) -> None:
    less, more = sorted((less, more))
    assert abs(with_host(ratio, less).likely - 1) <= abs(with_host(ratio, more).likely - 1) + 1e-9


HOURS = st.floats(1.0, 100.0)
SHARES = st.floats(0.0, 1.0)


@given(HOURS, HOURS, SHARES, SHARES, st.floats(0.05, 5.0))
def test_a_saving_stays_within_the_allocation(
    slow: float, fast: float, used: float, active: float, price: float
) -> None:
    members = [member(n, A100, slow, used, ladder={"sm_active_ratio": Reading(active, "gpm", 1.0)}) for n in range(3)]
    members += [member(n, V100, fast, used) for n in range(3, 6)]
    found = judge(*members, prices=catalogue(v100_sxm2_16=price, a100_sxm4_40=1.0))
    if isinstance(found, Recommendation):
        saving = found.saving_gpu_seconds
        assert (
            0 < saving.low <= (saving.likely or 0) <= saving.high <= sum(one.gpu_seconds.allocated for one in members)
        )


@given(st.floats(0.01, 3.0), st.floats(0.01, 3.0), st.floats(0.5, 20.0), st.floats(0.5, 20.0))
def test_a_saving_falls_with_the_price_and_with_the_time(low: float, high: float, short: float, long: float) -> None:
    (low, high), (short, long) = sorted((low, high)), sorted((short, long))

    def likely(price: float, hours: float) -> float:
        prices = catalogue(v100_sxm2_16=1.0, a100_sxm4_40=price)
        found = judge(*on_both()[:3], *light(*on_both(hours)[3:]), prices=prices)
        return (found.saving_gpu_seconds.likely or 0.0) if isinstance(found, Recommendation) else 0.0

    assert likely(low, short) >= likely(high, short) >= likely(high, long)
