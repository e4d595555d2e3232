"""The one table of what NVML's return codes mean for the agent."""

from __future__ import annotations

from enum import Enum
from typing import Final


class Fault(Enum):
    """What a failed call means, and so what is done about it."""

    UNSUPPORTED = "not supported"  # this device never answers this call: not asked again
    FORBIDDEN = "no permission"  # the same next time: not asked again, and said once to a person
    DEVICE_LOST = "device lost"  # the device is gone until it is reset; the others are not concerned
    DRIVER_GONE = "driver gone"  # nothing answers any more until the driver is opened anew
    NO_DATA = "no data"  # an answer without content, nothing to count
    TRANSIENT = "failed"  # counted, asked again next time


FAULT_OF_CODE: Final = {
    0: Fault.NO_DATA,  # the binding raises "success" where it got an empty answer
    1: Fault.DRIVER_GONE,  # uninitialised: somebody shut the library down
    3: Fault.UNSUPPORTED,
    4: Fault.FORBIDDEN,
    6: Fault.NO_DATA,  # not found
    9: Fault.DRIVER_GONE,  # driver not loaded
    10: Fault.NO_DATA,  # timeout: no event within the wait
    13: Fault.UNSUPPORTED,  # the library is older than the call
    15: Fault.DEVICE_LOST,
    16: Fault.DEVICE_LOST,  # needs a reset
    18: Fault.DRIVER_GONE,  # library and kernel module differ: the driver was upgraded under us
    21: Fault.NO_DATA,
    25: Fault.UNSUPPORTED,  # a structure of another version: the library will not learn it
}
"""NVML's return codes that are more than transient (nvml.h, ``nvmlReturn_t``)."""


def fault_of(code: int) -> Fault:
    """Give what a return code means; one that is not in the table is transient."""
    return FAULT_OF_CODE.get(code, Fault.TRANSIENT)
