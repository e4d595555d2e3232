"""Timing our reading of a trace and HolisticTraceAnalysis's, each in a fresh process, imports not counted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

HTA_PYTHON = "HTA_PYTHON"
"""The variable of the environment that names an interpreter with HolisticTraceAnalysis, where this one is without."""

TIMEOUT_SECONDS = 600

_OURS = """
import json, sys, time
from pathlib import Path
from analysis.traces.hta import hta_tables, hta_view
from warehouse.imports.kineto import read_timeline
seconds = []
for _ in range(int(sys.argv[2])):
    begin = time.perf_counter()
    hta_tables(hta_view(read_timeline(Path(sys.argv[1]))), 0)
    seconds.append(time.perf_counter() - begin)
print(json.dumps({"seconds": seconds}))
"""

_THEIRS = """
import json, logging, os, sys, tempfile, time
from importlib.metadata import version
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
seconds = []
with tempfile.TemporaryDirectory() as folder:
    for _ in range(int(sys.argv[2])):
        begin = time.perf_counter()
        trace = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=folder)
        times = trace.get_temporal_breakdown(visualize=False)
        trace.get_idle_time_breakdown(ranks=[0], visualize=False)
        trace.get_comm_comp_overlap(visualize=False)
        trace.get_gpu_kernel_breakdown(visualize=False)
        trace.get_cuda_kernel_launch_stats(ranks=[0], visualize=False)
        seconds.append(time.perf_counter() - begin)
rows = json.loads(times.to_json(orient="records"))
print(json.dumps({"seconds": seconds, "version": version("HolisticTraceAnalysis"), "temporal_breakdown": rows}))
"""


def our_seconds(path: Path, repeats: int) -> list[float]:
    """Give how long we took for a file, each time: from the packed file to HTA's tables."""
    ran = _run(sys.executable, _OURS, path, repeats)
    ran.check_returncode()
    seconds: list[float] = list(_last_line(ran)["seconds"])
    return seconds


def hta_timing(path: Path, repeats: int) -> dict[str, Any] | str:
    """Give HTA's seconds, version and temporal breakdown; or why there are none."""
    python = os.environ.get(HTA_PYTHON) or sys.executable
    ran = _run(python, _THEIRS, path, repeats)
    if ran.returncode:
        last = ran.stderr.strip().rpartition("\n")[2]
        return f"HolisticTraceAnalysis could not be run ({last}); install it, or name its interpreter in {HTA_PYTHON}"
    return _last_line(ran)


def _run(python: str, program: str, path: Path, repeats: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-c", program, str(path.resolve()), str(repeats)],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )


def _last_line(ran: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(ran.stdout.strip().rpartition("\n")[2])
    return answer
