"""A process that is measured: the bare loop of the binding, or the agent as it runs. Its figures are its last line.

``bare``: the calls that any exporter makes, on every device each interval, and nothing else. ``agent``: ``agent run``.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

COUNTED_AFTER_SECONDS = 2.0
"""Starting up is measured apart from running."""


def bare(library: str, seconds: float, interval_seconds: float) -> dict[str, float]:
    """Read eight gauges of every device each interval through the binding; give CPU time, memory and sweep time."""
    ctypes.CDLL(library)
    import pynvml

    pynvml.nvmlInit()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    slowest = total = 0.0
    rounds = 0
    begin, cpu = time.monotonic(), time.process_time()
    while time.monotonic() - begin < seconds:
        at = time.perf_counter()
        for handle in handles:
            _gauges(pynvml, handle)
        took = time.perf_counter() - at
        slowest, total, rounds = max(slowest, took), total + took, rounds + 1
        time.sleep(interval_seconds)
    lasted = time.monotonic() - begin
    share = (time.process_time() - cpu) / lasted
    return {"core_ratio": share, "resident_bytes": _peak_bytes(), "sweep_mean_seconds": total / rounds}


def agent(seconds: float) -> dict[str, float]:
    """Run the agent of the environment's settings for a while; give what it took."""
    from collector import sweep as sweeping
    from collector.commands import agent_command

    sweeps: list[float] = []
    original = sweeping.sweep

    def timed(*arguments: Any) -> Any:
        begin = time.perf_counter()
        try:
            return original(*arguments)
        finally:
            sweeps.append(time.perf_counter() - begin)

    import collector.agent

    collector.agent.sweep = timed  # type: ignore[attr-defined,assignment]
    from trueload import load_settings

    class Root:
        """Of the front door, the settings."""

        settings = staticmethod(load_settings)

    marks: list[tuple[float, float, int]] = []

    def mark(_number: int, _frame: object) -> None:
        marks.append((time.process_time(), time.monotonic(), len(sweeps)))
        if len(marks) == 1:
            signal.setitimer(signal.ITIMER_REAL, seconds)
        else:
            os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGALRM, mark)
    signal.setitimer(signal.ITIMER_REAL, COUNTED_AFTER_SECONDS)
    agent_command.main(["run"], obj=Root(), standalone_mode=False)
    (cpu, at, first), (cpu_then, then, last) = marks
    counted = sweeps[first:last]
    return {
        "core_ratio": (cpu_then - cpu) / (then - at),
        "resident_bytes": _peak_bytes(),
        "sweep_mean_seconds": sum(counted) / len(counted),
        "sweep_slowest_seconds": max(counted),
    }


def _gauges(pynvml: Any, handle: Any) -> None:
    pynvml.nvmlDeviceGetUtilizationRates(handle)
    pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2)
    pynvml.nvmlDeviceGetPowerUsage(handle)
    pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)
    pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
    pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)


def _peak_bytes() -> float:
    """Give the most that this program had resident; what its parent had before ``exec`` is no part of it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(float(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))


if __name__ == "__main__":
    kind, library, seconds, interval_seconds = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
    figures = bare(library, seconds, interval_seconds) if kind == "bare" else agent(seconds)
    sys.stdout.write(json.dumps(figures) + "\n")
