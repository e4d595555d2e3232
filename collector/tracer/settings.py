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

SCAN_SECONDS = Setting(
    "tracer",
    "scan_seconds",
    30.0,
    "seconds",
    "How often processes that the driver does not name are looked through, too: an MPS client, or one seen too late.",
    1.0,
    3600.0,
)
PROCESSES_MAX = Setting(
    "tracer", "processes_max", 512, "processes", "Traced processes read on one node: 64 on each of 8 cards.", 1
)
PROCESSES_PER_USER_MAX = Setting(
    "tracer",
    "processes_per_user_max",
    128,
    "processes",
    "What one user may have the agent read: nobody crowds out the others.",
    1,
)
ROUND_SECONDS = Setting(
    "tracer",
    "round_seconds",
    0.2,
    "seconds",
    "After this long a round of reading stops and the next one goes on: half of what the agent waits for a source.",
    0.01,
    10.0,
)
SILENT_SECONDS = Setting(
    "tracer",
    "silent_seconds",
    10.0,
    "seconds",
    "So long may a process that the driver calls busy tell of nothing before its tracer is held to be deaf.",
    1.0,
    600.0,
)
SETTLE_SECONDS = Setting(
    "tracer",
    "settle_seconds",
    75.0,
    "seconds",
    "The longest wait for a second to become final: the tracer's hold of 60 s, its lateness and some flushes.",
    1.0,
    600.0,
)
PROFILE_SECONDS = Setting(
    "tracer",
    "profile_seconds",
    300.0,
    "seconds",
    "How often the tables of kernels are read: 170 KB each, 2 ms of work.",
    1.0,
    3600.0,
)

SETTINGS: tuple[AnySetting, ...] = (
    *(LAUNCH_COSTS_FILE, DUTY_ON_SECONDS, DUTY_OFF_SECONDS),
    *(SCAN_SECONDS, PROCESSES_MAX, PROCESSES_PER_USER_MAX, ROUND_SECONDS),
    *(SILENT_SECONDS, SETTLE_SECONDS, PROFILE_SECONDS),
)
