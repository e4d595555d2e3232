"""The sweep: hand-worked stretches, and the laws that hold for any."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from analysis.traces.breakdown import Work, breakdown_of, work_of
from analysis.traces.kernels import kernel_table
from analysis.traces.overlap import overlap_of, sweep
from analysis.traces.steps import step_table
from warehouse.contract import intervals
from warehouse.timeline import (
    NO_CORRELATION,
    Activity,
    Calls,
    GpuEvents,
    KernelConfig,
    Spans,
    Step,
    Timeline,
    concatenate,
)

CONFIGS = (
    KernelConfig("gemm", (8, 1, 1), (128, 1, 1)),
    KernelConfig("ncclDevKernel_AllReduce"),
    KernelConfig("Memcpy HtoD"),
)
GEMM, NCCL, COPY = range(3)

Row = tuple[Activity, int, int, int]
"""Activity, configuration, start and end."""


def spans(*pairs: tuple[int, int]) -> Spans:
    starts, ends = zip(*pairs, strict=True) if pairs else ((), ())
    return Spans.union(np.array(starts, np.int64), np.array(ends, np.int64))


def timeline(rows: list[Row], cpu: Spans, steps: tuple[Step, ...] = ()) -> Timeline:
    table = np.array([(a, c, start, end - start) for a, c, start, end in rows], np.int64).reshape(-1, 4)
    nothing = np.zeros(len(rows), np.int64)
    activity, config = table[:, 0].astype(np.int32), table[:, 1].astype(np.int32)
    none = nothing + NO_CORRELATION
    empty = np.empty(0, np.int64)
    return Timeline(
        rank=0,
        world_size=1,
        clock_zero_ns=None,
        device_names={},
        gpu=concatenate([GpuEvents(table[:, 2], table[:, 3], activity, config, nothing, nothing, none)]),
        configs=CONFIGS,
        calls=Calls(empty, empty, empty, np.empty(0, np.int32), ()),
        cpu=cpu,
        steps=steps,
        event_counts={},
        refused=(),
        labels={},
        has_decimals=False,
    )


def test_time_is_sorted_by_who_was_busy() -> None:
    #  gpu  [10------30)      [40--50)
    #  cpu [0----20)   [32-36)        …
    found = overlap_of(
        timeline([(Activity.KERNEL, GEMM, 10, 30), (Activity.MEMCPY, COPY, 40, 50)], spans((0, 20), (32, 36), (60, 70)))
    )
    assert found is not None
    assert found.span_ns == 40
    assert (found.cpu_only_ns, found.gpu_only_ns, found.overlap_ns, found.idle_ns) == (4, 20, 10, 6)


def test_a_wait_that_is_booked_on_a_stream_is_no_work() -> None:
    found = overlap_of(timeline([(Activity.KERNEL, GEMM, 10, 30), (Activity.SYNC, GEMM, 30, 90)], spans()))
    assert found is not None
    assert (found.span_ns, found.gpu_only_ns) == (20, 20)


def test_without_work_of_a_device_there_is_no_answer() -> None:
    nothing = timeline([], spans((0, 10)))
    assert (overlap_of(nothing), breakdown_of(nothing), kernel_table(nothing)) == (None, None, ())


def test_every_set_of_parts_has_its_own_time() -> None:
    times = sweep({"a": spans((0, 10)), "b": spans((5, 15)), "c": spans((8, 9))}, 0, 20)
    assert times == {
        frozenset("a"): 5,
        frozenset("ab"): 4,
        frozenset("abc"): 1,
        frozenset("b"): 5,
        frozenset(): 5,
    }


def test_classes_may_overlap_and_hidden_communication_is_a_share() -> None:
    found = breakdown_of(
        timeline(
            [
                (Activity.KERNEL, GEMM, 0, 10),
                (Activity.KERNEL, GEMM, 5, 20),
                (Activity.KERNEL, NCCL, 15, 35),
                (Activity.MEMCPY, COPY, 30, 40),
            ],
            spans(),
        )
    )
    assert found is not None
    assert (found.compute_ns, found.communication_ns, found.memory_ns) == (20, 20, 10)
    assert (found.gpu_bound_ns, found.copy_ns, found.gpu_busy_ns) == (35, 10, 40)
    assert found.communication_overlap_ratio == 0.25


def test_without_communication_no_share_of_it_is_hidden_or_shown() -> None:
    found = breakdown_of(timeline([(Activity.KERNEL, GEMM, 0, 10)], spans()))
    assert found is not None
    assert found.communication_overlap_ratio is None


def test_kernels_of_communication_libraries_are_known_by_name() -> None:
    assert work_of(Activity.KERNEL, "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)") is Work.COMMUNICATION
    assert work_of(Activity.KERNEL, "rcclGenericKernel") is Work.COMMUNICATION
    assert work_of(Activity.KERNEL, "Cijk_Alik_Bljk_SB") is Work.COMPUTE
    assert work_of(Activity.MEMSET, "Memset (Device)") is Work.MEMORY


def test_the_table_of_kernels_counts_sums_and_keeps_the_longest() -> None:
    first, second = kernel_table(
        timeline(
            [(Activity.KERNEL, GEMM, 0, 10), (Activity.KERNEL, NCCL, 0, 50), (Activity.KERNEL, GEMM, 20, 25)], spans()
        )
    )
    assert (first.config.name, first.launch_count, first.total_ns) == ("ncclDevKernel_AllReduce", 1, 50)
    assert (second.launch_count, second.total_ns, second.longest_ns, second.work) == (2, 15, 10, Work.COMPUTE)


def test_a_step_has_the_work_that_ran_in_it_and_steps_of_the_device_are_left_out() -> None:
    steps = (Step("ProfilerStep#1", 0, 100), Step("ProfilerStep#1", 5, 95, on_gpu=True))
    (row,) = step_table(timeline([(Activity.KERNEL, GEMM, 90, 120), (Activity.MEMCPY, COPY, 0, 5)], spans(), steps))
    assert (row.duration_ns, row.gpu_bound_ns, row.gpu_busy_ns) == (100, 10, 15)


PAIRS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda pair: (pair[0], sum(pair))), max_size=12)
ROWS = st.lists(
    st.builds(
        lambda activity, config, start, size: (activity, config, start, start + size),
        st.sampled_from([Activity.KERNEL, Activity.MEMCPY]),
        st.sampled_from([GEMM, NCCL]),
        st.integers(0, 60),
        st.integers(0, 20),
    ),
    max_size=12,
)


@given(PAIRS)
def test_a_union_of_arrays_is_the_union_of_the_contract(pairs: list[tuple[int, int]]) -> None:
    found = spans(*pairs)
    assert list(zip(found.start_ns.tolist(), found.end_ns.tolist(), strict=True)) == intervals.union(pairs)


@given(PAIRS, st.integers(0, 40), st.integers(0, 40))
def test_clipping_arrays_is_the_clipping_of_the_contract(pairs: list[tuple[int, int]], since: int, size: int) -> None:
    found = spans(*pairs).clip(since, since + size)
    expected = intervals.clip(intervals.union(pairs), since, since + size)
    assert list(zip(found.start_ns.tolist(), found.end_ns.tolist(), strict=True)) == expected


@given(PAIRS, PAIRS, st.integers(0, 60), st.integers(0, 60))
def test_the_sweep_adds_up_to_its_window_and_meets_the_intersections(
    one: list[tuple[int, int]], other: list[tuple[int, int]], since: int, size: int
) -> None:
    times = sweep({"a": spans(*one), "b": spans(*other)}, since, since + size)
    assert sum(times.values()) == size
    both = intervals.intersect(intervals.union(one), intervals.union(other))
    assert times.get(frozenset("ab"), 0) == intervals.length(intervals.clip(both, since, since + size))


@given(ROWS, PAIRS)
def test_parts_add_up_and_unions_stay_within_their_bounds(rows: list[Row], cpu: list[tuple[int, int]]) -> None:
    line = timeline(rows, spans(*cpu))
    overlap, parts = overlap_of(line), breakdown_of(line)
    if overlap is None or parts is None:
        assert not rows
        return
    assert overlap.cpu_only_ns + overlap.gpu_only_ns + overlap.overlap_ns + overlap.idle_ns == overlap.span_ns
    assert overlap.gpu_only_ns + overlap.overlap_ns == parts.gpu_busy_ns
    assert max(parts.gpu_bound_ns, parts.copy_ns) <= parts.gpu_busy_ns <= overlap.span_ns
    assert parts.gpu_busy_ns <= parts.gpu_bound_ns + parts.copy_ns
    assert max(parts.compute_ns, parts.communication_ns) <= parts.gpu_bound_ns
    assert parts.gpu_bound_ns <= parts.compute_ns + parts.communication_ns
    assert parts.communication_overlap_ratio is None or 0 <= parts.communication_overlap_ratio <= 1
    assert sum(row.total_ns for row in kernel_table(line)) >= parts.gpu_bound_ns
