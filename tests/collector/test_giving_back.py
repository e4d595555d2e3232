"""What the driver was lent is given back once no thread can write to it any more: else the process is corrupted."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collector import driver
from collector.simulate.standin import NEVER_RETURNS, StandinFault, library_path
from collector.sources.gpm import GpmReader
from collector.watch import EventWatch
from tests.collector.test_driver import Rig
from warehouse.contract.errors import TrueloadError


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    try:
        library_path()
    except TrueloadError as error:
        pytest.skip(str(error))
    made = Rig(tmp_path)
    yield made
    made.close()


@pytest.fixture
def freed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Note what is given back, and do it."""
    noted: list[tuple[str, int]] = []
    nvml = rig.driver.nvml
    for name in ("nvmlGpmSampleFree", "nvmlEventSetFree"):
        real = getattr(nvml, name)

        def free(handle: Any, real: Any = real, name: str = name) -> Any:
            noted.append((name, id(handle)))
            return real(handle)

        monkeypatch.setattr(nvml, name, free)
    return noted


def test_buffers_of_a_lane_at_work_are_kept_even_between_two_of_its_calls(
    rig: Rig, freed: list[tuple[str, int]]
) -> None:
    rig.round()
    reader: GpmReader = rig.readers["gpm"]
    working, over = threading.Event(), threading.Event()

    def job() -> None:
        working.set()
        over.wait(10)

    rig.driver.lanes.run({rig.driver.devices[1].lane: job}, 0.0)
    assert working.wait(10)
    assert rig.driver.devices[1].calling is None  # no call is out: the thread is about to make one
    reader.close()
    over.set()
    samples = [handle for name, handle in freed if name == "nvmlGpmSampleFree"]
    assert len(samples) == len(set(samples)) == 2 * 2  # two cards of three


def test_an_event_set_is_kept_while_a_registration_is_out(rig: Rig, freed: list[tuple[str, int]]) -> None:
    watch = EventWatch(rig.driver)
    watch.start()
    over = threading.Event()
    rig.driver.lanes.run({rig.driver.devices[0].lane: lambda: over.wait(10)}, 0.0)
    assert watch.stop()
    over.set()
    assert freed == []


@pytest.mark.parametrize("call", ["nvmlEventSetCreate", "nvmlEventSetFree"])
def test_a_call_for_events_that_never_returns_keeps_nobody(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    over = threading.Event()
    watch = EventWatch(rig.driver)
    monkeypatch.setattr(rig.driver.nvml, call, lambda *_given: over.wait(60))
    begin = time.monotonic()
    watch.start()
    assert not watch.stop()  # the library must not be shut down under the call
    assert time.monotonic() - begin < 30
    assert rig.driver.failures[call, "does not return"] == 1
    assert rig.round()
    over.set()


def test_a_card_that_hangs_when_the_driver_is_opened_does_not_keep_the_others_back(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "STRAGGLER_SECONDS", 0.3)
    rig.driver.close()
    rig.change(1, faults=(StandinFault("nvmlDeviceGetName", NEVER_RETURNS),))
    rig.write()
    begin = time.monotonic()
    rig.driver.open()
    assert time.monotonic() - begin < 10  # and not the 30 s that opening may take
    assert [device.index for device in rig.driver.devices] == [0, 2]
    assert rig.driver.unreadable == ((1, driver.NOT_RETURNED),)
    rig.change(1, faults=())
    rig.write()
    deadline = time.monotonic() + 10
    while len(rig.driver.devices) < 3 and time.monotonic() < deadline:
        rig.driver.reprobe()
        threading.Event().wait(0.05)
    assert [device.index for device in rig.driver.devices] == [0, 1, 2]


def test_everything_is_given_back_when_nobody_is_at_work(rig: Rig, freed: list[tuple[str, int]]) -> None:
    rig.round()
    watch = EventWatch(rig.driver)
    watch.start()
    assert watch.stop()
    rig.readers["gpm"].close()
    assert sorted(name for name, _ in freed) == ["nvmlEventSetFree"] + ["nvmlGpmSampleFree"] * 6
