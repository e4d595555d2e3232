"""The driver and its sources over the stand-in, in this process: what each fault costs, and what it does not."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collector.driver import Driver, DriverGoneError, mig_profile_of, share_of_profile
from collector.processes import HOST_PID_NAMESPACE
from collector.settings import PROC_ROOT
from collector.simulate.standin import (
    NEVER_RETURNS,
    STATE_VARIABLE,
    GpmCounters,
    StandinCounters,
    StandinDevice,
    StandinEvent,
    StandinFault,
    StandinInstance,
    StandinProcess,
    StandinState,
    library_path,
)
from collector.source import Reading, SourceContext
from collector.sources import gpm, nvml
from collector.sources._counters import Energy
from collector.sweep import SourceHealth, sweep
from collector.watch import EventWatch
from tests.collector.proctree import ProcTree
from warehouse.contract.errors import TrueloadError
from warehouse.contract.settings import Settings

PATIENCE_SECONDS = 0.4  # a busy machine lets a healthy card wait, too


def card(place: int, **changes: Any) -> StandinDevice:
    made = StandinDevice(
        uuid=f"GPU-{place:08d}-0000-0000-0000-000000000000",
        name="NVIDIA H100 80GB HBM3",
        pci_bus_id=f"00000000:{0x1A + place:02X}:00.0",
        minor_number=place,
        memory_total_bytes=80 * 1024**3,
        memory_used_bytes=20 * 1024**3,
        driver_util_ratio=0.5,
        power_watts=300.0,
        energy_joules=1000.0,
        temperature_celsius=50.0,
        sm_clock_hertz=1.98e9,
        gpm=GpmCounters(10, 5, 4, 3, 2, 1),
        processes=(StandinProcess(os.getpid(), 1024**3, 0.4),),
    )
    return replace(made, **changes)


class Rig:
    """An open driver over a state of three cards, with both sources; ``write`` lets a second pass."""

    def __init__(self, folder: Path) -> None:
        self.cards = [card(0), card(1), card(2)]
        self.state = StandinState.create(folder / "node.nvml", "570.124.06", self.cards)
        os.environ[STATE_VARIABLE] = str(self.state.path)
        self.driver = Driver(str(library_path()), reprobe_seconds=0.0, patience_seconds=PATIENCE_SECONDS)
        self.driver.open()
        context = SourceContext(self.driver, Settings())
        self.readers: dict[str, Any] = {source.name: source.open(context) for source in (nvml.SOURCE, gpm.SOURCE)}
        self.health = {name: SourceHealth() for name in self.readers}
        self.said: list[str] = []

    def change(self, place: int, **changes: Any) -> None:
        self.cards[place] = replace(self.cards[place], **changes)

    def write(self) -> None:
        """Let every counter run on: 300 J and half of a second of activity."""
        for place, it in enumerate(self.cards):
            counters = it.gpm and GpmCounters(
                it.gpm.elapsed_seconds + 1, it.gpm.engine_active_seconds + 0.5, 4, 3, 2, 1
            )
            self.cards[place] = replace(it, energy_joules=it.energy_joules + 300, gpm=counters)
        self.state.write(self.cards)

    def sweep(self) -> dict[str, dict[str, Reading]]:
        """Give the readings by source and device."""
        found = sweep(self.driver, self.readers, self.health, self.said.append)
        return {name: {reading.device_uuid: reading for reading in readings} for name, readings in found.items()}

    def round(self) -> dict[str, dict[str, Reading]]:
        self.write()
        return self.sweep()

    def of(self, place: int) -> dict[str, float]:
        """Give what nvml says of a card in the next round."""
        return dict(self.round()["nvml"][self.cards[place].uuid].values)

    def close(self) -> None:
        self.state.write([replace(it, faults=(), lost=False) for it in self.cards])
        deadline = time.monotonic() + 5
        while self.driver.lanes.stuck and time.monotonic() < deadline:
            threading.Event().wait(0.01)
        self.driver.close()
        self.driver.lanes.close()
        self.state.close()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    try:
        library_path()
    except TrueloadError as error:
        pytest.skip(str(error))
    made = Rig(tmp_path)
    try:
        yield made
    finally:
        made.close()
        del os.environ[STATE_VARIABLE]


CALLS = (
    *(
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetSamples",
        "nvmlDeviceGetTemperature",
    ),
    *("nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetClockInfo", "nvmlDeviceGetFieldValues"),
    *("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetProcessUtilization", "nvmlDeviceGetPowerUsage"),
    *("nvmlGpmSampleGet", "nvmlGpmMetricsGet"),
)
CODES = (2, 3, 4, 6, 13, 15, 16, 21, 25, 999, NEVER_RETURNS)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(call=st.sampled_from(CALLS), code=st.sampled_from(CODES), place=st.integers(0, 2))
def test_a_fault_in_one_card_never_changes_what_is_said_of_another(
    tmp_path_factory: pytest.TempPathFactory, call: str, code: int, place: int
) -> None:
    rig = Rig(tmp_path_factory.mktemp("rig"))
    try:
        rig.sweep()
        healthy = rig.round()
        rig.change(place, faults=(StandinFault(call, code),))
        faulty = rig.round()
        for source, readings in healthy.items():
            for other in (it.uuid for at, it in enumerate(rig.cards) if at != place):
                assert faulty[source][other].values == pytest.approx(dict(readings[other].values))
        mine = faulty["nvml"].get(rig.cards[place].uuid)
        for name, value in {} if mine is None else dict(mine.values).items():
            assert value != 0 or healthy["nvml"][rig.cards[place].uuid].values[name] == 0  # absent is never zero
    finally:
        rig.close()
        del os.environ[STATE_VARIABLE]


def test_u12_a_call_that_never_returns_is_named_and_its_card_comes_back_when_it_does(rig: Rig) -> None:
    rig.sweep()
    rig.change(1, faults=(StandinFault("nvmlDeviceGetTemperature", NEVER_RETURNS),))
    threads = threading.active_count() - 1  # without the one that the sweep was made on, if not more
    for _ in range(8):
        found = rig.round()
        assert set(found["nvml"]) == {rig.cards[0].uuid, rig.cards[2].uuid}
    assert threading.active_count() <= threads + len(rig.cards)
    out = rig.driver.stuck()
    assert [(it.device_uuid, it.call) for it in out] == [(rig.cards[1].uuid, "nvmlDeviceGetTemperature")]
    assert rig.said[0] == f"gpu 1: {rig.cards[1].uuid}: nvmlDeviceGetTemperature does not return; the others go on"
    rig.change(1, faults=())
    rig.write()
    while rig.driver.lanes.busy("gpu 1"):
        threading.Event().wait(0.01)
    assert rig.cards[1].uuid in rig.round()["nvml"]
    assert rig.driver.stuck() == []


def test_u11_a_lost_card_costs_its_own_readings_and_is_asked_again(rig: Rig) -> None:
    rig.sweep()
    rig.change(1, lost=True)
    assert set(rig.round()["nvml"]) == {rig.cards[0].uuid, rig.cards[2].uuid}
    assert rig.driver.reprobe() == []
    rig.change(1, lost=False)
    rig.write()
    assert [device.uuid for device in rig.driver.reprobe()] == [rig.cards[1].uuid]
    assert rig.cards[1].uuid in rig.round()["nvml"]


@pytest.mark.parametrize("code", [1, 9, 18])
def test_u12_a_driver_that_is_gone_has_to_be_opened_anew(rig: Rig, code: int) -> None:
    rig.sweep()
    rig.change(1, faults=(StandinFault("nvmlDeviceGetTemperature", code),))
    with pytest.raises(DriverGoneError):
        rig.round()
    rig.change(1, faults=())
    rig.write()
    rig.driver.close()
    rig.driver.open()
    assert len(rig.driver.devices) == 3


def test_u12_a_driver_that_is_not_loaded_yet_is_tried_again(rig: Rig) -> None:
    rig.driver.close()
    rig.state.write(rig.cards, init_return_code=9)
    for _ in range(10):
        with pytest.raises(DriverGoneError, match="is it loaded"):
            rig.driver.open()
    rig.write()
    rig.driver.open()
    assert len(rig.driver.devices) == 3


def test_u12_the_library_is_shut_down_as_often_as_it_was_initialised(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    import pynvml

    calls: Counter[str] = Counter()
    for name in ("nvmlInit", "nvmlShutdown"):
        original = getattr(pynvml, name)

        def counted(name: str = name, original: Any = original) -> None:
            original()
            calls[name] += 1  # only what succeeded

        monkeypatch.setattr(pynvml, name, counted)
    rig.driver.close()
    rig.state.write(rig.cards, init_return_code=9)
    with pytest.raises(DriverGoneError):
        rig.driver.open()
    rig.write()
    rig.driver.open()
    rig.change(1, faults=(StandinFault("nvmlDeviceGetTemperature", 18),))
    with pytest.raises(DriverGoneError):
        rig.round()
    rig.driver.close()
    rig.change(1, faults=())
    rig.write()
    rig.driver.open()
    rig.driver.close()
    assert (calls["nvmlInit"], calls["nvmlShutdown"]) == (2, 3)  # one was initialised before anybody counted


def test_what_is_not_permitted_is_asked_once(rig: Rig) -> None:
    rig.change(0, faults=(StandinFault("nvmlDeviceGetTemperature", 4),))
    for _ in range(3):
        assert "temperature_celsius" not in rig.of(0)
    failures = {key: count for key, count in rig.driver.failures.items() if key[0] == "nvmlDeviceGetTemperature"}
    assert list(failures.values()) == [1]


def test_u14_a_counter_that_starts_over_drops_that_step_and_says_so(rig: Rig) -> None:
    rig.sweep()
    told = []
    for joules in (1.0, 1.5, 0.2, 0.7):
        rig.change(0, energy_joules=joules - 300)
        told.append(rig.of(0).get("energy_joules"))
    assert told == [None, pytest.approx(0.5), None, pytest.approx(0.5)]
    assert rig.driver.failures["energy_joules", "the counter started over"] == 2


def test_u14_without_a_counter_energy_is_power_over_the_time_elapsed(rig: Rig) -> None:
    rig.change(0, faults=(StandinFault("nvmlDeviceGetTotalEnergyConsumption", 3),))
    rig.write()
    at = iter(range(0, 61, 1))
    energy = Energy(rig.driver, clock=lambda: float(next(at)))
    device = rig.driver.devices[0]
    told = [energy.joules(device, 300.0) for _ in range(61)]
    assert told[0] is None
    assert sum(joules for joules in told if joules is not None) == pytest.approx(18_000, rel=0.02)
    rig.driver.close()
    rig.driver.open()
    assert [card.energy_method for card in rig.driver.devices] == ["power", "counter", "counter"]


def test_u14_a_counter_that_is_slower_than_the_readings_loses_nothing_and_power_has_no_gaps(rig: Rig) -> None:
    rig.sweep()
    joules, watts = [], []
    for total in (600, 600, 600, 1500, 1500, 1500, 2400, 2400, 2400):
        rig.change(0, energy_joules=total - 300)
        found = rig.of(0)
        watts.append(found["power_watts"])
        joules.append(found.get("energy_joules"))
    assert joules[1:] == [0.0, 0.0, 900.0, 0.0, 0.0, 900.0, 0.0, 0.0]
    assert set(watts) == {300.0}


def test_u11_a_source_that_begins_anew_reads_as_if_for_the_first_time(rig: Rig) -> None:
    rig.sweep()
    rig.round()
    rig.readers["gpm"].begin_anew(rig.driver.devices[0])
    first, second = rig.round()["gpm"], rig.round()["gpm"]
    assert dict(first[rig.cards[0].uuid].values) == {}
    assert first[rig.cards[1].uuid].values["engine_active_ratio"] == 0.5
    assert second[rig.cards[0].uuid].values["engine_active_ratio"] == 0.5


def test_u09_markers_for_no_value_are_absent_and_counted(rig: Rig) -> None:
    rig.sweep()
    rig.change(0, energy_joules=(2**64 - 1) / 1000 - 300 - 4096)
    assert "energy_joules" not in rig.of(0)
    assert rig.driver.failures["energy_joules", "impossible: a marker for no value"] == 1


@pytest.mark.parametrize("change", [{"memory_total_bytes": 0, "memory_used_bytes": 0}, {"faults": "both"}])
def test_u08_a_machine_without_memory_of_its_own_gives_no_number(rig: Rig, change: dict[str, Any]) -> None:
    if "faults" in change:
        calls = ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2")
        change = {"faults": tuple(StandinFault(call, 3) for call in calls)}
    rig.change(0, **change)
    found = rig.of(0)
    assert "memory_used_bytes" not in found
    assert found["driver_util_ratio"] == 0.5
    rig.driver.close()
    rig.driver.open()
    cards = rig.driver.devices
    assert (cards[0].memory_bytes, cards[0].memory_kind) == (None, "unified")
    assert (cards[1].memory_bytes, cards[1].memory_kind) == (80 * 1024**3, "dedicated")


def test_u07_samples_of_processes_are_counted_once_and_rubbish_is_rejected(rig: Rig) -> None:
    mine = os.getpid()
    rig.sweep()

    def shares() -> dict[int, float]:
        reading = rig.sweep()["nvml"][rig.cards[0].uuid]
        return {it.pid: it.values["driver_util_ratio"] for it in reading.processes if "driver_util_ratio" in it.values}

    rig.write()
    assert shares() == {mine: 0.4}
    assert shares() == {}  # the same sample again
    rubbish = tuple(StandinProcess(mine, None, 4e7) for _ in range(31))
    rig.change(0, processes=(StandinProcess(mine, None, 0.6), *rubbish))
    rig.write()
    assert shares() == {mine: 0.6}
    assert rig.driver.failures["process driver_util_ratio", "impossible: above 1"] == 31
    rig.change(0, processes=())
    rig.write()
    assert shares() == {}


def test_u10_a_card_with_mig_gives_nulls_and_its_instances_their_own(rig: Rig) -> None:
    def instance(place: int, seconds: float) -> StandinInstance:
        counters = GpmCounters(seconds, seconds / 4, 0, 0, 0, 0)
        name = "NVIDIA H100 MIG 1g.12gb"
        return StandinInstance(f"MIG-{place}", name, place + 7, 12 * 1024**3, 1024**3, counters, compute_instance_id=3)

    rig.driver.close()
    rig.change(1, instances=(instance(0, 1), None, instance(2, 1)), driver_util_ratio=0.8)
    rig.write()
    rig.driver.open()
    assert [it.uuid for it in rig.driver.devices if it.parent_uuid] == ["MIG-0", "MIG-2"]
    told = rig.driver.devices[-2]
    assert (told.parent_uuid, told.gpu_instance_id, told.compute_instance_id) == (rig.cards[1].uuid, 9, 3)
    assert (told.mig_profile, told.share_ratio, told.minor_number) == ("1g.12gb", 1 / 8, 1)
    assert [it.minor_number for it in rig.driver.devices if it.parent_uuid is None] == [0, 1, 2]
    rig.sweep()
    rig.change(1, instances=(instance(0, 2), None, instance(2, 2)))
    found = rig.round()
    assert "driver_util_ratio" not in found["nvml"][rig.cards[1].uuid].values
    assert found["nvml"][rig.cards[0].uuid].values["driver_util_ratio"] == 0.5
    assert dict(found["nvml"]["MIG-2"].values) == {"memory_used_bytes": 1024**3}
    assert found["gpm"]["MIG-0"].values["engine_active_ratio"] == 0.25


def test_u05_instances_that_are_made_or_removed_while_the_driver_is_open_are_seen(rig: Rig) -> None:
    def instance(place: int) -> StandinInstance:
        return StandinInstance(f"MIG-{place}", "NVIDIA H100 MIG 1g.12gb", place + 7, 12 * 1024**3, 1024**3)

    def cut(*parts: StandinInstance | None) -> list[str]:
        rig.change(1, instances=parts)
        rig.write()
        rig.driver.reprobe()
        return [it.uuid for it in rig.driver.devices]

    cards = [it.uuid for it in rig.cards]
    rig.change(1, instances=(instance(0),))
    rig.write()
    rig.driver.close()
    rig.driver.open()
    first = rig.driver.devices
    assert cut(instance(0)) == [*cards[:2], "MIG-0", cards[2]]
    assert rig.driver.devices is first
    assert cut(instance(0), None, instance(2)) == [*cards[:2], "MIG-0", "MIG-2", cards[2]]
    assert dict(rig.round()["nvml"]["MIG-2"].values) == {"memory_used_bytes": 1024**3}
    rig.change(1, instances=(None, None, instance(2)))
    assert "MIG-0" not in rig.round()["nvml"]
    assert cut(None, None, instance(2)) == [*cards[:2], "MIG-2", cards[2]]
    rig.change(1, faults=(StandinFault("nvmlDeviceGetMigDeviceHandleByIndex", 999),))
    assert cut(None, None, instance(2)) == [*cards[:2], "MIG-2", cards[2]]  # what fails says nothing


@pytest.mark.parametrize(
    ("name", "profile", "share"),
    [
        ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", "3g.20gb", 3 / 7),
        ("NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb", "1c.3g.40gb", 1 / 7),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb+me", "1g.10gb+me", 1 / 7),
        ("NVIDIA H100 80GB HBM3 MIG 9g.80gb", "9g.80gb", 1.0),
        ("NVIDIA H100 80GB HBM3", None, 1.0),
        (None, None, 1.0),
    ],
)
def test_u10_the_profile_of_an_instance_is_what_the_driver_calls_it(
    name: str | None, profile: str | None, share: float
) -> None:
    assert mig_profile_of(name) == profile
    assert share_of_profile(profile, 7) == share


def test_u06_the_mps_server_is_nobodys_job_and_its_clients_are(rig: Rig, tmp_path: Path) -> None:
    named = tmp_path / "nvidia-cuda-mps-server"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", named)
    server = subprocess.Popen([str(named), "60"])
    try:
        while (Path(f"/proc/{server.pid}/comm").read_text()).strip() != "nvidia-cuda-mps":
            threading.Event().wait(0.01)
        client = StandinProcess(os.getpid(), 2**30, 0.3, mps=True)
        rig.change(0, processes=(StandinProcess(server.pid, 2**20, 0.3), client))
        found = rig.round()["nvml"][rig.cards[0].uuid]
        assert found.pids == (os.getpid(),)
        assert found.values["process_count"] == 1
    finally:
        server.kill()
        server.wait()


@pytest.mark.parametrize(("namespace", "pids"), [(HOST_PID_NAMESPACE, ()), ("pid:[4026532999]", (77,))])
def test_u06_a_name_is_looked_up_where_the_settings_say_and_only_with_the_hosts_pids(
    rig: Rig, tmp_path: Path, namespace: str, pids: tuple[int, ...]
) -> None:
    tree = ProcTree(tmp_path / "proc", namespace)
    tree.add(77, name="nvidia-cuda-mps")
    settings = Settings({PROC_ROOT.name: str(tree.root)})
    rig.readers["nvml"] = nvml.SOURCE.open(SourceContext(rig.driver, settings))
    rig.change(0, processes=(StandinProcess(77, 2**20, 0.3),))
    assert rig.round()["nvml"][rig.cards[0].uuid].pids == pids


def test_slow_downs_and_traffic_come_from_counters(rig: Rig) -> None:
    rig.change(0, counters=StandinCounters(), nvlink_bytes=(0, 0))
    rig.of(0)
    rig.sweep()
    rig.change(0, counters=StandinCounters(pcie_received_bytes=4096), nvlink_bytes=(2048, 1024))
    found = rig.of(0)
    assert (found["pcie_received_bytes"], found["pcie_transmitted_bytes"]) == (4096, 0)
    assert (found["nvlink_transmitted_bytes"], found["nvlink_received_bytes"]) == (2048, 1024)
    assert found["power_capped_ratio"] == 0


def test_errors_of_memory_are_counted_since_the_reading_before(rig: Rig) -> None:
    rig.change(0, counters=StandinCounters(ecc_corrected=5, ecc_uncorrected=1))
    assert "ecc_corrected_count" not in rig.of(0)
    rig.change(0, counters=StandinCounters(ecc_corrected=8, ecc_uncorrected=1))
    found = rig.of(0)
    assert (found["ecc_corrected_count"], found["ecc_uncorrected_count"]) == (3, 0)
    rig.change(0, counters=StandinCounters(ecc_corrected=2, ecc_uncorrected=1))
    assert "ecc_corrected_count" not in rig.of(0)  # the driver was loaded anew
    assert "ecc_corrected_count" not in rig.of(1)  # a board without ECC has no errors and no zero


def test_totals_since_boot_stand_in_for_means_and_are_held_against_them(rig: Rig) -> None:
    reader: gpm.GpmReader = rig.readers["gpm"]
    rig.change(0, gpm_totals=True)
    rig.round()
    device = rig.driver.devices[0]
    pair = reader._pairs[device.uuid]
    reader._values(device, pair, {248: 1000.0, 249: 100.0, 250: 50.0})
    found = reader._values(device, pair, {2: 90.0, 248: 2000.0, 249: 350.0, 250: 150.0})
    assert (found["sm_active_ratio"], found["tensor_active_ratio"]) == (0.9, 0.1)
    assert rig.driver.failures["sm_active_ratio", "a total since boot that disagrees with the mean"] == 1


def test_traffic_is_told_by_gpm_only_where_field_values_tell_none(rig: Rig) -> None:
    rig.change(0, counters=StandinCounters(), nvlink_bytes=(0, 0), gpm_totals=True)
    rig.change(1, nvlink_bytes=None, gpm_totals=True)
    rig.round()
    found = rig.round()
    assert found["nvml"][rig.cards[0].uuid].values["pcie_received_bytes"] == 0
    assert not [name for name in found["gpm"][rig.cards[0].uuid].values if name.endswith("_bytes")]
    assert "pcie_received_bytes" not in found["nvml"][rig.cards[1].uuid].values
    rig.round()
    assert rig.round()["gpm"][rig.cards[1].uuid].values["pcie_received_bytes"] == 0
    assert "gpm" in rig.health


def test_without_counters_slow_downs_are_the_bits_of_the_moment(rig: Rig) -> None:
    rig.change(0, clock_event_reasons=0x4 | 0x40)
    rig.of(0)
    found = rig.of(0)
    names = ("power_capped_ratio", "thermal_slowed_ratio", "power_braked_ratio")
    assert [found[name] for name in names] == [1.0, 1.0, 0.0]
    assert "pcie_received_bytes" not in found


def test_u11_an_xid_and_remapped_rows_are_told_as_events(rig: Rig) -> None:
    rig.change(0, counters=StandinCounters())
    rig.of(0)
    watch = EventWatch(rig.driver)
    watch.start()
    try:
        rig.change(0, events=(StandinEvent(8, 79),), counters=StandinCounters(remapped_uncorrected=1))
        rig.of(0)
        deadline = time.monotonic() + 10
        while len(rig.driver.occurrences) < 2 and time.monotonic() < deadline:
            threading.Event().wait(0.01)
    finally:
        assert watch.stop()
    told = Counter((it.kind, it.detail) for it in rig.driver.occurrences)
    assert told == {("xid", "79"): 1, ("rows_remapped", "corrected 0, uncorrected 1, pending 0, failed 0"): 1}
    assert rig.driver.last_xid == {rig.cards[0].uuid: "79"}
