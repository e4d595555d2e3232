from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.aggregate import Row
from collector.attribution import Attribution, node_devices
from collector.cgroups import Place
from collector.device_ids import NodeDevice
from collector.driver import KnownDevice
from collector.job_source import Claim, Holding, Witness
from collector.jobs.process import Processes
from collector.owners import MPS_NAME, Owner, Owners, Use
from collector.processes import ProcessTable
from collector.source import ProcessReading, Reading
from tests.collector.conftest import rows_of
from tests.collector.proctree import ProcTree
from warehouse.contract import wire
from warehouse.contract.model import Allocation, Record

POD_A = "aaaaaaaa-5266-4386-864e-45ed71136371"
POD_B = "bbbbbbbb-5266-4386-864e-45ed71136371"


def pod_group(uid: str) -> str:
    return f"0::/kubepods/pod{uid}/{'0' * 64}"


@dataclass
class Jobs:
    """A place that knows jobs: processes are of the pod or the Slurm job that their control group names."""

    held: list[Holding] = field(default_factory=list)
    knows_allocations: bool = True

    def holdings(self) -> Sequence[Holding]:
        return self.held

    def claim(self, witness: Witness) -> Claim | None:
        key = witness.place.pod_uid or witness.place.slurm_job_id
        return None if key is None else Claim(key, "cgroup")


@pytest.fixture
def tree(tmp_path: Path) -> ProcTree:
    return ProcTree(tmp_path / "proc")


def attribution(jobs: Jobs | Processes | None, tree: ProcTree, said: list[str] | None = None) -> Attribution:
    heard: list[str] = [] if said is None else said
    return Attribution(jobs, tree.root, "c", "n1", heard.append)


def use(one: Attribution, **by_name: dict[int, float]) -> None:
    """Let every process be read once, at second 5."""
    pids = {pid for amounts in by_name.values() for pid in amounts}
    processes = [
        ProcessReading(pid, {name: amounts[pid] for name, amounts in by_name.items() if pid in amounts}) for pid in pids
    ]
    one.see(5.0, [Reading("GPU-aaa", {}, None, tuple(processes)), Reading("GPU-bbb", {}, None, tuple(processes))])


def row(device: str, pids: set[int], **columns: float) -> Row:
    return Row(device, "nvml", 0.0, 10.0, columns, frozenset(pids))


def card(uuid: str) -> KnownDevice:
    return KnownDevice(uuid, 0, None, None, None, None)


def told(one: Attribution, *rows: Row) -> list[dict[str, Any]]:
    one.refresh([card(row.device_uuid) for row in rows])
    return rows_of(one.table(rows))


def sharers(*keys: str, device: str = "GPU-aaa") -> list[Holding]:
    return [Holding(key, f"{device}::{place}", -5.0, None, source="kubelet") for place, key in enumerate(keys)]


def test_u01_a_sliced_card_counts_once(tree: ProcTree) -> None:
    one = attribution(Jobs(sharers("a", "b", "c")), tree)
    rows = told(one, row("GPU-aaa", set(), driver_util_ratio=0.71, power_watts=300.0, energy_joules=3000.0))
    assert [row["attempt_key"] for row in rows] == ["a", "b", "c"]
    assert {row["attribution"] for row in rows} == {"equal_split"}
    assert {row["driver_util_ratio"] for row in rows} == {0.71}
    assert sum(row["share_ratio"] * row["driver_util_ratio"] * row["cadence_seconds"] for row in rows) == pytest.approx(
        7.1
    )
    assert sum(row["share_ratio"] * row["energy_joules"] for row in rows) == pytest.approx(3000.0)


def test_u01_a_sliced_card_is_split_by_kernel_time_before_process_utilization(tree: ProcTree) -> None:
    for pid, uid in ((11, POD_A), (12, POD_A), (21, POD_B)):
        tree.add(pid, cgroup=pod_group(uid))
    one = attribution(Jobs(sharers(POD_A, POD_B, "idle")), tree)
    use(one, driver_util_ratio={11: 0.1, 21: 0.3})
    shares = {row["attempt_key"]: row["share_ratio"] for row in told(one, row("GPU-aaa", {11, 12, 21}))}
    assert shares == pytest.approx({POD_A: 0.25, POD_B: 0.75, "idle": 0.0})
    use(one, gpu_bound_seconds={11: 1.0, 12: 2.0, 21: 1.0})
    rows = told(one, row("GPU-aaa", {11, 12, 21}, process_count=3.0))
    assert {row["attempt_key"]: row["share_ratio"] for row in rows} == {POD_A: 0.75, POD_B: 0.25, "idle": 0.0}
    assert {row["attribution"] for row in rows} == {"kernel"}
    assert {row["attempt_key"]: row["process_count"] for row in rows} == {POD_A: 2.0, POD_B: 1.0, "idle": 0.0}


def test_what_an_unknown_process_used_of_a_shared_card_stays_nobodys(tree: ProcTree) -> None:
    tree.add(11, cgroup=pod_group(POD_A))
    tree.add(31)
    one = attribution(Jobs(sharers(POD_A, POD_B)), tree)
    use(one, driver_util_ratio={11: 0.5, 31: 0.5})
    rows = told(one, row("GPU-aaa", {11, 31}))
    assert {row["attempt_key"]: row["share_ratio"] for row in rows} == {POD_A: 0.5, POD_B: 0.0, None: 0.5}


def test_u02_an_unknown_device_is_held_counted_and_said_and_costs_nobody_else(tree: ProcTree) -> None:
    said: list[str] = []
    held = [
        Holding("a", "weird:thing:7", 1.0, None, source="kubelet"),
        Holding("b", "GPU-aaa", 1.0, None, source="kubelet"),
    ]
    one = attribution(Jobs(held), tree, said)
    news = one.refresh([card("GPU-aaa")])
    found = {record.allocation_key: record for record in news if isinstance(record, Allocation)}
    assert found["a:weird:thing:7"].device_uuid is None
    assert found["a:weird:thing:7"].gpu_count == 1.0
    assert found["b:GPU-aaa"].device_uuid == "GPU-aaa"
    assert one.owners.unknown_devices["weird:thing:7"] == 1
    assert "weird:thing:7" in said[0]


def test_a_card_that_is_lost_is_still_held(tree: ProcTree) -> None:
    one = attribution(Jobs([Holding("a", "GPU-lost", 1.0, None, source="kubelet")]), tree)
    (held,) = one.refresh([card("GPU-aaa")])
    assert isinstance(held, Allocation)
    assert (held.device_uuid, held.end_at) == ("GPU-lost", None)


def test_u04_use_without_a_request_is_named_and_flagged(tree: ProcTree) -> None:
    tree.add(4242, cgroup=pod_group(POD_A))
    tree.add(4243)
    one = attribution(Jobs(), tree)
    (unrequested,) = told(one, row("GPU-aaa", {4242}))
    assert (unrequested["attempt_key"], unrequested["attribution"]) == (POD_A, "unrequested")
    (stray,) = told(one, row("GPU-aaa", {4243}))
    assert (stray["attempt_key"], stray["attribution"]) == (None, "stray")


def test_u06_without_the_hosts_pids_nobody_is_blamed_by_a_pid(tmp_path: Path) -> None:
    tree = ProcTree(tmp_path / "proc", namespace="pid:[4026532999]")
    tree.add(100, cgroup=pod_group(POD_B))
    said: list[str] = []
    one = attribution(Jobs([Holding(POD_A, "GPU-aaa", -5.0, None)]), tree, said)
    (held,) = told(one, row("GPU-aaa", {100, 200}))
    assert (held["attempt_key"], held["attribution"]) == (POD_A, "scheduler")
    (free,) = told(one, row("GPU-bbb", {100, 200}))
    assert (free["attempt_key"], free["attribution"]) == (None, None)
    assert one.owners.of_pid(100) is None
    assert any("hostPID" in text for text in said)


def test_u06_clients_of_mps_have_two_owners_and_the_server_none(tree: ProcTree) -> None:
    tree.add(1000, name=MPS_NAME, cgroup=pod_group(POD_B))
    tree.add(1001, cgroup=pod_group(POD_A))
    tree.add(1002, cgroup=pod_group(POD_B))
    one = attribution(Jobs(sharers(POD_A, POD_B)), tree)
    use(one, driver_util_ratio={1000: 0.9, 1001: 0.05, 1002: 0.05})
    rows = told(one, row("GPU-aaa", {1000, 1001, 1002}))
    assert {row["attempt_key"]: row["share_ratio"] for row in rows} == {POD_A: 0.5, POD_B: 0.5}
    alone = attribution(Jobs([Holding(POD_A, "GPU-aaa", -5.0, None)]), tree)
    assert [row["attempt_key"] for row in told(alone, row("GPU-aaa", {1000, 1001}))] == [POD_A]


def test_u17_no_job_mapped_is_said(tree: ProcTree) -> None:
    tree.add(5, cgroup="0::/a/layout/that/nobody/knows")
    said: list[str] = []
    held = [Holding(str(number), f"GPU-{number}", -5.0, None) for number in range(12)]
    one = attribution(Jobs(held), tree, said)
    told(one, *(row(f"GPU-{number}", {5}) for number in range(12)))
    assert [text.split(":")[0] for text in said] == ["0 of 12 jobs mapped"]
    said.clear()
    tree.add(6, cgroup="0::/system.slice/slurmstepd.scope/job_3/step_0")
    told(one, *(row(f"GPU-{number}", {6} if number == 3 else set()) for number in range(12)))
    assert said == []
    assert one.owners.mapped_jobs() == (1, 12)


def test_u18_what_is_held_without_a_process_is_its_holders(tree: ProcTree) -> None:
    held = [Holding("77", f"GPU-{number}", -5.0, None, source="slurm_prolog") for number in range(4)]
    one = attribution(Jobs(held), tree)
    news = one.refresh([card(f"GPU-{number}") for number in range(4)])
    assert len(news) == 4
    rows = told(one, *(row(f"GPU-{number}", set(), driver_util_ratio=0.0, process_count=0.0) for number in range(4)))
    assert {(row["attempt_key"], row["attribution"], row["process_count"]) for row in rows} == {
        ("77", "scheduler", 0.0)
    }


def test_a_process_of_another_job_makes_a_held_device_ambiguous(tree: ProcTree) -> None:
    tree.add(7, cgroup=pod_group(POD_B))
    one = attribution(Jobs([Holding(POD_A, "GPU-aaa", -5.0, None)]), tree)
    (found,) = told(one, row("GPU-aaa", {7}))
    assert (found["attempt_key"], found["share_ratio"], found["attribution"]) == (None, None, "ambiguous")


def test_a_process_that_ended_before_its_row_is_made_is_still_known(tree: ProcTree) -> None:
    tree.add(7, cgroup=pod_group(POD_A))
    one = attribution(Jobs(), tree)
    one.see(1.0, [Reading("GPU-aaa", {}, (7,))])
    tree.remove(7)
    assert [row["attempt_key"] for row in told(one, row("GPU-aaa", {7}))] == [POD_A]


def test_a_pid_that_came_again_is_another_process(tree: ProcTree) -> None:
    tree.add(7, cgroup=pod_group(POD_A), start_ticks=100)
    owners = Owners(Jobs(), ProcessTable(tree.root))
    assert owners.of_pid(7) == Owner(POD_A, None, "process")
    tree.add(7, cgroup=pod_group(POD_B), start_ticks=900)
    assert owners.of_pid(7) == Owner(POD_B, None, "process")


def test_a_boot_makes_every_process_another(tree: ProcTree) -> None:
    tree.add(7)
    before = ProcessTable(tree.root).identity(7)
    tree.boot("another")
    assert ProcessTable(tree.root).identity(7) != before


def test_an_allocation_is_told_when_it_begins_and_when_it_ends(tree: ProcTree) -> None:
    jobs = Jobs([Holding("a", "GPU-aaa", 1.0, None, source="kubelet"), Holding("b", "GPU-aaa", 1.0, None)])
    one = attribution(jobs, tree)
    (begun,) = one.refresh([card("GPU-aaa")])
    assert isinstance(begun, Allocation)
    assert (begun.allocation_key, begun.end_at, begun.source, begun.certainty) == (
        "a:GPU-aaa",
        None,
        "kubelet",
        "scheduler",
    )
    assert one.refresh([card("GPU-aaa")]) == []
    jobs.held = [Holding("a", "GPU-aaa", 1.0, 9.0, source="kubelet")]
    (ended,) = one.refresh([card("GPU-aaa")])
    assert isinstance(ended, Allocation)
    assert ended.end_at == 9.0


def test_an_instance_that_is_held_whole_is_its_part_of_the_card(tree: ProcTree) -> None:
    one = attribution(Jobs([Holding("a", "MIG-b", 1.0, None, source="kubelet")]), tree)
    instance = KnownDevice("MIG-b", 0, None, None, None, None, parent_uuid="GPU-a", share_ratio=2 / 7)
    (begun,) = one.refresh([card("GPU-a"), instance])
    assert isinstance(begun, Allocation)
    assert begun.share_ratio == 2 / 7
    (found,) = told(one, row("MIG-b", set(), engine_active_ratio=0.5))
    assert found["share_ratio"] == 1.0  # the row's values are the instance's own, all of them the holder's


def test_where_nobody_gives_devices_away_a_process_holds_what_it_was_seen_on(tree: ProcTree) -> None:
    tree.add(7, start_ticks=0)
    one = attribution(Processes("c", "n1", ProcessTable(tree.root)), tree)
    (found,) = told(one, row("GPU-aaa", {7}))
    assert (found["attribution"], found["share_ratio"]) == ("process", 1.0)
    (held,) = one.observed()
    assert isinstance(held, Allocation)
    assert (held.start_at, held.end_at, held.source) == (0.0, 10.0, "process")
    assert one.observed() == []
    assert len(one.refresh([card("GPU-aaa")])) == 2


def test_minor_numbers_come_from_the_drivers_own_files(tree: ProcTree) -> None:
    folder = tree.root / "driver/nvidia/gpus/0000:3b:00.0"
    folder.mkdir(parents=True)
    (folder / "information").write_text("Model: \t\t NVIDIA A100\nDevice Minor: \t 5\n")
    device = KnownDevice("GPU-a", 0, None, None, None, "00000000:3B:00.0")
    assert node_devices([device, card("GPU-b")], tree.root) == [
        NodeDevice("GPU-a", minor=5),
        NodeDevice("GPU-b", minor=None),
    ]


PIDS = st.integers(1, 6)
HELD = st.builds(
    Holding,
    attempt_key=st.sampled_from("abc"),
    device_uuid=st.sampled_from(["GPU-x", "GPU-x::0", "GPU-x::1", "GPU-y", "odd:one"]),
    start_at=st.floats(-20, 8),
    end_at=st.none() | st.floats(8, 30),
    share_ratio=st.sampled_from([1.0, 0.5]),
    pids=st.none() | st.frozensets(PIDS, max_size=3),
)
USED = st.lists(
    st.builds(Use, st.sampled_from(["kernel", "process"]), st.dictionaries(PIDS, st.floats(0, 100), max_size=4)),
    max_size=2,
)


def owners_of(held: Sequence[Holding], device: str, pids: set[int], uses: Sequence[Use]) -> tuple[Owner, ...]:
    owners = Owners(Jobs(list(held)))
    owners.update([NodeDevice("GPU-x"), NodeDevice("GPU-y")])
    return owners.of_device(device, 0.0, 10.0, pids, uses)


@settings(max_examples=150)
@given(st.lists(HELD, max_size=5), st.sets(PIDS), USED)
def test_time_that_is_given_to_jobs_never_exceeds_the_time_of_the_device(
    held: list[Holding], pids: set[int], uses: list[Use]
) -> None:
    found = owners_of(held, "GPU-x", pids, uses)
    assert found
    assert all(0 <= (owner.share_ratio or 0.0) <= 1 for owner in found)
    assert sum(owner.share_ratio or 0.0 for owner in found) <= 1 + 1e-9
    assert len({owner.attempt_key for owner in found}) == len(found)


@settings(max_examples=100)
@given(st.lists(HELD, max_size=4), HELD, st.sets(PIDS))
def test_one_bad_holding_never_changes_who_owns_another_device(
    held: list[Holding], bad: Holding, pids: set[int]
) -> None:
    others = [one for one in held if one.attempt_key != "c"]
    stray = Holding("c", "odd:one", bad.start_at, bad.end_at)
    assert owners_of([*others, stray], "GPU-y", pids, ()) == owners_of(others, "GPU-y", pids, ())


def test_a_table_without_rows_is_empty(tree: ProcTree) -> None:
    assert attribution(None, tree).table([]) == wire.Table(0, attribution(None, tree).table([]).columns)


def test_a_place_is_nowhere_until_something_is_known() -> None:
    assert not Place().is_known


@dataclass
class Broken(Jobs):
    """A place that knows jobs and whose every answer is another mistake."""

    def holdings(self) -> Sequence[Holding]:
        raise FileNotFoundError(2, "a control group that went away")

    def claim(self, witness: Witness) -> Claim | None:
        raise AttributeError(witness.pid)

    def records(self) -> list[Record]:
        raise KeyError("records")


def test_whatever_a_job_source_does_the_rows_are_made(tree: ProcTree) -> None:
    tree.add(7, cgroup=pod_group(POD_A))
    said: list[str] = []
    (made,) = told(attribution(Broken(), tree, said), row("GPU-aaa", {7}, driver_util_ratio=0.5))
    assert (made["driver_util_ratio"], made["attempt_key"]) == (0.5, None)
    assert [text.partition(":")[0] for text in said] == ["who holds what cannot be told", "jobs cannot be told"]
