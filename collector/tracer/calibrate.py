"""What being traced adds to one kernel launch on this machine, measured with and without the tracer.

CUPTI's own work on the launching thread cannot be seen from inside, so it is measured from outside: processes launch
empty kernels through libcuda, in turn traced and not, and time batches that are too short to fill the launch queue. The
difference is the cost per launch; it belongs to one GPU model, driver and CUPTI, and is stored with them. As in
RL-Scope's delta calibration (Gleeson et al., MLSys 2021), the cost is a difference of means of otherwise equal runs; a
negative difference is kept, for it tells how far noise reaches.
"""

from __future__ import annotations

import ctypes
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from collector.tracer import layout
from collector.tracer.launch_costs import LaunchCost
from collector.tracer.library import INJECTION_VARIABLE, library_path
from collector.tracer.published import published_memory, read_header
from warehouse.contract.errors import TrueloadError

BATCH_LAUNCHES: Final = 200
"""Launches timed together: many times the clock's cost, a fraction of the queue of 1,024 (then a launch would wait)."""

BATCHES: Final = 100
ROUNDS: Final = 5
"""Processes of each kind: 5 x 100 batches give a median that repeats to about 1 % on an idle machine."""

_EMPTY_KERNEL: Final = b".version 6.4\n.target sm_70\n.address_size 64\n.visible .entry empty() { ret; }\n\0"


def measure_launch_cost(device: int = 0, rounds: int = ROUNDS, batches: int = BATCHES) -> LaunchCost:
    """Measure on the CUDA device of this ordinal; takes a few seconds and the device should be idle.

    Raises:
        TrueloadError: there is no usable GPU, or the traced processes were not traced.
    """
    runs: dict[bool, list[float]] = {True: [], False: []}
    told: dict[str, object] = {}
    for _ in range(rounds):
        for traced in (False, True):  # in turn, so that a drift of the clocks hits both alike
            told = _run(device, batches, traced=traced)
            times = told["batch_nanoseconds"]
            assert isinstance(times, list)  # noqa: S101 - our own process wrote it
            runs[traced] += [nanoseconds / BATCH_LAUNCHES for nanoseconds in times]
    low, _, high = statistics.quantiles(runs[True], n=4)
    untraced, traced_cost = statistics.median(runs[False]), statistics.median(runs[True])
    return LaunchCost(
        untraced_nanoseconds=round(untraced, 1),
        traced_nanoseconds=round(traced_cost, 1),
        added_nanoseconds=round(traced_cost - untraced, 1),
        spread_nanoseconds=round(high - low, 1),
        launches_count=len(runs[True]) * BATCH_LAUNCHES,
        gpu_model=str(told["gpu_model"]),
        device_uuid=str(told["device_uuid"]),
        cupti_version=int(str(told["cupti_version"])),
        cuda_driver_version=int(str(told["cuda_driver_version"])),
    )


def _run(device: int, batches: int, *, traced: bool) -> dict[str, object]:
    environment = {name: value for name, value in os.environ.items() if name != INJECTION_VARIABLE}
    if traced:
        environment[INJECTION_VARIABLE] = str(library_path())
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "collector.tracer.calibrate",
            str(device),
            str(batches),
            "traced" if traced else "plain",
        ],
        env=environment,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
        raise TrueloadError(f"no launches could be timed: {reason}")
    told: dict[str, object] = json.loads(done.stdout)
    return told


class _Cuda:
    """libcuda, every call checked."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise TrueloadError(f"no CUDA driver: {error}") from error

    def __call__(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            raise TrueloadError(f"{name} failed with CUDA error {status}")


def _be_measured(device: int, batches: int, *, traced: bool) -> dict[str, object]:
    """Be the measured process. Only the launches are timed, not the wait for them."""
    cuda, handle = _Cuda(), ctypes.c_int()
    context, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    uuid, name = (ctypes.c_ubyte * 16)(), ctypes.create_string_buffer(256)
    cuda("cuInit", 0)
    cuda("cuDeviceGet", ctypes.byref(handle), device)
    cuda("cuDeviceGetUuid_v2", uuid, handle)
    cuda("cuDeviceGetName", name, len(name), handle)
    cuda("cuDevicePrimaryCtxRetain", ctypes.byref(context), handle)
    cuda("cuCtxSetCurrent", context)
    cuda("cuModuleLoadData", ctypes.byref(module), _EMPTY_KERNEL)
    cuda("cuModuleGetFunction", ctypes.byref(kernel), module, b"empty")
    grid_and_block = [ctypes.c_uint(1)] * 6
    arguments = (kernel, *grid_and_block, ctypes.c_uint(0), None, None, None)
    times = []
    for _ in range(batches + 1):
        began = time.perf_counter_ns()
        for _ in range(BATCH_LAUNCHES):
            cuda("cuLaunchKernel", *arguments)
        times.append(time.perf_counter_ns() - began)
        cuda("cuCtxSynchronize")
    memory = published_memory("self")
    header = read_header(memory) if memory is not None else None
    if traced and (header is None or header.state != layout.STATE_ARMED):
        why = f"state {header.state}, step {header.failure_step}, code {header.failure_code}" if header else "no memory"
        raise TrueloadError(f"the process was not traced ({why}); trueload doctor says more")
    return {
        "batch_nanoseconds": times[1:],  # the first one loads the kernel
        "gpu_model": name.value.decode("utf-8", "replace"),
        "device_uuid": bytes(uuid).hex(),
        "cupti_version": header.cupti_version if header else 0,
        "cuda_driver_version": header.cuda_driver_version if header else 0,
    }


if __name__ == "__main__":
    try:
        result = _be_measured(int(sys.argv[1]), int(sys.argv[2]), traced=sys.argv[3] == "traced")
    except TrueloadError as error:
        sys.exit(str(error))
    sys.stdout.write(json.dumps(result))
