"""The GPU catalogue: what is known of each GPU model, of its MIG profiles, and what an hour of it has cost.

Facts only, each with where it was read. ``gpu_file`` reads them; ``gpu_names`` matches names to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Confidence(StrEnum):
    """How sure a fact is."""

    VENDOR = "vendor"  # the maker's own document
    SECONDARY = "secondary"  # a table of others, or what a device printed
    DERIVED = "derived"  # arithmetic on other facts
    SITE = "site"  # the site's own file


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a fact was read. Words in capitals are explained in ``Catalogue.sources``."""

    source: str
    confidence: Confidence


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU model, in one variant (form factor, memory size). None: not supported, or nobody states it.

    ``model`` is what variants have in common (A100); ``origins`` says, by field, where its value was read. Peaks are
    dense and accumulate in FP32; link speeds count both directions. ``mig_max_instances`` 0 means that it has no MIG.
    """

    id: str
    name: str
    model: str
    vendor: str
    form_factor: str
    origins: Mapping[str, Origin]
    note: str | None = None
    nvml_names: tuple[str, ...] = ()
    architecture: str | None = None
    chip: str | None = None
    compute_capability: str | None = None
    sm_count: int | None = None
    fp32_cores_per_sm: int | None = None
    boost_clock_hertz: float | None = None
    memory_bytes: int | None = None
    memory_bytes_per_second: float | None = None
    l2_bytes: int | None = None
    fp64_flops_per_second: float | None = None
    fp32_flops_per_second: float | None = None
    tf32_tensor_flops_per_second: float | None = None
    fp16_flops_per_second: float | None = None
    fp16_tensor_flops_per_second: float | None = None
    bf16_tensor_flops_per_second: float | None = None
    fp8_tensor_flops_per_second: float | None = None
    int8_ops_per_second: float | None = None
    board_power_watts: float | None = None
    nvlink_bytes_per_second: float | None = None
    mig_max_instances: int | None = None
    gpm_supported: bool | None = None


WORDS = ("name", "model", "vendor", "form_factor")
"""What names a GPU; a GPU has all of them."""
FACTS: Mapping[str, type] = {
    "nvml_names": tuple,
    "architecture": str,
    "chip": str,
    "compute_capability": str,
    "sm_count": int,
    "fp32_cores_per_sm": int,
    "boost_clock_hertz": float,
    "memory_bytes": int,
    "memory_bytes_per_second": float,
    "l2_bytes": int,
    "fp64_flops_per_second": float,
    "fp32_flops_per_second": float,
    "tf32_tensor_flops_per_second": float,
    "fp16_flops_per_second": float,
    "fp16_tensor_flops_per_second": float,
    "bf16_tensor_flops_per_second": float,
    "fp8_tensor_flops_per_second": float,
    "int8_ops_per_second": float,
    "board_power_watts": float,
    "nvlink_bytes_per_second": float,
    "mig_max_instances": int,
    "gpm_supported": bool,
}
"""What may be known of a GPU, with its type, in the order in which it is shown."""


@dataclass(frozen=True, slots=True)
class MigProfile:
    """One MIG profile of some GPUs: ``max_instances`` of it fit on one card; ratios are of the card's slices.

    ``sm_count`` and ``memory_bytes`` are None where neither a device nor a document states them.
    """

    gpus: tuple[str, ...]
    profile: str
    max_instances: int
    origins: Mapping[str, Origin]
    memory_ratio: float | None = None
    sm_ratio: float | None = None
    sm_count: int | None = None
    memory_bytes: int | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Price:
    """What an hour of one GPU cost once, at one provider: a dated example, no offer.

    ``date_basis`` says how the date is known; ``scope`` whether the machine around the GPU is included.
    """

    gpu: str
    per_gpu_hour: float
    currency: str
    source: str
    date: str | None = None
    date_basis: str | None = None
    kind: str | None = None
    provider: str | None = None
    sku: str | None = None
    region: str | None = None
    scope: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Everything that is known. ``sources`` explains the words in capitals of each ``Origin``."""

    sources: Mapping[str, str]
    gpus: tuple[Gpu, ...]
    mig_profiles: tuple[MigProfile, ...]
    prices: tuple[Price, ...]

    def mig_profiles_of(self, gpu: Gpu) -> tuple[MigProfile, ...]:
        """Give the MIG profiles of a GPU; none is known, or it has no MIG."""
        return tuple(one for one in self.mig_profiles if gpu.id in one.gpus)

    def prices_of(self, gpu: Gpu) -> tuple[Price, ...]:
        """Give the known prices of a GPU; the site's own, where it has set any."""
        return tuple(one for one in self.prices if one.gpu == gpu.id)
