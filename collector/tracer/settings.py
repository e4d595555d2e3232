"""Settings of the tracer on the agent's side. What the library in a job goes by stands in the environment there."""

from __future__ import annotations

from warehouse.contract.settings import AnySetting, Setting

LAUNCH_COSTS_FILE = Setting(
    "tracer",
    "launch_costs_file",
    "/var/lib/trueload/launch_costs.json",
    "path",
    "What `trueload agent calibrate` measured; without the GPU's entry nothing is corrected. Beside the agent's state.",
)
DUTY_ON_SECONDS = Setting(
    "tracer",
    "duty_on_seconds",
    10.0,
    "seconds",
    "How long each cycle records, where it pauses at all: ten flushes, of which the edges are one.",
    1.0,
    3600.0,
)
DUTY_OFF_SECONDS = Setting(
    "tracer",
    "duty_off_seconds",
    0.0,
    "seconds",
    "Never pauses at 0. With 10 on, 50 bounds the disturbance to a sixth; figures become estimates with a range.",
    0.0,
    3600.0,
)

SETTINGS: tuple[AnySetting, ...] = (LAUNCH_COSTS_FILE, DUTY_ON_SECONDS, DUTY_OFF_SECONDS)
