"""A made-up fleet for benchmarks of the store: jobs that repeat, pause, fail and overlap, and every column of a sample.

Nothing here is a real measurement. Values are rounded as an agent rounds them, and move from sample to sample within a
job about as much as a training run's do, because that is what a compressed file is as large as.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from warehouse.arrow import COLUMN_TYPES
from warehouse.contract import model, wire

if TYPE_CHECKING:
    from warehouse.store import Store

FIRST_AT = 1_793_577_600.0
"""2026-11-02T00:00:00Z, a Monday."""

GPUS_PER_NODE = 8
_MODELS = ("NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3")
_MEMORY_BYTES = 80 * 1024**3
_IDLE_WATTS, _BUSY_WATTS = 65.0, 340.0


@dataclass(frozen=True, slots=True)
class Fleet:
    """How large: devices, for how long, one sample each ``cadence_seconds``; jobs of ``job_seconds`` with a gap."""

    gpus: int
    seconds: float
    cadence_seconds: float = 10.0
    job_seconds: float = 6600.0
    gap_seconds: float = 600.0
    seed: int = 1

    @property
    def samples(self) -> int:
        """Give the number of samples."""
        return self.gpus * int(self.seconds / self.cadence_seconds)


def write_fleet(store: Store, fleet: Fleet) -> None:
    """Fill a store with the fleet's records and samples, a few devices to a transaction."""
    with store.transaction() as transaction:
        transaction.write(wire.from_records(_records(fleet)))
    for first in range(0, fleet.gpus, GPUS_PER_NODE):
        devices = range(first, min(first + GPUS_PER_NODE, fleet.gpus))
        with store.transaction() as transaction:
            transaction.write_arrow("device_sample", pa.concat_tables([_samples(fleet, device) for device in devices]))


def _starts(fleet: Fleet, device: int) -> list[tuple[int, float, float]]:
    """Give number, begin and end of each job of a device; neighbours are out of step."""
    step = fleet.job_seconds + fleet.gap_seconds
    begins = np.arange(FIRST_AT - (device * 977) % step, FIRST_AT + fleet.seconds, step)
    return [
        (at * fleet.gpus + device, float(begin), float(begin) + fleet.job_seconds) for at, begin in enumerate(begins)
    ]


def _keys(number: int) -> tuple[str, str]:
    return f"bench/{number}#0", f"bench/{number}#0:1"


def _records(fleet: Fleet) -> list[model.Record]:
    found: list[model.Record] = []
    for device in range(fleet.gpus):
        name, node = _device(device)
        found.append(
            model.Device(name, "bench", node, FIRST_AT - 7200, None, "up", device % 8, _model(device), _MEMORY_BYTES)
        )
        for number, start, end in _starts(fleet, device):
            key, attempt = _keys(number)
            task = number % 12
            found += [
                model.Job(
                    key,
                    "bench",
                    str(number),
                    "bench",
                    name=f"train-{task}",
                    user=f"user{task % 5}",
                    account=f"lab{task % 3}",
                    partition="gpu",
                    command=f"python train.py --config {task}.yaml --seed {number}",
                    submit_at=start - 60,
                    time_limit_seconds=7200.0,
                    requested_gpu_count=1.0,
                ),
                model.Attempt(
                    attempt,
                    key,
                    model.AttemptState.FAILED if number % 17 == 0 else model.AttemptState.COMPLETED,
                    None,
                    start,
                    end,
                    "bench",
                    node_count=1,
                    node_list=node,
                ),
                model.Allocation(f"{attempt}:{name}", attempt, 1.0, start, end, "bench", device_uuid=name, node=node),
            ]
            if number % 29 == 0:
                found.append(model.Event("bench", node, "xid", start + 300, name, attempt, "Xid 31"))
    return found


def _device(number: int) -> tuple[str, str]:
    return f"GPU-{number:08x}-0000-4000-8000-{number * 2654435761 % 2**48:012x}", f"node{number // GPUS_PER_NODE:04d}"


def _model(number: int) -> str:
    return _MODELS[number // GPUS_PER_NODE % len(_MODELS)]


def _samples(fleet: Fleet, device: int) -> pa.Table:
    random = np.random.default_rng([fleet.seed, device])
    name, node = _device(device)
    at = FIRST_AT + np.arange(fleet.samples // fleet.gpus) * fleet.cadence_seconds
    owner = np.full(at.size, -1)
    load = np.zeros(at.size)
    for number, start, end in _starts(fleet, device):
        inside = (at >= start) & (at < end)
        owner[inside] = number
        load[inside] = 0.0 if number % 7 == 0 else 0.35 + 0.05 * (number % 12)
        load[inside & (at < start + 420)] = 0.0  # data are read before the first step
        load[inside & (number % 5 == 0) & (at > end - 1800)] = 0.0  # and some forget to end
    busy = np.clip(np.where(load > 0, load + random.normal(0, 0.03, at.size), 0.0), 0.0, 1.0)
    columns = _metrics(fleet, busy, owner >= 0, random)
    keys = {number: _keys(int(number))[1] for number in np.unique(owner) if number >= 0}
    fixed = {
        "cluster": "bench",
        "node": node,
        "device_uuid": name,
        "cadence_seconds": fleet.cadence_seconds,
        "source": "nvml",
        "attribution": "scheduler",
        "share_ratio": 1.0,
    }
    arrays = []
    for column, (kind, _) in COLUMN_TYPES["device_sample"].items():
        if column == "sampled_at":
            arrays.append(pa.array((at * 1e6).astype("int64")).cast(kind))
        elif column == "attempt_key":
            arrays.append(pa.array([keys.get(number) for number in owner], kind))
        elif column in fixed:
            arrays.append(pa.repeat(pa.scalar(fixed[column], kind), at.size))
        else:
            arrays.append(pa.array(columns[column], kind) if column in columns else pa.nulls(at.size, kind))
    return pa.table(arrays, names=list(COLUMN_TYPES["device_sample"]))


def _metrics(fleet: Fleet, busy: np.ndarray, held: np.ndarray, random: np.random.Generator) -> dict[str, np.ndarray]:
    """Give every metric of one device, rounded as an agent does: ratios to 4 digits, amounts to 3, the rest to 2."""
    size = busy.size

    def noisy(scale: float) -> np.ndarray:
        return np.asarray(random.normal(0, scale, size) * (busy > 0))

    cadence = fleet.cadence_seconds
    bound = np.clip(busy * 0.85 + noisy(0.02), 0, 1) * cadence
    watts = _IDLE_WATTS + (_BUSY_WATTS - _IDLE_WATTS) * busy + noisy(4)
    memory = np.where(held, np.where(busy > 0, 38.0 * 1024**3, 1.2 * 1024**3), 420.0 * 1024**2)
    celsius = 31 + 38 * busy
    ratios = {
        "driver_util_ratio": busy,
        "engine_active_ratio": np.clip(busy * 0.93 + noisy(0.01), 0, 1),
        "sm_active_ratio": np.clip(busy * 0.7 + noisy(0.02), 0, 1),
        "sm_occupancy_ratio": np.clip(busy * 0.3 + noisy(0.01), 0, 1),
        "tensor_active_ratio": np.clip(busy * 0.22 + noisy(0.01), 0, 1),
        "dram_active_ratio": np.clip(busy * 0.4 + noisy(0.015), 0, 1),
    }
    amounts = {
        "gpu_bound_seconds": bound,
        "copy_seconds": bound * 0.04,
        "gpu_busy_seconds": np.minimum(bound * 1.02, cadence),
        "energy_joules": watts * cadence,
    }
    others = {
        "process_count": held.astype(float),
        "memory_used_bytes": memory,
        "memory_used_bytes_max": memory,
        "power_watts": watts,
        "power_watts_max": watts + np.abs(noisy(8)),
        "temperature_celsius": np.round(celsius),
        "temperature_celsius_max": np.round(celsius + 1),
        "sm_clock_hertz": np.where(busy > 0, 1.41e9, 2.1e8),
    }
    return {
        **{name: values.round(4) for name, values in ratios.items()},
        **{name: values.round(3) for name, values in amounts.items()},
        **{name: values.round(2) for name, values in others.items()},
    }
