"""The kernels of traced attempts as work for the wave model, out of a real store."""

from __future__ import annotations

from typing import Any

import pytest

from analysis.kernel_work import gather_works
from analysis.occupancy import Launch
from analysis.waves import Kernel
from tests.analysis.worlds import T0, World, allocation, attempt, job
from warehouse.contract.model import KernelProfile, ProcessSample

KEY = "c/1#0:1"


def told(at: float, process: str = "p", bound: float = 4.0) -> ProcessSample:
    return ProcessSample(
        "c", "n0", "GPU-0", 1, T0 + at, 10.0, "kernels", KEY, bound, process_key=process, covered_seconds=10.0
    )


def profile(name: str, seconds: float, grid: str | None = "24x2x1", hour: int = 0, **words: Any) -> KernelProfile:
    facts: dict[str, Any] = {"registers_per_thread": 32, "shared_memory_bytes": 1024} | words
    return KernelProfile(KEY, "p", "kernels", T0 + 3600 * hour, name, 10, seconds, seconds, grid, "128x2x1", **facts)


def works(world: World, *records: Any) -> Any:
    world.fill([job(), attempt(), allocation(), *records])
    with world.read() as tables:
        return gather_works(tables, (T0, T0 + 7200))


def test_kernels_come_with_their_launch_configuration_and_the_time_they_are_part_of(world: World) -> None:
    found = works(world, told(0), told(10), profile("a", 3.0), profile("a", 2.0, hour=1), profile("b", 1.0))
    (work,) = found.values()
    assert (work.seconds, work.busy_seconds) == (20.0, 8.0)
    assert work.kernels == (
        Kernel(20.0, 5.0, 48, Launch(256, 32, 1024)),
        Kernel(10.0, 1.0, 48, Launch(256, 32, 1024)),
    )


def test_processes_of_one_device_share_its_time(world: World) -> None:
    (work,) = works(world, told(0), told(0, "q", 3.0), profile("a", 3.0)).values()
    assert (work.seconds, work.busy_seconds) == (10.0, 7.0)


def test_busy_time_never_exceeds_the_time(world: World) -> None:
    (work,) = works(world, told(0, bound=8.0), told(0, "q", 8.0), profile("a", 3.0)).values()
    assert work.busy_seconds == work.seconds == 10.0


@pytest.mark.parametrize("records", [(), (told(0),), (profile("a", 1.0),), (told(0), profile("a", 1.0, grid=None))])
def test_without_time_or_configuration_there_is_no_work(world: World, records: tuple[Any, ...]) -> None:
    assert works(world, *records) == {}


def test_what_is_not_told_of_a_launch_is_absent(world: World) -> None:
    (work,) = works(world, told(0), profile("a", 1.0, registers_per_thread=None, shared_memory_bytes=None)).values()
    assert work.kernels[0].launch == Launch(256, None, None)
