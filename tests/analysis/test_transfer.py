"""Time on another GPU from specifications, references and pairs of the site's own."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import transfer
from analysis.gpu_catalogue import Gpu
from analysis.gpu_file import read_catalogue
from analysis.reference_times import learned, references, workload_family
from analysis.transfer import Learned, NumberType, Reference, WorkKind

GPUS = {gpu.id: gpu for gpu in read_catalogue().gpus}
A100, H100, V100 = GPUS["a100-sxm4-80"], GPUS["h100-sxm-80"], GPUS["v100-sxm2-16"]
KNOWN = [gpu for gpu in GPUS.values() if not transfer.missing_facts(gpu)]
HALF = NumberType.HALF


def made(name: str, speed: float) -> Gpu:
    """Make a GPU that is the A100 with every rate times a factor."""
    facts = ("memory_bytes_per_second", "fp32_flops_per_second", "fp16_tensor_flops_per_second", "boost_clock_hertz")
    return replace(A100, id=name, model=name, **{fact: getattr(A100, fact) * speed for fact in facts})


def test_a_card_that_is_twice_as_fast_in_all_takes_half_the_time() -> None:
    found = Learned(A100, ()).time_ratio([A100], [made("twice", 2.0)], HALF)
    assert found.range.likely == pytest.approx(0.5)
    assert found.reference_models == ()


def test_parts_add_up_by_their_weights() -> None:
    # Bandwidth doubled alone: 4/7 of the time halves: 2/7 + 3/7.
    faster = replace(A100, id="b", model="b", memory_bytes_per_second=2 * (A100.memory_bytes_per_second or 0))
    assert Learned(A100, ()).time_ratio([A100], [faster], HALF).range.likely == pytest.approx(5 / 7)


def test_without_references_the_width_is_that_of_the_spreads() -> None:
    # Same shares on both sides: what is left is two sites, two unseen GPUs and two measurements.
    found = Learned(A100, ()).time_ratio([A100], [made("twice", 2.0)], HALF).range
    variance = 2 * (transfer.SITE_SPREAD**2 + transfer.GPU_SPREAD**2 + transfer.NOISE**2)
    assert math.log(found.high / found.likely) == pytest.approx(1.2816 * math.sqrt(variance))
    assert found.likely / found.low == pytest.approx(found.high / found.likely)


def test_references_move_the_estimate_towards_what_was_measured() -> None:
    twice = made("twice", 2.0)
    rows = [Reference("s", f"w{number}", HALF, WorkKind.TRAINING, ((A100, 1.0), (twice, 0.4))) for number in range(20)]
    taught = Learned(A100, rows)
    found = taught.time_ratio([A100], [twice], HALF)
    assert 0.4 < found.range.likely < 0.5
    assert found.reference_models == ("A100", "twice")
    only = [replace(row, family="w0") for row in rows]
    unseen = Learned(A100, only).time_ratio([A100], [twice], HALF, without="w0")
    assert unseen.range.likely == pytest.approx(0.5)  # the family was left out, and there is no other


def test_pairs_of_the_sites_own_weigh_with_their_number() -> None:
    twice = made("twice", 2.0)
    model = Learned(A100, ())
    few, many = (model.time_ratio([A100], [twice], HALF, local=[0.3] * count) for count in (1, 100))
    # By hand: shared variance 0.025, own 0.18: one pair has a weight of 0.025 / 0.205.
    weight = 0.025 / (0.025 + 0.18)
    assert few.range.likely == pytest.approx(math.exp((1 - weight) * math.log(0.5) + weight * math.log(0.3)))
    assert many.range.likely == pytest.approx(0.3, rel=0.05)
    assert many.range.high / many.range.low < few.range.high / few.range.low
    assert many.local_count == 100


def test_a_number_type_that_is_not_told_lies_between_the_two() -> None:
    half, single, untold = (
        learned().time_ratio([V100], [A100], kind).range.likely for kind in (HALF, NumberType.SINGLE, None)
    )
    assert min(half, single) < untold < max(half, single)


def test_there_and_back_is_where_one_began() -> None:
    there, back = (learned().time_ratio([one], [other], HALF).range for one, other in ((A100, H100), (H100, A100)))
    assert there.likely * back.likely == pytest.approx(1.0)
    assert there.low * back.high == pytest.approx(1.0)


def test_a_gpu_without_a_clock_is_not_estimable() -> None:
    with pytest.raises(ValueError, match="b100: the catalogue lacks boost_clock_hertz"):
        learned().time_ratio([A100], [GPUS["b100"]])


def test_references_are_of_several_sources_and_every_row_has_two_gpus() -> None:
    assert {one.source for one in references()} == {"zeus", "gavel", "mlperf", "timm"}
    assert all(len(one.seconds) > 1 for one in references())
    assert learned().half_widths[WorkKind.INFERENCE] < learned().half_widths[WorkKind.TRAINING]


@pytest.mark.parametrize(
    ("name", "family"), [("ResNet-18 (batch size 16)", "resnet"), ("bert_base", "bert"), ("3d-unet", "d"), ("42", "42")]
)
def test_a_family_of_work_is_the_first_word_of_its_name(name: str, family: str) -> None:
    assert workload_family(name) == family


@given(st.sampled_from(KNOWN), st.sampled_from(KNOWN), st.sampled_from([*NumberType, None]))
def test_every_answer_is_in_order_and_positive(origin: Gpu, target: Gpu, number_type: NumberType | None) -> None:
    found = learned().time_ratio([origin], [target], number_type).range
    assert 0 < found.low <= found.likely <= found.high < math.inf


@given(st.floats(1.0, 8.0), st.floats(1.0, 8.0))
def test_more_of_everything_is_never_slower(less: float, more: float) -> None:
    less, more = sorted((less, more))
    model = Learned(A100, ())
    slow, fast = (model.time_ratio([A100], [made("x", speed)], HALF).range.likely for speed in (less, more))
    assert fast <= slow * (1 + 1e-12)
