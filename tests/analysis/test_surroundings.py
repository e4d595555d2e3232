"""What is known beside the use of devices, and how the lack of it is said."""

from __future__ import annotations

from typing import Any

import pytest

from analysis.evidence import AttemptEvidence, coverage, evidence_coverage, require
from analysis.gather import gather_evidence
from analysis.holdings import known_span
from analysis.study import gather, judge
from analysis.surroundings import gather_surroundings
from tests.analysis.worlds import T0, World, allocation, attempt, job, sample
from warehouse.contract import wire
from warehouse.contract.model import Event, HostSample, KernelProfile, Missing


def gathered(world: World) -> list[AttemptEvidence]:
    with world.read() as tables:
        known = known_span(tables)
        assert known is not None
        study = judge(gather(tables, known, known, world.settings), world.settings)
        return gather_evidence(study, world.settings, None, gather_surroundings(tables, known))


def host(at: float, node: str = "n0", scope: str = "group", **values: Any) -> HostSample:
    return HostSample("c", node, scope, T0 + at, 60.0, "host", "/job", "c/1#0:1", **values)


def fill(world: World, *rows: Any, samples: Any = (), **words: Any) -> AttemptEvidence:
    world.fill([job(**words), attempt(cpu_count=8), allocation()], samples)
    with world.store.transaction() as transaction:
        for table in ("host_sample", "kernel_profile"):
            transaction.execute(f"DELETE FROM {table}")
        transaction.write(wire.from_records(rows))
    (found,) = gathered(world)
    return found


def test_host_readings_are_means_with_source_and_coverage(world: World) -> None:
    rows = [host(60.0 * at, cpu_seconds=120.0, io_stall_seconds=30.0, disk_read_bytes=6e9) for at in range(30)]
    found = fill(world, *rows)
    assert found.host["cpu_count"].value == pytest.approx(2.0)
    assert found.host["io_stall_ratio"].value == pytest.approx(0.5)
    assert found.host["disk_read_bytes_per_second"].value == pytest.approx(1e8)
    assert all(one.coverage_ratio == pytest.approx(0.5) for one in found.host.values())
    assert found.host["cpu_count"].source == "host:group"
    assert "network_received_bytes_per_second" not in found.host
    assert found.cpu_count == 8


def test_cores_of_several_nodes_add_up_and_waits_do_not(world: World) -> None:
    rows = [host(60.0 * at, node, cpu_seconds=60.0, io_stall_seconds=6.0) for at in range(60) for node in ("n0", "n1")]
    found = fill(world, *rows)
    assert found.host["cpu_count"].value == pytest.approx(2.0)
    assert found.host["io_stall_ratio"].value == pytest.approx(0.1)
    assert found.host["cpu_count"].coverage_ratio == pytest.approx(1.0)


def test_the_control_group_speaks_before_the_tree_of_processes(world: World) -> None:
    found = fill(world, host(0, cpu_seconds=60.0), host(0, scope="tree", cpu_seconds=6.0, disk_read_bytes=60.0))
    assert found.host["cpu_count"].value == pytest.approx(1.0)
    assert found.host["cpu_count"].source == "host:group"
    assert found.host["disk_read_bytes_per_second"].source == "host:tree"


def test_power_and_slowed_clocks_are_told_by_samples(world: World) -> None:
    slow: dict[str, Any] = {"thermal_slowed_ratio": 1.0, "sm_clock_hertz": 1.0e9}
    free: dict[str, Any] = {"thermal_slowed_ratio": 0.0, "sm_clock_hertz": 1.5e9}
    samples = [
        sample(60.0 * at, driver_util_ratio=1.0, power_watts=300.0, **(slow if at < 15 else free)) for at in range(60)
    ]
    found = fill(world, samples=samples)
    assert found.board["power_watts"].value == pytest.approx(300.0)
    assert found.board["thermal_slowed_ratio"].value == pytest.approx(0.25)
    assert found.board["slowed_clock_hertz"].value == pytest.approx(1.0e9)
    assert found.board["free_clock_hertz"].value == pytest.approx(1.5e9)


def test_events_reach_the_attempts_that_they_hit(world: World) -> None:
    events = [
        Event("c", "n0", "xid", T0 + 60, device_uuid="GPU-0", detail="79"),
        Event("c", "n0", "xid", T0 + 60, device_uuid="GPU-1", detail="79"),
        Event("c", "n0", "xid", T0 + 7200, device_uuid="GPU-0", detail="79"),
    ]
    found = fill(world, *events)
    assert [(one.kind, one.detail, one.happened_at) for one in found.events] == [("xid", "79", T0 + 60)]


def test_ranks_are_known_by_their_computing_without_communication(world: World) -> None:
    rows = [
        KernelProfile("c/1#0:1", rank, "kernels", T0 + 3600 * hour, kernel, 1, seconds, seconds)
        for rank, own in (("r0", 100.0), ("r1", 200.0))
        for hour in range(4)
        for kernel, seconds in (("gemm", own), ("ncclDevKernel_AllReduce", 999.0))
    ]
    world.fill([job(), attempt(end=4 * 3600.0), allocation(end=4 * 3600.0)])
    with world.store.transaction() as transaction:
        transaction.execute("DELETE FROM host_sample")
        transaction.write(wire.from_records(rows))
    (found,) = gathered(world)
    assert [(one.profile, one.compute_seconds) for one in found.ranks] == [("r0", (100.0,) * 2), ("r1", (200.0,) * 2)]
    assert found.profiled_kernels == 2


def test_what_is_missing_is_said_with_its_coverage(world: World) -> None:
    found = fill(world, *[host(60.0 * at, cpu_seconds=60.0) for at in range(15)])
    assert coverage([found], "cpu") == pytest.approx(0.25)
    assert require([found], ("cpu", "disk"), 0.5) == (
        Missing("cpu", 0.25, 0.5),
        Missing("disk", 0.0, 0.5),
    )
    assert require([found], ("cpu",), 0.2) == ()
    assert evidence_coverage([found])["kernels"] == 0.0
    assert coverage([], "cpu") == 0.0
