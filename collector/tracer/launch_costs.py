"""The file of calibrated launch costs: written by ``trueload agent calibrate``, read by the agent.

One JSON document, ``{"version": 1, "launch_costs": [...]}``, with one entry for each GPU model, CUPTI and driver; each
holds the fields of :class:`LaunchCost` and when it was measured.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from collector.files import replace_file
from collector.tracer.correction import launch_cost
from warehouse.contract.duty_cycle import Estimate
from warehouse.contract.errors import BadInputError, TrueloadError

VERSION: Final = 1


class Setup(NamedTuple):
    """What a cost belongs to. Versions are as the tracer's header tells them."""

    gpu_model: str
    cupti_version: int
    cuda_driver_version: int


@dataclass(frozen=True, slots=True)
class LaunchCost:
    """The cost of one launch on the launching thread; medians over all batches.

    ``spread_nanoseconds`` is the distance of the quartiles of the traced batches: an added cost below it is noise.
    """

    untraced_nanoseconds: float
    traced_nanoseconds: float
    added_nanoseconds: float
    spread_nanoseconds: float
    launches_count: int
    gpu_model: str
    device_uuid: str
    cupti_version: int
    cuda_driver_version: int


@dataclass(frozen=True, slots=True)
class Measured:
    """A cost with the time of its measurement, in seconds since the epoch."""

    cost: LaunchCost
    measured_at: float

    @property
    def setup(self) -> Setup:
        """Give what it belongs to."""
        return Setup(self.cost.gpu_model, self.cost.cupti_version, self.cost.cuda_driver_version)


def read(path: Path) -> dict[Setup, Measured]:
    """Read all costs; no file, no costs.

    Raises:
        BadInputError: the file is there and cannot be read or is damaged.
    """
    try:
        document: Any = json.loads(path.read_bytes())
        if document["version"] != VERSION:
            raise BadInputError(str(path), None, f"version {document['version']!r} is not {VERSION}; calibrate anew")
        found = [_entry(entry) for entry in document["launch_costs"]]
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, LookupError, RecursionError) as cause:
        raise BadInputError(str(path), None, f"cannot be read as launch costs ({cause}); calibrate anew") from cause
    return {measured.setup: measured for measured in found}


def _entry(entry: dict[str, Any]) -> Measured:
    values: dict[str, Any] = {}
    for field in dataclasses.fields(LaunchCost):
        value = entry[field.name]
        kind = {"float": float, "int": int, "str": str}[str(field.type)]
        values[field.name] = float(value) if kind is float and isinstance(value, int) else value
        if type(values[field.name]) is not kind or (kind is float and not math.isfinite(values[field.name])):
            raise ValueError(f"{field.name}: {value!r}")
    return Measured(LaunchCost(**values), float(entry["measured_at"]))


def store(path: Path, measured: Measured) -> None:
    """Put a cost into the file, in place of an older one of the same GPU model, CUPTI and driver.

    Raises:
        BadInputError: the file is damaged; it is left as it is.
        TrueloadError: it cannot be written.
    """
    known = {**read(path), measured.setup: measured}
    entries = [{**dataclasses.asdict(one.cost), "measured_at": one.measured_at} for _, one in sorted(known.items())]
    content = json.dumps({"version": VERSION, "launch_costs": entries}, indent=1) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, content.encode())
    except OSError as cause:
        raise TrueloadError(
            f"{path}: cannot be written ({cause.strerror}); run as the agent's user, or name another file by the "
            "setting tracer.launch_costs_file"
        ) from cause


def cost_of(costs: Mapping[Setup, Measured], setup: Setup) -> Estimate | None:
    """Give the cost per launch in seconds, or ``None``: it was not measured on such a setup, and no other will do."""
    measured = costs.get(setup)
    return launch_cost(measured.cost.added_nanoseconds, measured.cost.spread_nanoseconds) if measured else None
