"""Does the driver open, and in time?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from collector import settings as names
from collector.doctor.check import Check, Finding, Site, Stage
from collector.doctor.settings import DRIVER_LIMIT_SECONDS
from collector.driver import Driver, DriverGoneError
from warehouse.contract.errors import BadUseError

LOAD: Final = "load the kernel module (modprobe nvidia) and look into dmesg: nouveau, Secure Boot, a failed build"
FIXES: Final = {
    4: "give the container the device files /dev/nvidia* (runtime class nvidia), or run as root",
    9: LOAD,
    12: "install the driver's libnvidia-ml.so.1 (Debian: libnvidia-ml1); in a container NVIDIA_VISIBLE_DEVICES=all and "
    "NVIDIA_DRIVER_CAPABILITIES=utility; a driver root elsewhere: agent.nvml_library",
    17: "install the same release of driver and libraries",
    18: "the driver was upgraded while loaded: reboot, or unload and load the module; restart containers",
}
"""What to do by NVML's return code (nvml.h, ``nvmlReturn_t``)."""

HANGS: Final = "look into dmesg for Xid errors (79: fell off the bus); try nvidia-smi; reboot the node"


def _run(site: Site) -> Iterator[Finding]:
    limit_seconds = site.settings[DRIVER_LIMIT_SECONDS]
    end = time.monotonic() + 0.9 * limit_seconds
    driver = Driver(
        site.settings[names.NVML_LIBRARY],
        patience_seconds=min(limit_seconds, site.settings[names.CALL_PATIENCE_SECONDS]),
    )
    try:
        driver.open(lambda: time.monotonic() < end)
    except BadUseError as error:
        fix = "install a library of this machine's kind there, or empty agent.nvml_library to have it found"
        if "nvidia-ml-py" in str(error):
            fix = "pip install 'trueload[agent]'"
        yield Finding("cannot be loaded", ok=False, reason=str(error), fix=fix, needed=True)
    except DriverGoneError as error:
        code = getattr(error.__cause__, "value", None)
        fix = HANGS if code is None else FIXES.get(code, LOAD)
        yield Finding("does not answer", ok=False, reason=str(error), fix=fix, needed=True)
    else:
        site.driver = driver
        yield Finding(f"NVIDIA {driver.driver_version}", needed=True)


CHECK = Check("driver", "whether the NVIDIA driver opens", Stage.DRIVER, _run, DRIVER_LIMIT_SECONDS)
