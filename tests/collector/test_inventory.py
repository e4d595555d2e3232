"""What the node has, as intervals: cards that change their place, are lost, or are replaced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from collector.driver import Driver, KnownDevice
from collector.inventory import Inventory
from warehouse.contract.model import Device, Event, Node


def driver_of(*cards: tuple[str, int, str]) -> Driver:
    made = Driver()
    made.driver_version = "570.1"
    made.devices = tuple(KnownDevice(uuid, index, None, "H100", 80, bus) for uuid, index, bus in cards)
    return made


def devices(records: list[Any]) -> list[tuple[str, float, float | None, str, int | None]]:
    return [
        (it.device_uuid, it.since_at, it.until_at, it.state, it.device_index)
        for it in records
        if isinstance(it, Device)
    ]


def events(records: list[Any]) -> list[tuple[str, str | None, str | None]]:
    return [(it.kind, it.device_uuid, it.detail) for it in records if isinstance(it, Event)]


def test_u15_cards_that_change_places_and_one_that_is_replaced(tmp_path: Path) -> None:
    def on_a_day(at: float, *cards: tuple[str, int, str]) -> list[Any]:
        return Inventory(tmp_path / "inventory.json", "c", "n").update(driver_of(*cards), at)

    assert devices(on_a_day(1.0, ("GPU-a", 0, "1A"), ("GPU-b", 1, "1B"))) == [
        ("GPU-a", 1.0, None, "up", 0),
        ("GPU-b", 1.0, None, "up", 1),
    ]
    swapped = on_a_day(2.0, ("GPU-b", 0, "1A"), ("GPU-a", 1, "1B"))
    assert devices(swapped) == [
        ("GPU-b", 1.0, 2.0, "up", 1),
        ("GPU-b", 2.0, None, "up", 0),
        ("GPU-a", 1.0, 2.0, "up", 0),
        ("GPU-a", 2.0, None, "up", 1),
    ]
    replaced = on_a_day(3.0, ("GPU-c", 0, "1A"), ("GPU-a", 1, "1B"))
    assert devices(replaced) == [("GPU-b", 2.0, 3.0, "up", 0), ("GPU-c", 3.0, None, "up", 0)]
    assert events(replaced) == [("device_replaced", "GPU-b", "1A")]
    assert on_a_day(4.0, ("GPU-c", 0, "1A"), ("GPU-a", 1, "1B")) == []


def test_u15_an_agent_without_memory_says_that_its_inventory_begins(tmp_path: Path) -> None:
    path = tmp_path / "inventory.json"
    first = Inventory(path, "c", "n").update(driver_of(("GPU-a", 0, "1A")), 1.0)
    assert events(first) == [("inventory_begun", None, None)]
    assert events(Inventory(path, "c", "n").update(driver_of(("GPU-a", 0, "1A")), 2.0)) == []
    path.unlink()
    other = Inventory(path, "c", "n").update(driver_of(("GPU-z", 0, "1A")), 3.0)
    assert events(other) == [("inventory_begun", None, None)]
    assert devices(other) == [("GPU-z", 3.0, None, "up", 0)]


def test_u11_a_lost_card_is_told_with_its_last_xid(tmp_path: Path) -> None:
    inventory, driver = Inventory(tmp_path / "inventory.json", "c", "n"), driver_of(("GPU-a", 0, "1A"))
    inventory.update(driver, 1.0)
    driver.devices[0].lost = True
    driver.last_xid["GPU-a"] = "79"
    told = inventory.update(driver, 2.0)
    assert devices(told) == [("GPU-a", 1.0, 2.0, "up", 0), ("GPU-a", 2.0, None, "lost", 0)]
    assert events(told) == [("device_lost", "GPU-a", "last Xid 79")]


def test_time_without_measuring_is_told_with_its_reason(tmp_path: Path) -> None:
    path, driver = tmp_path / "inventory.json", driver_of(("GPU-a", 0, "1A"))
    first = Inventory(path, "c", "n", "boot-1")
    assert first.resume(1000.0, 25.0) == []
    first.update(driver, 1000.0)
    first.alive(1010.0)
    assert first.resume(1030.0, 25.0) == []
    (driver_gone,) = first.resume(1100.0, 25.0)
    assert (driver_gone.kind, driver_gone.happened_at) == ("agent_gap", 1010.0)
    assert driver_gone.detail == "90 s: the driver did not answer"
    (stopped,) = Inventory(path, "c", "n", "boot-1").resume(1110.0, 25.0)
    assert (stopped.happened_at, stopped.detail) == (1010.0, "100 s: the agent did not run")
    again = Inventory(path, "c", "n", "boot-2")
    (booted,) = again.resume(1110.0, 25.0)
    assert booted.detail == "100 s: the node was started anew"
    again.update(driver, 1110.0)
    again.alive(1120.0)
    assert Inventory(path, "c", "n", "boot-2").resume(1130.0, 25.0) == []


def test_u12_another_driver_is_told(tmp_path: Path) -> None:
    inventory, driver = Inventory(tmp_path / "inventory.json", "c", "n"), driver_of(("GPU-a", 0, "1A"))
    inventory.update(driver, 1.0)
    driver.driver_version = "575.2"
    assert events(inventory.update(driver, 2.0)) == [("driver_changed", None, "570.1 to 575.2")]


def with_instances(*uuids: str, lost: bool = False) -> Driver:
    driver = driver_of(("GPU-a", 0, "1A"))
    driver.devices[0].lost = lost
    driver.devices += tuple(
        KnownDevice(uuid, 0, None, None, None, "1A", parent_uuid="GPU-a", mig_profile="1g.12gb", share_ratio=1 / 7)
        for uuid in uuids
    )
    return driver


def test_an_instance_that_was_taken_apart_ends_and_one_of_a_lost_card_is_lost(tmp_path: Path) -> None:
    inventory = Inventory(tmp_path / "inventory.json", "c", "n")
    first = inventory.update(with_instances("MIG-b"), 1.0)
    (told,) = [it for it in first if isinstance(it, Device) and it.parent_uuid]
    assert (told.parent_uuid, told.mig_profile, told.share_ratio) == ("GPU-a", "1g.12gb", 0.142857)
    again = inventory.update(with_instances("MIG-c"), 2.0)
    assert devices(again) == [("MIG-b", 1.0, 2.0, "up", 0), ("MIG-c", 2.0, None, "up", 0)]
    assert events(again) == [("instance_removed", "MIG-b", "1A")]
    lost = inventory.update(with_instances(lost=True), 3.0)
    assert [(name, state) for name, _, until, state, _ in devices(lost) if until is None] == [
        ("MIG-c", "lost"),
        ("GPU-a", "lost"),
    ]


def test_mig_instances_are_no_cards_of_the_node(tmp_path: Path) -> None:
    driver = driver_of(("GPU-a", 0, "1A"))
    instance = KnownDevice("MIG-b", 0, None, None, None, "1A", parent_uuid="GPU-a", gpu_instance_id=7)
    driver.devices = (*driver.devices, instance)
    told = Inventory(tmp_path / "inventory.json", "c", "n").update(driver, 1.0)
    assert [name for name, *_ in devices(told)] == ["GPU-a", "MIG-b"]
    assert next(it.gpu_count for it in told if isinstance(it, Node)) == 1


def test_u27_a_disk_that_takes_nothing_costs_the_memory_and_not_the_agent(tmp_path: Path) -> None:
    path = tmp_path / "gone" / "inventory.json"  # there is no such folder: whoever writes there fails
    known = Inventory(path, "c", "n")
    assert len(devices(known.update(driver_of(("GPU-a", 0, "1A")), 1.0))) == 1
    assert devices(known.update(driver_of(("GPU-a", 0, "1A")), 2.0)) == []
    path.parent.mkdir()
    known.alive(3.0)
    assert path.stat().st_mtime == 3.0
    assert Inventory(path, "c", "n").update(driver_of(("GPU-a", 0, "1A")), 4.0) == []


def test_what_a_newer_release_remembered_is_read_by_an_older_one(tmp_path: Path) -> None:
    path = tmp_path / "inventory.json"
    Inventory(path, "c", "n").update(driver_of(("GPU-a", 0, "1A")), 1.0)
    stored = json.loads(path.read_text())
    for record in (stored["node"], *stored["devices"]):
        record["a_column_to_come"] = 1
    path.write_text(json.dumps(stored))
    assert Inventory(path, "c", "n").update(driver_of(("GPU-a", 0, "1A")), 2.0) == []
