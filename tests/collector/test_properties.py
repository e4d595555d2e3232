"""What holds whatever happens: time is never given twice, absent is never zero, one bad thing costs one thing."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from collector.aggregate import Aggregator, Moment, Row
from collector.attribution import Attribution
from collector.driver import KnownDevice
from collector.job_source import Claim, Holding, Witness
from collector.source import ProcessReading, Reading
from tests.collector.conftest import rows_of
from tests.collector.proctree import ProcTree
from tests.collector.sources.test_host import Host
from warehouse.contract.metrics import BY_NAME

CADENCE_SECONDS = 10.0
DEVICES = ("GPU-x", "GPU-y", "MIG-z")
PIDS = st.integers(1, 5)
GARBAGE = st.sampled_from(["GPU-x", "GPU-x::0", "GPU-x::1", "MIG-z", "nvidia0", "odd:thing:7", "", "GPU-x/../GPU-y"])


class Pods:
    """Pods that hold devices; processes are of the pod that their number says."""

    knows_allocations = True

    def __init__(self, held: Sequence[Holding], owners: dict[int, str]) -> None:
        self.held = held
        self.owners = owners

    def holdings(self) -> Sequence[Holding]:
        return self.held

    def claim(self, witness: Witness) -> Claim | None:
        key = self.owners.get(witness.pid)
        return None if key is None else Claim(key, "cgroup")


def holdings(keys: Sequence[str], devices: st.SearchStrategy[str]) -> st.SearchStrategy[list[Holding]]:
    """Give holdings of any kind: shared or not, with times that may make no sense."""
    return st.lists(
        st.builds(
            Holding,
            attempt_key=st.sampled_from(keys),
            device_uuid=devices,
            start_at=st.floats(-30, 60),
            end_at=st.none() | st.floats(-30, 60),
            share_ratio=st.sampled_from([1.0, 0.5, 0.25]),
            pids=st.none() | st.frozensets(PIDS, max_size=3),
            is_shared=st.booleans(),
        ),
        max_size=5,
    )


OWNERS = st.dictionaries(PIDS, st.sampled_from("abc"))
SEEN = st.fixed_dictionaries({name: st.frozensets(PIDS, max_size=4) for name in DEVICES})
USED = st.dictionaries(PIDS, st.floats(0, 1), max_size=4)


def told(
    held: Sequence[Holding], owners: dict[int, str], seen: dict[str, frozenset[int]], used: dict[int, float]
) -> list[dict[str, Any]]:
    """Give the rows of three stretches of each device by one source, as they would be sent."""
    with tempfile.TemporaryDirectory() as folder:
        tree = ProcTree(Path(folder) / "proc")
        for pid in range(1, 6):
            if pid > 1:
                tree.add(pid)
        one = Attribution(Pods(held, owners), tree.root, "c", "n", lambda _text: None)
        one.refresh(
            [
                KnownDevice("GPU-x", 0, None, None, None, None, minor_number=0),
                KnownDevice("GPU-y", 1, None, None, None, None, minor_number=1),
                KnownDevice("MIG-z", 1, None, None, None, None, parent_uuid="GPU-y", share_ratio=1 / 7),
            ]
        )
        rows = []
        for at in (0.0, 10.0, 20.0):
            for name in DEVICES:
                processes = tuple(
                    ProcessReading(pid, {"driver_util_ratio": used[pid]}) for pid in sorted(seen[name]) if pid in used
                )
                one.see(at + 5, [Reading(name, {}, tuple(seen[name]), processes)])
                rows.append(Row(name, "nvml", at, at + CADENCE_SECONDS, {"driver_util_ratio": 0.5}, seen[name]))
        return rows_of(one.table(rows))


@settings(max_examples=60, deadline=None)
@given(holdings("abc", st.sampled_from(DEVICES) | GARBAGE), OWNERS, SEEN, USED)
def test_gpu_seconds_given_to_jobs_never_exceed_the_wall_time_of_a_device(
    held: list[Holding], owners: dict[int, str], seen: dict[str, frozenset[int]], used: dict[int, float]
) -> None:
    rows = told(held, owners, seen, used)
    for name in DEVICES:
        mine = [row for row in rows if row["device_uuid"] == name]
        assert {row["sampled_at"] for row in mine} == {0.0, 10.0, 20.0}  # no stretch of a device is lost
        given = sum((row["share_ratio"] or 0.0) * row["cadence_seconds"] for row in mine)
        assert given <= 3 * CADENCE_SECONDS * (1 + 1e-9)
        assert all(row["share_ratio"] is None or 0.0 <= row["share_ratio"] <= 1.0 for row in mine)


@settings(max_examples=60, deadline=None)
@given(holdings("ab", st.just("GPU-y")), holdings("c", GARBAGE), SEEN, USED)
def test_a_bad_pod_never_changes_the_rows_of_devices_that_it_does_not_touch(
    held: list[Holding], bad: list[Holding], seen: dict[str, frozenset[int]], used: dict[int, float]
) -> None:
    bad = [one for one in bad if one.pids is None]  # a pod that claims another's processes does touch it

    def of_y(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [row for row in rows if row["device_uuid"] == "GPU-y"]

    assert of_y(told([*held, *bad], {}, seen, used)) == of_y(told(held, {}, seen, used))


VALUES = st.fixed_dictionaries(
    {},
    optional={
        "driver_util_ratio": st.sampled_from([0.0, 0.5, 1.0, 42.0, float("nan")]),
        "power_watts": st.sampled_from([0.0, 300.0, 1e9]),
        "energy_joules": st.sampled_from([0.0, 300.0, -5.0]),
        "memory_used_bytes": st.sampled_from([0.0, 8.0]),
    },
)


@settings(max_examples=150)
@given(st.lists(VALUES, min_size=11, max_size=31))
def test_absent_is_never_zero(read: list[dict[str, float]]) -> None:
    aggregator = Aggregator(
        "nvml", interval_seconds=1.0, cadence_seconds=10.0, gap_intervals=2.5, least_covered_ratio=0.5
    )
    rows = [
        row
        for second, values in enumerate(read)
        for row in aggregator.add(Moment(1000.0 + second, float(second)), [Reading("GPU-x", values)])
    ]
    assert rows
    for row in rows:
        begin, end = int(row.start_at) - 1000, int(row.end_at) - 1000
        within = read[begin + 1 : end + 1]
        for column, value in row.columns.items():
            name = column.removesuffix("_max")
            given = [values[name] for values in within if name in values]
            assert given, f"{column} comes from nothing"
            assert value != 0.0 or 0.0 in given
            assert value <= (BY_NAME[name].highest or value)


@settings(max_examples=40, deadline=None)
@given(
    st.sets(st.sampled_from(["cpu.stat", "memory.stat", "io.stat", "io.pressure", "cpu.max", "memory.max"])),
    st.sampled_from([None, "", "garbage", "usage_usec -1\nanon x\n8:0 rbytes=\nsome total=-1\n", "\x00" * 4096]),
)
def test_odd_files_of_one_pod_are_absent_and_never_change_another_pods_row(spoiled: set[str], text: str | None) -> None:
    pods = [f"/kubepods/pod{digit * 8}-2222-3333-4444-555555555555" for digit in "ab"]

    def last_rows(folder: Path, *, spoil: bool) -> Any:
        host = Host(folder)
        for pid, path in enumerate(pods, start=71):
            host.group(path, cpu=0)
            host.process(pid, cgroup=f"0::{path}/x")
            host.on_devices.add(pid)
        host.round()
        for path in pods:
            host.group(path, cpu=2_000_000, anon=4096, file=4096, io="8:0 rbytes=5 wbytes=5\n", quota=100_000, limit=9)
        for name in spoiled if spoil else ():
            target = host.root / f"cgroup{pods[0]}/{name}"
            target.unlink()
            if text is not None:
                target.write_text(text)
        return host.round()

    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        healthy, odd = last_rows(Path(one), spoil=False), last_rows(Path(other), spoil=True)
    assert odd[pods[1]] == healthy[pods[1]]
    for name in type(healthy[pods[0]]).__slots__:
        mine, before = getattr(odd[pods[0]], name), getattr(healthy[pods[0]], name)
        assert mine in (None, before) or (name.startswith("disk") and text == ""), name  # no line: nothing done yet
