"""The node agent on a real GPU: one run, one JSON document (README.md says which questions it answers)."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from collector import settings as names  # noqa: E402 - the script runs from a checkout, installed or not
from collector.agent import chosen_sources  # noqa: E402
from collector.driver import Driver, KnownDevice  # noqa: E402
from collector.source import DeviceReader, Reader, SourceContext  # noqa: E402
from collector.sweep import SourceHealth, sweep  # noqa: E402
from trueload import load_settings  # noqa: E402
from warehouse.contract.settings import Settings  # noqa: E402

SOURCES = "nvml,gpm"
GPM_NUMBERS = (*range(1, 14), 20, 21, *range(30, 38), 60, 61, *range(100, 104), *range(248, 261))
"""Metrics of nvml.h (``nvmlGpmMetricId_t``) that are tried one by one; those from 248 on are totals since boot."""

BETWEEN_SAMPLES_SECONDS = 0.25
CHILD_PATIENCE_SECONDS = 120
MICRO = 1e6
LOAD = """
import sys, time, torch
size, end = 8192, time.monotonic() + float(sys.argv[1])
left, right = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
print("running", flush=True)
while time.monotonic() < end:
    for _ in range(20):
        left @ right
    torch.cuda.synchronize()
"""


@dataclass
class Costs:
    """What each call took, by its name, in seconds."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    def told(self) -> dict[str, dict[str, float]]:
        """Give the count, the median, the 99th percentile and the longest of each call, in microseconds."""
        return {
            call: {
                "count": len(spent),
                "median_us": round(statistics.median(spent) * MICRO, 1),
                "p99_us": round(sorted(spent)[min(len(spent) - 1, int(0.99 * len(spent)))] * MICRO, 1),
                "longest_us": round(max(spent) * MICRO, 1),
            }
            for call, spent in sorted(self.seconds.items())
        }


class TimedDriver(Driver):
    """A driver that notes how long each of its calls takes; everything else is the agent's own."""

    costs: Costs

    def guarded(self, device: KnownDevice, key: tuple[str, str, tuple[Any, ...]], function: Callable[[], Any]) -> Any:
        """Make the call and note its time, by its name and its first plain argument."""
        first = next((argument for argument in key[2] if isinstance(argument, int)), None)
        name = key[1] if first is None else f"{key[1]} {first}"
        begin = time.perf_counter()
        try:
            return super().guarded(device, key, function)
        finally:
            self.costs.seconds.setdefault(name, []).append(time.perf_counter() - begin)


@contextmanager
def opened(settings: Settings) -> Iterator[TimedDriver]:
    """Open the driver as the agent does, and close it."""
    driver = TimedDriver(settings[names.NVML_LIBRARY], patience_seconds=10.0)
    driver.costs = Costs()
    driver.open()
    try:
        yield driver
    finally:
        driver.close()


def describe(driver: Driver) -> list[dict[str, Any]]:
    """Say what each device is."""
    kept = ("uuid", "index", "gpu_model", "memory_bytes", "pci_bus_id", "parent_uuid", "gpu_instance_id")
    return [{name: getattr(device, name) for name in kept} for device in driver.devices]


def readings(settings: Settings, seconds: float) -> dict[str, Any]:
    """Read every source once a second, as the agent does: values, failures, and the cost of each call."""
    with opened(settings) as driver:
        context = SourceContext(driver, settings)
        readers: dict[str, Reader | DeviceReader] = {one.name: one.open(context) for one in chosen_sources(settings)}
        health = {name: SourceHealth() for name in readers}
        values: dict[str, dict[str, dict[str, list[float]]]] = {}
        sweeps, said = [], list[str]()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            begin = time.perf_counter()
            found = sweep(driver, readers, health, said.append)
            sweeps.append(time.perf_counter() - begin)
            for source, those in found.items():
                for reading in those:
                    device = values.setdefault(reading.device_uuid, {}).setdefault(source, {})
                    for name, value in reading.values.items():
                        device.setdefault(name, []).append(value)
            time.sleep(max(0.0, 1.0 - (time.perf_counter() - begin)))
        for reader in readers.values():
            reader.close()
        return {
            "driver_version": driver.driver_version,
            "devices": describe(driver),
            "values": {
                device: {source: {name: _span(seen) for name, seen in those.items()} for source, those in by.items()}
                for device, by in values.items()
            },
            "sweep_median_us": round(statistics.median(sweeps) * MICRO, 1),
            "sweep_longest_us": round(max(sweeps) * MICRO, 1),
            "calls": driver.costs.told(),
            "failures": {f"{call}: {why}": count for (call, why), count in sorted(driver.failures.items())},
            "refused": {f"{uuid} {call}": text for (uuid, call), (_, text) in sorted(driver.refused.items())},
            "said": said,
        }


def _span(seen: Sequence[float]) -> dict[str, float]:
    return {"count": len(seen), "least": min(seen), "median": statistics.median(seen), "most": max(seen)}


def gpm_numbers(settings: Settings) -> dict[str, Any]:
    """Ask for each GPM metric by itself: which ones the driver has, and what they say between two samples."""
    with opened(settings) as driver:
        return {device.uuid: _gpm_of(driver, device) for device in driver.devices if device.parent_uuid is None}


def _gpm_of(driver: Driver, device: KnownDevice) -> Any:
    nvml = driver.nvml
    try:
        if not nvml.nvmlGpmQueryDeviceSupport(device.handle).isSupportedDevice:
            return "no GPM"
        older, newer = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
        nvml.nvmlGpmSampleGet(device.handle, older)
        time.sleep(BETWEEN_SAMPLES_SECONDS)
        nvml.nvmlGpmSampleGet(device.handle, newer)
        found = {str(number): _gpm_metric(nvml, number, older, newer) for number in GPM_NUMBERS}
        for sample in (older, newer):
            nvml.nvmlGpmSampleFree(sample)
    except nvml.NVMLError as error:
        return f"failed: {error}"
    return found


def _gpm_metric(nvml: Any, number: int, older: Any, newer: Any) -> float | str:
    request = nvml.c_nvmlGpmMetricsGet_t()
    request.version, request.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, 1
    request.metrics[0].metricId = number
    request.sample1, request.sample2 = older, newer
    try:
        answer = nvml.nvmlGpmMetricsGet(request).metrics[0]
    except nvml.NVMLError as error:
        return f"failed: {error}"
    return float(answer.value) if answer.nvmlReturn == 0 else f"return code {answer.nvmlReturn}"


def while_busy(settings: Settings, seconds: float) -> dict[str, Any]:
    """Read while a program multiplies matrices on the first GPU: what must be near 1 then, and what must not."""
    command = [sys.executable, "-c", LOAD, str(seconds + 5)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as load:
        assert load.stdout is not None
        try:
            if load.stdout.readline().strip() != "running":
                _, errors = load.communicate(timeout=CHILD_PATIENCE_SECONDS)
                return {"failed": f"no load: {errors.strip()[-300:]}"}
            return {**readings(settings, seconds), "gpm_numbers": gpm_numbers(settings)}
        finally:
            load.kill()


def doctor() -> dict[str, Any]:
    """Give what ``trueload doctor`` says here, as people and as programs see it."""
    told: dict[str, Any] = {}
    for name, more in (("text", []), ("document", ["--json"])):
        begin = time.monotonic()
        ran = subprocess.run(
            [sys.executable, "-m", "trueload", "doctor", *more],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=CHILD_PATIENCE_SECONDS,
            check=False,
        )
        told |= {"exit_code": ran.returncode, f"{name}_seconds": round(time.monotonic() - begin, 2)}
        told[name] = json.loads(ran.stdout) if more else ran.stdout.splitlines()
    return told


def agent(seconds: float) -> dict[str, Any]:
    """Run the agent for a while: what it takes of the node, how soon it has a batch, and what it exports."""
    with tempfile.TemporaryDirectory(prefix="trueload-gpu-") as folder:
        spool = Path(folder) / "spool"
        ours = {"SPOOL_DIR": str(spool), "TOKEN_FILE": "", "EXPORTER_DCGM_NAMES": "yes", "JOB_SOURCE": "process"}
        environment = {**os.environ, **{f"TRUELOAD_AGENT__{name}": value for name, value in ours.items()}}
        environment["TRUELOAD_AGENT__EXPORTER_LISTEN"] = f"127.0.0.1:{_free_port()}"
        begin = time.monotonic()
        with subprocess.Popen(
            [sys.executable, "-m", "trueload", "agent", "run"],
            cwd=ROOT,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        ) as child:
            log = _Collected(child)
            try:
                first = _first_batch(spool, begin, seconds)
                time.sleep(max(0.0, seconds - (time.monotonic() - begin)))
                usage = _usage(child.pid)
                metrics = _get(f"http://{environment['TRUELOAD_AGENT__EXPORTER_LISTEN']}/metrics")
            finally:
                child.terminate()
                child.wait(CHILD_PATIENCE_SECONDS)
                lines = log.lines()
        return {
            "seconds": seconds,
            "first_batch_seconds": first,
            **usage,
            "metrics": metrics.splitlines(),
            "log": lines,
        }


class _Collected:
    """Reads what a process logs, so that it never waits for us."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self._lines: list[str] = []
        self._child = child
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._child.stderr is not None
        self._lines += list(self._child.stderr)

    def lines(self) -> list[str]:
        self._thread.join(CHILD_PATIENCE_SECONDS)
        return [line.rstrip() for line in self._lines]


def _first_batch(spool: Path, begin: float, seconds: float) -> float | None:
    while time.monotonic() - begin < max(seconds, 15.0):
        if any(spool.glob("*.batch")):
            return round(time.monotonic() - begin, 2)
        time.sleep(0.02)
    return None


def _usage(pid: int) -> dict[str, float]:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    cpu_seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime, stime: proc_pid_stat(5)
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    return {"cpu_seconds_start_included": cpu_seconds, "resident_most_bytes": peak * 1024}


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - our own child
        text: str = answer.read().decode()
    return text


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _try(case: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return case(*arguments)
    except Exception as error:  # noqa: BLE001 - one case that fails must not cost the others
        return {"failed": f"{type(error).__name__}: {error}"}


def run_all(seconds: float, *, load: bool) -> dict[str, Any]:
    """Run every case; ``seconds`` is the length of each stretch of reading."""
    base = load_settings()
    settings = Settings({**base.values, names.SOURCES.name: tuple(SOURCES.split(","))}, base.origins)
    library = settings[names.NVML_LIBRARY]
    return {
        "machine": {"system": platform.platform(), "cores": os.cpu_count(), "python": platform.python_version()},
        "nvidia_ml_py": version("nvidia-ml-py"),
        "library": library or "the loader's",
        "doctor": _try(doctor),
        "idle": _try(readings, settings, seconds),
        "gpm_numbers": _try(gpm_numbers, settings),
        "busy": _try(while_busy, settings, seconds) if load else {"left_out": "--no-load"},
        "agent": _try(agent, max(seconds, 15.0)),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Be the run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="file for the document; standard output without it")
    parser.add_argument("--seconds", type=float, default=60, help="length of each stretch of reading")
    parser.add_argument("--no-load", action="store_true", help="leave the stretch under load out (it needs PyTorch)")
    options = parser.parse_args(arguments)
    text = json.dumps(run_all(options.seconds, load=not options.no_load), indent=1)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")
    else:
        sys.stdout.write(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
