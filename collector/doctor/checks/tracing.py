"""Which of the processes on the devices are traced, and why the others are not?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from collector.doctor.check import Check, Finding, Site, Stage, not_told
from collector.driver import Driver, KnownDevice
from collector.processes import ProcessTable
from collector.tracer.sight import Sight, tracing_of

MOST_PROCESSES: Final = 64
"""Told one by one; a node has that many where each of eight cards serves eight."""

WITHOUT_FAULT: Final = frozenset({Sight.NOT_ASKED, Sight.NOT_YET, Sight.ENDED, Sight.GONE, Sight.NO_GPU})
"""Not traced, and nothing is wrong: nobody asked for it, or there is nothing to trace."""

CALLS: Final = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses")


def _run(site: Site) -> Iterator[Finding]:
    driver = site.driver
    if driver is None:
        yield not_told("the driver does not open")
        return
    holders: dict[int, str] = {}
    cards = {device.lane: device for device in driver.living() if device.parent_uuid is None}
    jobs = {lane: partial(_pids, driver, card) for lane, card in cards.items()}
    done = driver.lanes.run(jobs, driver.patience_seconds)
    for lane, job in done.items():
        if job.error is None:
            holders |= dict.fromkeys(job.value, cards[lane].uuid)
    if not holders:
        yield Finding("no process on any device")
        return
    processes = ProcessTable(site.proc)
    traced = 0
    for pid, device_uuid in sorted(holders.items())[:MOST_PROCESSES]:
        told = tracing_of(pid, site.proc, on_gpu=True)
        traced += told.is_traced
        ok = True if told.is_traced else None if told.sight in WITHOUT_FAULT else False
        name = processes.name(pid)
        who = f"process {pid}" + (f" ({name})" if name else "")
        yield Finding(f"{who}: {told.sight.value}", device_uuid, ok=ok, reason=told.reason, fix=told.remedy)
    rest = len(holders) - MOST_PROCESSES
    more = f"; {rest} more were not looked at" if rest > 0 else ""
    yield Finding(f"{traced} of {min(len(holders), MOST_PROCESSES)} processes are traced{more}")


def _pids(driver: Driver, card: KnownDevice) -> list[int]:
    return [int(process.pid) for call in CALLS for process in driver.call(card, call) or ()]


CHECK = Check("tracing", "which processes are traced", Stage.TRACER, _run)
