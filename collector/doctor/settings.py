"""Settings of the doctor: how long it waits, and from when on it warns."""

from __future__ import annotations

from warehouse.contract.settings import AnySetting, Setting

LIMIT_SECONDS = Setting(
    "doctor",
    "limit_seconds",
    10.0,
    "seconds",
    "For one check: disks, sockets and servers that live answer in a second or two.",
    0.1,
    600.0,
)
DRIVER_LIMIT_SECONDS = Setting(
    "doctor",
    "driver_limit_seconds",
    35.0,
    "seconds",
    "For opening the driver: the agent waits 30 s, for without the persistence daemon each card is brought up first.",
    0.1,
    600.0,
)
CERTIFICATE_DAYS = Setting(
    "doctor",
    "certificate_days",
    14.0,
    "days",
    "Before the server's certificate ends: time enough to have a new one made.",
    0.0,
    365.0,
)

SETTINGS: tuple[AnySetting, ...] = (LIMIT_SECONDS, DRIVER_LIMIT_SECONDS, CERTIFICATE_DAYS)
