"""Waves of kernels: occupancy, wave scaling between GPUs against Habitat's own figures, and fusing copies."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import waves
from analysis.gpu_file import read_catalogue
from analysis.occupancy import SM_LIMITS, Launch, resident_blocks
from analysis.waves import Card, Kernel, Work

# Habitat's own table of devices (2024): achievable bandwidth, base clocks, its FP32 figures.
V100 = Card("V100", 80, 1312e6, 739e9, SM_LIMITS["7.0"], 6716e9)
A100 = Card("A100", 108, 765e6, 1160e9, SM_LIMITS["8.0"], 9737e9)
T4 = Card("T4", 40, 585e6, 239e9, SM_LIMITS["7.5"], 3527e9)
LAUNCH = Launch(256, 32, 0)
MICROSECOND = 1e-6


def kernel(blocks: int, efficiency: float | None = None, dram_bytes: float | None = None) -> Kernel:
    """Give a kernel of 100 us on the V100 that reaches a share of its peak."""
    seconds = 100 * MICROSECOND
    flops = None if efficiency is None else efficiency * 6716e9 * seconds
    return Kernel(1, seconds, blocks, LAUNCH, dram_bytes, flops)


@pytest.mark.parametrize(
    ("capability", "launch", "blocks"),
    [
        ("7.0", Launch(256, 32, 0), 8),  # 2048 threads / 256
        ("7.5", Launch(256, 32, 0), 4),  # 1024 threads / 256
        ("8.0", Launch(256, 128, 0), 2),  # 16384 registers of a partition / 4096 a warp = 4 warps x 4 / 8
        ("8.0", Launch(256, None, 64 * 1024), 2),  # 164 KiB / (64 + 1) KiB
        ("9.0", Launch(32, None, None), 32),  # the limit of blocks
        ("8.6", Launch(1024, 32, None), 1),  # 1536 threads / 1024
        ("8.0", Launch(1024, 128, 0), 0),  # 131072 registers for one block of 65536
        ("7.5", Launch(128, 16, 96 * 1024), 0),
    ],
)
def test_an_sm_holds_what_its_scarcest_resource_allows(capability: str, launch: Launch, blocks: int) -> None:
    assert resident_blocks(SM_LIMITS[capability], launch) == blocks


def test_waves_are_whole_and_the_last_one_has_a_tail() -> None:
    one = kernel(1000)
    assert waves.wave_blocks(V100, one) == 640
    assert waves.wave_count(V100, one) == 2
    assert waves.empty_ratio(V100, one) == pytest.approx(280 / 1280)
    assert waves.empty_ratio(V100, kernel(640)) == 0.0


@pytest.mark.parametrize(
    ("one", "target", "microseconds"),
    [
        (kernel(1000), A100, 63.7069),
        (kernel(1000, 0.2, 100e6), A100, 67.5987),
        (kernel(1000, 0.6, 10e6), A100, 118.8126),
        (kernel(40, 0.2, 100e6), A100, 104.7433),
        (kernel(1000, 0.2, 100e6), T4, 314.8773),
    ],
)
def test_wave_scaling_gives_habitats_own_figures(one: Kernel, target: Card, microseconds: float) -> None:
    assert waves.kernel_on(one, V100, target).likely == pytest.approx(microseconds * MICROSECOND, rel=1e-6)


def test_a_small_kernel_without_counters_is_halfway_between_the_bandwidths_and_staying() -> None:
    found = waves.kernel_on(kernel(40), V100, A100)
    assert found.likely == pytest.approx(100 * MICROSECOND * (739 / 1160) ** 0.5)
    assert found.low == pytest.approx(63.7069 * MICROSECOND, rel=1e-6)
    assert found.high == pytest.approx(100 * MICROSECOND * 1312 / 765)  # one block on an SM, by the clocks


def test_the_host_is_scaled_by_nothing() -> None:
    # 10 s a stretch, 4 of them busy: on the A100 4 x 739/1160 = 2.548 s, so 8.548 in all.
    work = Work(10.0, 4.0, [kernel(1000)])
    moved = waves.work_on(work, V100, A100)
    assert moved.likely == pytest.approx(6.0 + 4.0 * 739 / 1160)
    assert moved.low == pytest.approx(6.0)  # the host works on meanwhile


def test_a_host_bound_job_fuses_nearly_for_free() -> None:
    # methods/waves.md: T = 10, G = 2; while G(B) <= 10, T(B) is 10 at best.
    work = Work(10.0, 2.0, [kernel(100)])
    five = waves.fusing_speedup(work, V100, 5)  # 500 blocks of 640: still one wave
    assert waves.fused_kernel(kernel(100), V100, 5).low == pytest.approx(100 * MICROSECOND)
    assert five.high == pytest.approx(5.0)
    assert five.low == pytest.approx(5 * 10 / (8 + 5 * 2))


def test_a_card_that_is_full_gains_nothing_by_fusing() -> None:
    full = Work(10.0, 10.0, [kernel(64_000)])
    gain = waves.fusing_speedup(full, V100, 4)
    assert gain.low == gain.likely == gain.high == pytest.approx(1.0)


def test_known_traffic_bounds_what_empty_waves_could_hide() -> None:
    half = kernel(10, dram_bytes=0.5 * 739e9 * 100 * MICROSECOND)  # half of the bandwidth, one wave of 640
    assert waves.fused_kernel(half, V100, 8).low == pytest.approx(4 * 100 * MICROSECOND)


def test_without_a_kernel_there_is_no_answer() -> None:
    with pytest.raises(ValueError, match="no kernel"):
        waves.fusing_speedup(Work(10.0, 5.0, []), V100, 2)


def test_a_slice_has_its_own_sms_and_its_share_of_the_bandwidth() -> None:
    whole = waves.card_of(next(gpu for gpu in read_catalogue().gpus if gpu.id == "a100-sxm4-40"))
    assert whole is not None
    part = waves.slice_of(whole, "2g.10gb", 28, 2 / 8)
    assert part.sm_count == 28
    assert part.memory_bytes_per_second == pytest.approx(1555e9 / 4, rel=0.01)


def test_nearly_every_gpu_with_cuda_has_a_card() -> None:
    nvidia = [gpu for gpu in read_catalogue().gpus if gpu.vendor == "NVIDIA"]
    without = [gpu.id for gpu in nvidia if waves.card_of(gpu) is None]
    assert set(without) <= {"k80", "b100"}, without


KERNELS = st.builds(
    Kernel,
    st.floats(1, 1e6),
    st.floats(1e-6, 1e3),
    st.integers(1, 10**6),
    st.builds(Launch, st.integers(1, 1024), st.integers(1, 128) | st.none(), st.integers(0, 48 * 1024) | st.none()),
    st.floats(0, 1e12) | st.none(),
)
WORKS = st.builds(
    lambda busy, host, kernels: Work(busy + host, busy, kernels),
    st.floats(1e-3, 1e3),
    st.floats(0, 1e3),
    st.lists(KERNELS, min_size=1, max_size=4),
)


@given(WORKS, st.integers(1, 32))
def test_fusing_gains_at_least_nothing_and_at_most_the_copies(work: Work, copies: int) -> None:
    gain = waves.fusing_speedup(work, A100, copies)
    assert 1.0 - 1e-9 <= gain.low <= gain.likely <= gain.high <= copies * (1 + 1e-9)


@given(WORKS, st.integers(1, 16))
def test_more_copies_never_need_less_time(work: Work, copies: int) -> None:
    fewer, more = (waves.fused_work(work, A100, count) for count in (copies, copies + 1))
    assert more.low >= fewer.low * (1 - 1e-9)
    assert more.likely >= fewer.likely * (1 - 1e-9)
    assert more.high >= fewer.high * (1 - 1e-9)


@given(WORKS, st.floats(1.0, 4.0))
def test_a_faster_memory_never_makes_work_longer(work: Work, factor: float) -> None:
    faster = replace(A100, memory_bytes_per_second=A100.memory_bytes_per_second * factor)
    assert waves.work_on(work, V100, faster).likely <= waves.work_on(work, V100, A100).likely * (1 + 1e-9)
