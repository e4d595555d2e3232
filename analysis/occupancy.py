"""How many blocks of a kernel one SM holds at a time: CUDA's occupancy rules, with the limits of each SM.

Limits: CUDA Programming Guide of December 2025 (compute capabilities), CCCL ``arch_traits.h``; allocation units:
``cuda_occupancy.h`` of the CUDA runtime 13.5. Capability 3.7 is left out: no document that states it could be read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WARP_THREADS: Final = 32
_REGISTER_UNIT: Final = 256
"""Registers are given to a warp in multiples of this many, from capability 3.0 on."""


@dataclass(frozen=True, slots=True)
class SmLimits:
    """What one SM can hold, and in which pieces it is given out. Registers are of 32 bits."""

    warps: int
    blocks: int
    shared_memory_bytes: int
    shared_memory_unit_bytes: int
    reserved_per_block_bytes: int = 0
    registers: int = 65536
    registers_per_block: int = 65536
    partitions: int = 4


@dataclass(frozen=True, slots=True)
class Launch:
    """How a kernel is launched. None: not told, and then it limits nothing.

    ``shared_memory_bytes`` is static and dynamic shared memory of one block together.
    """

    threads_per_block: int
    registers_per_thread: int | None = None
    shared_memory_bytes: int | None = None


_KIB: Final = 1024
_VOLTA = SmLimits(64, 32, 96 * _KIB, 256)
_AMPERE = SmLimits(64, 32, 164 * _KIB, 128, 1024)
_AMPERE_SMALL = SmLimits(48, 16, 100 * _KIB, 128, 1024)
_ADA = SmLimits(48, 24, 100 * _KIB, 128, 1024)
_HOPPER = SmLimits(64, 32, 228 * _KIB, 128, 1024)

SM_LIMITS: Final[dict[str, SmLimits]] = {
    "6.0": SmLimits(64, 32, 64 * _KIB, 256, partitions=2),
    "6.1": _VOLTA,
    "7.0": _VOLTA,
    "7.5": SmLimits(32, 16, 64 * _KIB, 256),
    "8.0": _AMPERE,
    "8.6": _AMPERE_SMALL,
    "8.7": SmLimits(48, 16, 164 * _KIB, 128, 1024),
    "8.9": _ADA,
    "9.0": _HOPPER,
    "10.0": _HOPPER,
    "10.3": _HOPPER,
    "11.0": SmLimits(48, 24, 228 * _KIB, 128, 1024),
    "12.0": _ADA,
    "12.1": _ADA,
}
"""By compute capability."""


def resident_blocks(limits: SmLimits, launch: Launch) -> int:
    """Give the blocks of a launch that one SM holds at a time; 0: such a launch cannot run there.

    The least of what the block limit, warps, registers and shared memory allow, the carve-out of shared memory being as
    large as it gets. A limit whose need is not told is left out, so that the answer is then at most too high.
    """
    warps = -(-launch.threads_per_block // WARP_THREADS)
    allowed = [limits.blocks, limits.warps // warps]
    if launch.registers_per_thread:
        allowed.append(_by_registers(limits, launch.registers_per_thread, warps))
    if launch.shared_memory_bytes is not None:
        needed = _up(launch.shared_memory_bytes + limits.reserved_per_block_bytes, limits.shared_memory_unit_bytes)
        if needed:
            allowed.append(limits.shared_memory_bytes // needed)
    return min(allowed)


def _by_registers(limits: SmLimits, registers_per_thread: int, warps: int) -> int:
    """Registers are given to whole warps out of one of the SM's partitions, warps in multiples of the partitions."""
    per_warp = _up(registers_per_thread * WARP_THREADS, _REGISTER_UNIT)
    warps_given = _up(warps, limits.partitions)
    if per_warp * warps_given > limits.registers_per_block:
        return 0
    per_partition = limits.registers // limits.partitions // per_warp
    return per_partition * limits.partitions // warps_given


def _up(amount: int, unit: int) -> int:
    return -(-amount // unit) * unit
