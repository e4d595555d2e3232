"""The account of GPU time on small stores with answers worked by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.worlds import T0, World, allocation, attempt, job, sample
from warehouse.contract.errors import BadUseError
from warehouse.contract.model import AttemptState, AttemptSummary, Device, Event
from warehouse.contract.settings import Settings
from warehouse.contract.units import iso


def amounts(document: dict[str, Any], *names: str) -> list[float | None]:
    """Give some of the GPU-seconds of a document or a row."""
    return [document["gpu_seconds"][name] for name in names]


def one_job(**words: Any) -> list[Any]:
    """Make a job that holds one device for an hour."""
    return [job(), attempt(**words), allocation()]


def test_an_empty_store_knows_nothing_and_says_so(world: World) -> None:
    document = world.ask("waste")
    assert amounts(document, "allocated", "used", "unknown") == [0.0, None, 0.0]
    assert (document["rung"], document["coverage_ratio"], document["rows"]) == (None, None, [])


def test_accounting_alone_says_nothing_about_use(world: World) -> None:
    world.fill([job(), attempt(), allocation(device=None, gpu_count=4.0)])
    document = world.ask("waste")
    assert amounts(document, "allocated", "unknown", "used", "held_idle") == [14400.0, 14400.0, None, None]
    assert (document["used_ratio"], document["coverage_ratio"], document["rung"]) == (None, 0.0, None)


def test_used_time_is_the_busy_share_of_covered_time(world: World) -> None:
    world.fill(one_job(), [sample(at, driver_util_ratio=0.25, process_count=1.0) for at in range(0, 3600, 60)])
    document = world.ask("waste")
    assert amounts(document, "allocated", "used", "held_idle", "unknown") == [3600.0, 900.0, 2700.0, 0.0]
    assert amounts(document, "no_process", "with_process", "gaps") == [0.0, 0.0, 2700.0]
    assert (document["rung"], document["used_ratio"], document["jobs"]) == ("driver_util", 0.25, 1)


def test_time_without_samples_is_unknown(world: World) -> None:
    world.fill(one_job(), [sample(at, driver_util_ratio=1.0, process_count=1.0) for at in range(0, 1800, 60)])
    assert amounts(world.ask("waste"), "used", "held_idle", "unknown") == [1800.0, 0.0, 1800.0]


def test_a_gap_begins_after_two_and_a_half_cadences(world: World) -> None:
    records = [job(), attempt(end=600.0), allocation(end=600.0)]
    near = [sample(at, driver_util_ratio=1.0, process_count=1.0) for at in (0, 150, 300, 450)]
    assert amounts(world.fill(records, near).ask("waste"), "used", "unknown") == [510.0, 90.0]
    far = [sample(at, driver_util_ratio=1.0, process_count=1.0) for at in (0, 151)]
    assert amounts(world.fill(records, far).ask("waste"), "used", "unknown") == [120.0, 480.0]


def test_a_sample_without_a_value_is_unknown_time(world: World) -> None:
    values = [1.0, None, 0.5]
    samples = [sample(60 * at, driver_util_ratio=value, process_count=1.0) for at, value in enumerate(values)]
    world.fill([job(), attempt(end=180.0), allocation(end=180.0)], samples)
    assert amounts(world.ask("waste"), "used", "held_idle", "unknown") == [90.0, 30.0, 60.0]


def test_a_sample_of_nobody_is_unknown_time(world: World) -> None:
    samples = [sample(0, driver_util_ratio=1.0), sample(60, owner=None, driver_util_ratio=1.0)]
    world.fill([job(), attempt(end=120.0), allocation(end=120.0)], samples)
    assert amounts(world.ask("waste"), "used", "unknown") == [60.0, 60.0]


def test_idle_time_without_a_process_is_no_process_however_short(world: World) -> None:
    samples = [sample(60 * at, driver_util_ratio=float(at > 0), process_count=float(at > 0)) for at in range(10)]
    world.fill([job(), attempt(end=600.0), allocation(end=600.0)], samples)
    assert amounts(world.ask("waste"), "no_process", "with_process", "gaps") == [60.0, 0.0, 0.0]


@pytest.mark.parametrize(("idle_samples", "expected"), [(5, [0.0, 300.0, 0.0]), (4, [0.0, 0.0, 240.0])])
def test_a_pause_of_five_minutes_with_a_process_is_a_stretch_and_a_shorter_one_a_gap(
    idle_samples: int, expected: list[float], world: World
) -> None:
    samples = [
        sample(60 * at, driver_util_ratio=0.0 if 10 <= at < 10 + idle_samples else 1.0, process_count=1.0)
        for at in range(60)
    ]
    world.fill(one_job(), samples)
    assert amounts(world.ask("waste"), "no_process", "with_process", "gaps") == expected


def test_a_pause_keeps_its_true_length_at_the_edge_of_a_window(world: World) -> None:
    """Ten idle minutes, of which the window holds two: still a stretch, not a gap."""
    samples = [sample(60 * at, driver_util_ratio=float(not 20 <= at < 30), process_count=1.0) for at in range(60)]
    world.fill(one_job(), samples)
    document = world.ask("waste", until=str(iso(T0 + 22 * 60)))
    assert amounts(document, "allocated", "with_process", "gaps") == [1320.0, 120.0, 0.0]


def test_a_lost_sample_does_not_end_a_pause_but_a_gap_in_the_data_does(world: World) -> None:
    idle = [60 * at for at in range(8) if at != 3]
    records = [job(), attempt(end=480.0), allocation(end=480.0)]
    world.fill(records, [sample(at, driver_util_ratio=0.0, process_count=1.0) for at in idle])
    assert amounts(world.ask("waste"), "with_process", "gaps", "unknown") == [480.0, 0.0, 0.0]
    idle = [60 * at for at in range(8) if at not in {3, 4}]
    world.fill(records, [sample(at, driver_util_ratio=0.0, process_count=1.0) for at in idle])
    assert amounts(world.ask("waste"), "with_process", "gaps", "unknown") == [0.0, 360.0, 120.0]


def test_nobody_knows_the_parts_of_idle_time_when_nobody_saw_the_processes(world: World) -> None:
    world.fill(one_job(), [sample(60 * at, driver_util_ratio=float(at % 2)) for at in range(60)])
    document = world.ask("waste")
    assert amounts(document, "used", "held_idle") == [1800.0, 1800.0]
    assert amounts(document, "no_process", "with_process", "gaps") == [None, None, None]


def test_activity_implies_a_process(world: World) -> None:
    world.fill(one_job(), [sample(60 * at, driver_util_ratio=0.5) for at in range(60)])
    assert amounts(world.ask("waste"), "no_process", "with_process", "gaps") == [0.0, 0.0, 1800.0]


def test_several_sources_of_one_instant_are_one_sample(world: World) -> None:
    samples = [
        sample(60 * at, source=source, process_count=1.0 if source == "nvml" else None) | {metric: value}
        for at in range(60)
        for source, metric, value in [
            ("nvml", "driver_util_ratio", 1.0),
            ("gpm", "engine_active_ratio", 0.5),
            ("kernels", "gpu_bound_seconds", 15.0),
        ]
    ]
    world.fill(one_job(), samples)
    used = {
        rung: amounts(world.ask("waste", rung=rung), "used", "unknown") for rung in ("driver_util", "engine_active")
    }
    assert used == {"driver_util": [3600.0, 0.0], "engine_active": [1800.0, 0.0]}
    best = world.ask("waste")
    assert (best["rung"], amounts(best, "used")) == ("gpu_bound", [900.0])


def test_a_rung_that_only_some_allow_is_not_used_for_all(world: World) -> None:
    records = [*one_job(), job(2), attempt(2), allocation(2, "GPU-1")]
    samples = [
        sample(60 * at, device, owner, driver_util_ratio=1.0, gpu_bound_seconds=bound)
        for at in range(60)
        for device, owner, bound in [("GPU-0", 1, 6.0), ("GPU-1", 2, None)]
    ]
    document = world.fill(records, samples).ask("waste")
    assert (document["rung"], amounts(document, "used")) == ("driver_util", [7200.0])


def test_means_are_prorated_and_their_parts_are_unknown(world: World) -> None:
    summary = AttemptSummary("c/1#0:1", "t", 1.0, coverage_assumed=True, driver_util_ratio=0.25)
    world.fill([job(), attempt(), allocation(device=None, gpu_count=2.0), summary])
    document = world.ask("waste", until=str(iso(T0 + 1800)))
    assert amounts(document, "allocated", "used", "held_idle", "gaps") == [3600.0, 900.0, 2700.0, None]
    assert (document["coverage_ratio"], document["assumed_gpu_seconds"]) == (1.0, 3600.0)


def test_a_mean_that_covers_half_leaves_half_unknown(world: World) -> None:
    summary = AttemptSummary("c/1#0:1", "t", 0.5, coverage_assumed=False, driver_util_ratio=0.25)
    world.fill([job(), attempt(), allocation(device=None), summary])
    document = world.ask("waste")
    assert amounts(document, "used", "held_idle", "unknown") == [450.0, 1350.0, 1800.0]
    assert document["assumed_gpu_seconds"] == 0.0


def test_samples_are_believed_before_means(world: World) -> None:
    summary = AttemptSummary("c/1#0:1", "t", 1.0, coverage_assumed=True, driver_util_ratio=0.0)
    world.fill([*one_job(), summary], [sample(60 * at, driver_util_ratio=1.0) for at in range(60)])
    assert amounts(world.ask("waste"), "used", "held_idle") == [3600.0, 0.0]


def test_a_device_that_two_hold_is_split(world: World) -> None:
    records = [*one_job(), job(2), attempt(2, start=1800.0), allocation(2, start=1800.0)]
    samples = [sample(60 * at, driver_util_ratio=1.0, process_count=1.0) for at in range(60)]
    rows = {row["key"]: row for row in world.fill(records, samples).ask("waste", by="job")["rows"]}
    assert amounts(rows["c/1#0"], "allocated", "used", "unknown") == [2700.0, 2700.0, 0.0]
    assert amounts(rows["c/2#0"], "allocated", "used", "unknown") == [900.0, None, 900.0]


def test_shares_that_fit_on_a_device_stay_as_they_are(world: World) -> None:
    records = [job(), attempt(), allocation(share_ratio=0.25), job(2), attempt(2), allocation(2, share_ratio=0.5)]
    rows = world.fill(records).ask("waste", by="job")["rows"]
    assert [(row["key"], amounts(row, "allocated")) for row in rows] == [("c/2#0", [1800.0]), ("c/1#0", [900.0])]


def test_accounting_and_agent_do_not_count_the_same_device_twice(world: World) -> None:
    bare = allocation(device=None, gpu_count=2.0)
    assert amounts(world.fill([*one_job(), bare]).ask("waste"), "allocated", "unknown") == [7200.0, 7200.0]


def test_a_running_attempt_counts_until_the_last_thing_known(world: World) -> None:
    records = [job(), attempt(end=None, state=AttemptState.RUNNING), allocation(end=None)]
    world.fill(records, [sample(60 * at, driver_util_ratio=1.0) for at in range(10)])
    document = world.ask("waste")
    assert (amounts(document, "allocated", "unknown"), document["until"]) == ([600.0, 0.0], iso(T0 + 600))
    assert amounts(world.ask("waste", until=str(iso(T0 + 300))), "allocated") == [300.0]
    assert world.ask("waste", by="job")["rows"][0]["end_at"] is None


def test_failed_time_overlaps_with_the_account(world: World) -> None:
    world.fill([*one_job(state=AttemptState.NODE_FAIL), job(2), attempt(2), allocation(2, "GPU-1")])
    assert amounts(world.ask("waste"), "allocated", "failed") == [7200.0, 3600.0]


def test_jobs_without_a_gpu_are_not_counted(world: World) -> None:
    document = world.fill([*one_job(), job(2), attempt(2)]).ask("waste")
    assert (document["jobs"], document["attempts"]) == (1, 1)


def test_a_job_of_no_length_is_still_a_job(world: World) -> None:
    world.fill([*one_job(), job(2), attempt(2, start=60.0, end=60.0), allocation(2, "GPU-1", start=60.0, end=60.0)])
    assert world.ask("waste")["jobs"] == 2


def test_rows_come_with_most_idle_time_first_and_unknown_ones_last(world: World) -> None:
    records = [
        record
        for number, user in enumerate(["ann", "bob", None], start=1)
        for record in (job(number, user=user), attempt(number), allocation(number, f"GPU-{number}"))
    ]
    samples = [
        sample(60 * at, f"GPU-{owner}", owner, driver_util_ratio=busy)
        for at in range(60)
        for owner, busy in [(1, 0.9), (2, 0.1)]
    ]
    rows = world.fill(records, samples).ask("waste")["rows"]
    assert [(row["key"], row["used_ratio"]) for row in rows] == [
        ("bob", pytest.approx(0.1)),
        ("ann", pytest.approx(0.9)),
        (None, None),
    ]


def test_weeks_begin_at_midnight_of_the_zone_and_add_up(world: World) -> None:
    """From 22 UTC on Sunday to 2 UTC on Monday: in Berlin (UTC+1) the week changes after an hour."""
    records = [job(), attempt(start=-7200.0, end=7200.0), allocation(start=-7200.0, end=7200.0)]
    samples = [sample(at, driver_util_ratio=0.5, process_count=1.0) for at in range(-7200, 7200, 60)]
    document = world.fill(records, samples).ask("waste", by="week", zone="Europe/Berlin")
    rows = {row["key"]: amounts(row, "allocated", "used") for row in document["rows"]}
    assert rows == {"2026-W44": [3600.0, 1800.0], "2026-W45": [10800.0, 5400.0]}
    assert amounts(document, "allocated") == [14400.0]


def test_a_window_cuts_samples_exactly(world: World) -> None:
    samples = [sample(60 * at, driver_util_ratio=at / 10, process_count=1.0) for at in range(1, 4)]
    world.fill([job(), attempt(), allocation()], samples)
    document = world.ask("waste", since=str(iso(T0 + 90)), until=str(iso(T0 + 210)))
    assert amounts(document, "allocated", "used") == [120.0, pytest.approx(0.1 * 30 + 0.2 * 60 + 0.3 * 30)]


def test_capacity_is_told_apart_into_what_was_held_free_down_and_silent(world: World) -> None:
    devices = [
        Device("GPU-0", "c", "n0", T0, gpu_model="A"),
        Device("GPU-1", "c", "n0", T0, T0 + 1800, gpu_model="A"),
        Device("GPU-1", "c", "n0", T0 + 1800, T0 + 3600, state="lost"),
    ]
    samples = [sample(60 * at, driver_util_ratio=1.0) for at in range(60)]
    samples += [sample(60 * at, "GPU-1", None, driver_util_ratio=0.0) for at in range(15)]
    document = world.fill([*one_job(), *devices], samples).ask("waste")
    assert amounts(document, "capacity", "allocated", "unallocated", "down", "unreported") == [
        7200.0,
        3600.0,
        900.0,
        1800.0,
        900.0,
    ]


def test_u15_another_machine_of_the_same_name_ends_what_was_told_of_the_first(world: World) -> None:
    """Half an hour of GPU-0, then a new machine with GPU-9 in its place, whose agent remembers nothing."""
    records = [
        Device("GPU-0", "c", "n0", T0),
        Event("c", "n0", "inventory_begun", T0),
        Device("GPU-9", "c", "n0", T0 + 1800),
        Event("c", "n0", "inventory_begun", T0 + 1800),
    ]
    samples = [sample(60 * at, "GPU-0" if at < 30 else "GPU-9", None, driver_util_ratio=0.0) for at in range(60)]
    document = world.fill([job(), attempt(), allocation(device="GPU-9", start=1800.0), *records], samples).ask("waste")
    assert amounts(document, "capacity", "allocated", "unallocated", "unreported") == [3600.0, 1800.0, 1800.0, 0.0]


def test_the_parts_of_a_card_are_held_free_and_counted_once(world: World) -> None:
    """One card in an instance of 3/7 that is held for the hour, and one of 4/7 that nobody holds."""
    devices = [Device("GPU-0", "c", "n0", T0, gpu_model="A")]
    devices += [
        Device(name, "c", "n0", T0, parent_uuid="GPU-0", share_ratio=slices / 7)
        for name, slices in (("MIG-a", 3), ("MIG-b", 4))
    ]
    held = allocation(device="MIG-a", share_ratio=3 / 7)
    samples = [sample(60 * at, "MIG-a", driver_util_ratio=1.0) for at in range(60)]
    document = world.fill([job(), attempt(), held, *devices], samples).ask("waste")
    assert amounts(document, "capacity", "allocated", "unallocated", "down", "unreported") == [
        pytest.approx(part) for part in (3600.0, 3600 * 3 / 7, 3600 * 4 / 7, 0.0, 0.0)
    ]


def test_a_lost_device_that_is_held_counts_as_held(world: World) -> None:
    devices = [Device("GPU-0", "c", "n0", T0, T0 + 1800), Device("GPU-0", "c", "n0", T0 + 1800, state="lost")]
    document = world.fill([*one_job(), *devices]).ask("waste")
    assert amounts(document, "capacity", "allocated", "down", "unknown") == [3600.0, 3600.0, 0.0, 3600.0]


def test_capacity_is_unknown_when_an_allocation_names_no_device(world: World) -> None:
    records = [*one_job(), Device("GPU-0", "c", "n0", T0), job(2), attempt(2), allocation(2, device=None)]
    assert amounts(world.fill(records).ask("waste"), "capacity", "unallocated", "down") == [None, None, None]


def test_a_held_device_outside_the_inventory_costs_its_node_alone(world: World) -> None:
    """Twelve cards of the inventory held for an hour, one lost card of another node for half an hour."""
    records: list[Any] = [job(), attempt(), allocation(device="GPU-lost", end=1800.0, node="n9")]
    records += [Device(f"GPU-{at}", "c", "n0", T0) for at in range(13)]
    records += [one for at in range(12) for one in (job(at + 2), attempt(at + 2), allocation(at + 2, f"GPU-{at}"))]
    fleet = world.fill(records).ask("fleet")
    assert fleet["nodes_without_inventory"] == ["n9"]
    # 12.5 h held, and the hour of the thirteenth card, of which nobody tells.
    assert amounts(fleet, "capacity", "allocated", "unreported") == [13.5 * 3600, 12.5 * 3600, 3600.0]
    by_node = {row["key"]: row["gpu_seconds"]["capacity"] for row in fleet["by_node"]}
    assert by_node == {"n0": 13 * 3600, "n9": None}


def test_capacity_is_unknown_where_a_tenth_was_held_outside_the_inventory(world: World) -> None:
    records: list[Any] = [job(), attempt(), allocation(device="GPU-lost", node="n9"), Device("GPU-0", "c", "n0", T0)]
    records += [job(2), attempt(2), allocation(2)]
    assert amounts(world.fill(records).ask("fleet"), "capacity") == [None]


def test_the_threshold_of_activity_is_a_setting(world: World) -> None:
    world.fill(one_job(), [sample(60 * at, driver_util_ratio=0.01, process_count=1.0) for at in range(60)])
    world.settings = Settings({"waste.active_threshold_ratio": 0.02})
    assert amounts(world.ask("waste"), "with_process", "gaps") == [pytest.approx(3564.0), 0.0]


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"by": "moon"}, "user, account"),
        ({"rung": "sm"}, "driver_util"),
        ({"week": "2026-44"}, "2026-W44"),
        ({"since": "yesterday"}, "2026-11-02"),
        ({"since": "2026-11-03", "until": "2026-11-02"}, "not after"),
        ({"zone": "Mars/Olympus"}, "Europe/Berlin"),
        ({"week": "2026-W44", "since": "2026-11-02"}, "either"),
        ({"order": "up"}, "rung"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_what_can(parameters: dict[str, str], told: str, world: World) -> None:
    with pytest.raises(BadUseError, match=told):
        world.ask("waste", **parameters)
