"""The iterations of a program: how long each took, and how much of it a device worked."""

from __future__ import annotations

from dataclasses import dataclass

from warehouse.timeline import Timeline


@dataclass(frozen=True, slots=True)
class StepRow:
    """One iteration on the host's side; instants on the profiler's clock, all in ns.

    Kernels and copies count by when they ran, not by which iteration launched them.
    """

    name: str
    start_ns: int
    duration_ns: int
    gpu_bound_ns: int
    gpu_busy_ns: int


def step_table(timeline: Timeline) -> tuple[StepRow, ...]:
    """Give the iterations in order of time."""
    bound, busy = timeline.kernels().union(), timeline.busy()
    return tuple(
        StepRow(
            name=step.name,
            start_ns=step.start_ns,
            duration_ns=step.end_ns - step.start_ns,
            gpu_bound_ns=bound.clip(step.start_ns, step.end_ns).length_ns,
            gpu_busy_ns=busy.clip(step.start_ns, step.end_ns).length_ns,
        )
        for step in timeline.steps
        if not step.on_gpu
    )
