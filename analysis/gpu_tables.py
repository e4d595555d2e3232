"""The GPU catalogue as text for people; the list fits 80 columns. GiB, TFLOP/s and money appear here alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from analysis.tables import ABSENT, plain
from warehouse.contract.units import BYTES_PER_GIB, BYTES_PER_MIB

if TYPE_CHECKING:
    from warehouse.client import Document

_TERA, _GIGA, _MEGA = 1e12, 1e9, 1e6


_LABELS: Mapping[str, tuple[str, float, str]] = {
    "nvml_names": ("names that drivers print", 1, ""),
    "architecture": ("architecture", 1, ""),
    "chip": ("chip", 1, ""),
    "compute_capability": ("compute capability", 1, ""),
    "sm_count": ("SMs", 1, ""),
    "fp32_cores_per_sm": ("FP32 cores per SM", 1, ""),
    "boost_clock_hertz": ("boost clock", _MEGA, " MHz"),
    "memory_bytes": ("memory", BYTES_PER_GIB, " GiB"),
    "memory_bytes_per_second": ("memory bandwidth", _GIGA, " GB/s"),
    "l2_bytes": ("L2 cache", BYTES_PER_MIB, " MiB"),
    "fp64_flops_per_second": ("FP64", _TERA, " TFLOP/s"),
    "fp32_flops_per_second": ("FP32", _TERA, " TFLOP/s"),
    "tf32_tensor_flops_per_second": ("TF32, tensor", _TERA, " TFLOP/s"),
    "fp16_flops_per_second": ("FP16, without tensor", _TERA, " TFLOP/s"),
    "fp16_tensor_flops_per_second": ("FP16, tensor", _TERA, " TFLOP/s"),
    "bf16_tensor_flops_per_second": ("BF16, tensor", _TERA, " TFLOP/s"),
    "fp8_tensor_flops_per_second": ("FP8, tensor", _TERA, " TFLOP/s"),
    "int8_ops_per_second": ("INT8", _TERA, " TOP/s"),
    "board_power_watts": ("board power", 1, " W"),
    "nvlink_bytes_per_second": ("NVLink, both directions", _GIGA, " GB/s"),
    "mig_max_instances": ("MIG instances at most", 1, ""),
    "gpm_supported": ("GPM counters", 1, ""),
}
"""What each fact is called, what it is divided by, and the unit that then follows."""
_LEGEND = f"""
FP32, and FP16 on tensor cores: dense peaks in TFLOP/s. MIG: instances at most.
Per hour of one GPU: lowest and highest of the dated prices that are known, no
offers; in USD where no currency stands. {ABSENT}: not supported, or not stated.
`trueload gpus NAME` shows a GPU with the source of each figure."""
_OPTIONS_LEGEND = f"""
Ratios over the present GPU: low, likely, high. Cost is time x price at one provider; {ABSENT}: not known.
*: the site has it, or could slice a card of its own. --json says where each figure comes from."""
_WHOLE_FROM = 100
"""Figures from here on are shown without decimals: peaks of data sheets have three digits."""
_CAPITALS = re.compile(r"[A-Z][A-Z0-9]+")
_TO = "\N{EN DASH}"


def gpus_table(document: Document) -> RenderableType:
    """Show the catalogue, one line for each GPU."""
    heads = ("GPU", "", "GiB", "GB/s", "FP32", "FP16 t", "W", "MIG", "per hour")
    table = Table(*heads, box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for column in table.columns[2:]:
        column.justify = "right"
    for column in table.columns:
        column.no_wrap = True
    for gpu in _gpus(document):
        facts = gpu["facts"]
        table.add_row(
            plain(gpu["id"], 22),
            plain(_shown(facts, "architecture"), 9),
            _number(facts, "memory_bytes"),
            _number(facts, "memory_bytes_per_second"),
            _number(facts, "fp32_flops_per_second"),
            _number(facts, "fp16_tensor_flops_per_second"),
            _number(facts, "board_power_watts"),
            _number(facts, "mig_max_instances"),
            plain(_range(gpu["prices"]), 16),
        )
    return Group(table, Text(_LEGEND))


def gpus_text(document: Document) -> RenderableType:
    """Show each GPU of the document with all that is known, and what the words in capitals of sources mean."""
    shown = _gpus(document)
    return Group(*(part for gpu in shown for part in _gpu_parts(gpu)), _sources(document, shown))


def gpu_options_text(document: Document) -> RenderableType:
    """Show every GPU for a piece of work, as ratios over the one it has: low, likely and high of time and of cost."""
    shown: Mapping[str, Any] = document
    memory = shown["memory_bytes"]
    needs = "memory not known" if memory is None else f"{memory / BYTES_PER_GIB:.1f} GiB in use at most"
    head = f"{shown['label']} on {shown['gpu']['name']}: {shown['busy_ratio']:.0%} of its working time busy, {needs}"
    table = Table("GPU", "time x", "cost x", "energy x", "fits", "by", box=None, pad_edge=False)
    for column in table.columns[1:4]:
        column.justify = "right"
    for one in shown["options"]:
        name = f"{one['name']} *" if one["at_site"] else one["name"]
        fits = {True: "yes", False: "no", None: ABSENT}[one["fits"]]
        energy = ABSENT if one["energy_ratio"] is None else f"{one['energy_ratio']['likely']:.2f}"
        row = (_ratios(one["time_ratio"]), _ratios(one["cost_ratio"]), energy, fits, one["estimator"])
        table.add_row(plain(name, 24), *row)
    left = [f"{one['name']}: {one['reason']}" for one in shown["not_estimable"]]
    parts: list[RenderableType] = [plain(head, None), Text(""), table, Text(_OPTIONS_LEGEND)]
    return Group(*parts, *(plain(line, None) for line in left))


def _ratios(one: Mapping[str, float] | None) -> str:
    return ABSENT if one is None else f"{one['low']:.2f} {one['likely']:.2f} {one['high']:.2f}"


def _gpu_parts(gpu: Mapping[str, Any]) -> list[RenderableType]:
    parts: list[RenderableType] = [
        plain(f"{gpu['name']} ({gpu['id']}): {gpu['model']} of {gpu['vendor']}, {gpu['form_factor']}", None)
    ]
    if gpu["note"]:
        parts.append(plain(gpu["note"], None))
    facts = Table("fact", "value", "source", "confidence", box=None, pad_edge=False)
    for key, (label, _, _) in _LABELS.items():
        fact = gpu["facts"][key]
        if fact is None:
            facts.add_row(label, ABSENT, "not supported, or not stated", "")
        else:
            facts.add_row(label, plain(_shown(gpu["facts"], key)), plain(fact["source"], None), fact["confidence"])
    parts += [Text(""), facts]
    if gpu["mig_profiles"]:
        parts += [Text(""), _mig_table(gpu["mig_profiles"])]
    if gpu["prices"]:
        parts += [Text(""), _price_table(gpu["prices"])]
    return [*parts, Text("")]


def _sources(document: Document, shown: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Explain those words in capitals that the sources shown use."""
    words = {word for gpu in shown for source in _all_sources(gpu) for word in _CAPITALS.findall(source)}
    table = Table("source", "what it is", box=None, pad_edge=False)
    explained = document["sources"]
    for word, meaning in explained.items() if isinstance(explained, dict) else ():
        if word in words:
            table.add_row(plain(word), plain(meaning, None))
    return table


def _all_sources(gpu: Mapping[str, Any]) -> Iterable[str]:
    facts = [*gpu["facts"].values()]
    for one in gpu["mig_profiles"]:
        facts += [one["sm_count"], one["memory_bytes"], one]
    return (one["source"] for one in [*facts, *gpu["prices"]] if one is not None)


def _mig_table(profiles: Iterable[Mapping[str, Any]]) -> RenderableType:
    table = Table("MIG profile", "most", "GiB", "SMs", "source", "note", box=None, pad_edge=False)
    for column in table.columns[1:4]:
        column.justify = "right"
    for one in profiles:
        table.add_row(
            plain(one["profile"]),
            str(one["max_instances"]),
            _number(one, "memory_bytes"),
            _number(one, "sm_count"),
            plain(one["source"], None),
            plain(one["note"] or "", None),
        )
    return table


def _price_table(prices: Iterable[Mapping[str, Any]]) -> RenderableType:
    table = Table("per GPU-hour", "provider", "kind", "date", "source", box=None, pad_edge=False)
    for one in prices:
        table.add_row(
            plain(f"{one['per_gpu_hour']:.2f} {one['currency']}"),
            plain(one["provider"]),
            plain((one["kind"] or ABSENT).replace("_", " ")),
            plain(one["date"]),
            plain("; ".join(text for text in (one["source"], one["scope"], one["note"]) if text), None),
        )
    return table


def _shown(facts: Mapping[str, Any], key: str) -> str:
    fact = facts[key]
    value = ABSENT if fact is None else fact["value"]
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(value)
    return value if isinstance(value, str) else _number(facts, key) + _LABELS[key][2]


def _number(facts: Mapping[str, Any], key: str) -> str:
    """Give a number in the unit of people: to one decimal below 100, whole above, without digits that are 0."""
    fact = facts[key]
    if fact is None:
        return ABSENT
    value = float(fact["value"]) / _LABELS[key][1]
    return f"{value:.0f}" if value >= _WHOLE_FROM else f"{value:.2f}".rstrip("0").rstrip(".")


def _range(prices: Sequence[Mapping[str, Any]]) -> str:
    """Give the lowest and the highest price; of several currencies, those of the first."""
    if not prices:
        return ABSENT
    currency = prices[0]["currency"]
    amounts = sorted(one["per_gpu_hour"] for one in prices if one["currency"] == currency)
    low, high = f"{amounts[0]:.2f}", f"{amounts[-1]:.2f}"
    said = low if low == high else f"{low}{_TO}{high}"
    return said if currency == "USD" else f"{said} {currency}"


def _gpus(document: Document) -> list[dict[str, Any]]:
    found = document["gpus"]
    return found if isinstance(found, list) else []
