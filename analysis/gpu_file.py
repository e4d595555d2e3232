"""Reads the GPU catalogue: ``gpus.toml`` beside this module, and over it the file of a site (setting ``gpus.file``).

In both files a fact is ``[value, source, confidence]``; a site may write the bare value. ``[gpu.ID]`` adds a GPU, or
replaces single facts of a known one. Where a site gives prices or MIG profiles of a GPU, they replace the known ones.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from analysis.gpu_catalogue import FACTS, WORDS, Catalogue, Confidence, Gpu, MigProfile, Origin, Price
from warehouse.contract.errors import SettingsError

OWN_FILE = "gpus.toml"
_SECTIONS = {"sources", "gpu", "mig", "prices"}
_MIG_WORDS = ("gpus", "source", "confidence", "profiles")
_MIG_FACTS: Mapping[str, type] = {"sm_count": int, "memory_bytes": int}
_MIG_RATIOS = ("memory_ratio", "sm_ratio")
_PRICE_TEXTS = ("currency", "source", "date", "date_basis", "kind", "provider", "sku", "region", "scope", "note")
_KINDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false", tuple: "a list of texts"}
_SHARE = re.compile(r"(\d{1,3})(?:/([1-9]\d{0,2}))?", re.ASCII)
_HIGHEST = 2**63 - 1  # the largest whole number of TOML
_FACT_PARTS = 3  # value, source, confidence


@dataclass(frozen=True, slots=True)
class _Document:
    """One file. ``gpus`` holds the words and facts that it gives of a GPU, which need not be all."""

    sources: Mapping[str, str] = field(default_factory=dict)
    gpus: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    origins: Mapping[str, Mapping[str, Origin]] = field(default_factory=dict)
    mig_profiles: tuple[MigProfile, ...] = ()
    prices: tuple[Price, ...] = ()


@dataclass(frozen=True, slots=True)
class _Place:
    """Where something stands: for errors, and for the origin of what a site writes bare."""

    file: str
    where: str
    is_site: bool

    def at(self, key: str) -> _Place:
        return _Place(self.file, f"{self.where}, {key}" if self.where else key, self.is_site)

    def error(self, detail: str) -> SettingsError:
        where = f", {self.where}" if self.where else ""
        hint = " (setting gpus.file)" if self.is_site else ""
        return SettingsError(f"{self.file}{hint}{where}: {detail}")


def read_catalogue(site_file: str = "") -> Catalogue:
    """Read the catalogue that comes with the program and, where one is named, the site's file over it.

    Raises:
        SettingsError: the site's file cannot be read, or says something that is not understood.

    """
    own = _own()
    site = _Document()
    place = _Place(site_file, "", is_site=True)
    if site_file:
        try:
            text = Path(site_file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as cause:
            raise place.error(f"cannot be read ({cause}); name another file, or none") from cause
        site = _parsed(text, place)
    return _merged(own, site, place)


@cache
def _own() -> _Document:
    text = files("analysis").joinpath(OWN_FILE).read_text(encoding="utf-8")
    return _parsed(text, _Place(OWN_FILE, "", is_site=False))


# --------------------------------------------------------------------------------------------------- one over the other


def _merged(own: _Document, site: _Document, place: _Place) -> Catalogue:
    gpus = tuple(_gpu(gpu_id, own, site, place) for gpu_id in dict.fromkeys([*own.gpus, *site.gpus]))
    known = [gpu.id for gpu in gpus]
    for kind, named in (
        ("mig", [gpu for one in site.mig_profiles for gpu in one.gpus]),
        ("prices", [one.gpu for one in site.prices]),
    ):
        for gpu in named:
            if gpu not in known:
                raise place.at(kind).error(f"unknown GPU {gpu!r}; {_nearest(gpu, known)}, or add [gpu.{gpu}]")
    sliced = {gpu for one in site.mig_profiles for gpu in one.gpus}
    priced = {one.gpu for one in site.prices}
    return Catalogue(
        sources={**own.sources, **site.sources},
        gpus=gpus,
        mig_profiles=(*_unsliced(own.mig_profiles, sliced), *site.mig_profiles),
        prices=(*(one for one in own.prices if one.gpu not in priced), *site.prices),
    )


def _unsliced(profiles: Iterable[MigProfile], sliced: set[str]) -> list[MigProfile]:
    """Take the GPUs that a site has given its own profiles out of the known ones."""
    left = ((one, tuple(gpu for gpu in one.gpus if gpu not in sliced)) for one in profiles)
    return [replace(one, gpus=gpus) for one, gpus in left if gpus]


def _gpu(gpu_id: str, own: _Document, site: _Document, place: _Place) -> Gpu:
    values = {**own.gpus.get(gpu_id, {}), **site.gpus.get(gpu_id, {})}
    missing = [word for word in WORDS if word not in values]
    if missing:
        near = _nearest(gpu_id, own.gpus)
        raise place.at(f"gpu.{gpu_id}").error(f"a new GPU needs {', '.join(missing)}; of the known ones {near}")
    return Gpu(id=gpu_id, origins={**own.origins.get(gpu_id, {}), **site.origins.get(gpu_id, {})}, **values)


# ------------------------------------------------------------------------------------------------------------ one file


def _parsed(text: str, place: _Place) -> _Document:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as cause:
        raise place.error(f"is no TOML ({cause}); docs/gpus.md shows a file that is") from cause
    _known_only(document, _SECTIONS, place)
    gpus, origins = {}, {}
    for gpu_id, row in _table(document.get("gpu", {}), place.at("gpu")).items():
        gpus[gpu_id], origins[gpu_id] = _gpu_row(row, place.at(f"gpu.{gpu_id}"))
    return _Document(
        sources=_texts(document.get("sources", {}), place.at("sources")),
        gpus=gpus,
        origins=origins,
        mig_profiles=tuple(_mig_profiles(document.get("mig", []), place)),
        prices=tuple(_prices(document.get("prices", []), place)),
    )


def _gpu_row(row: object, place: _Place) -> tuple[dict[str, Any], dict[str, Origin]]:
    table = _table(row, place)
    _known_only(table, {*WORDS, "note", *FACTS}, place)
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    for key, raw in table.items():
        if key in FACTS:
            values[key], origins[key] = _fact(raw, FACTS[key], place.at(key))
        else:
            values[key] = _checked(raw, str, place.at(key))
    return values, origins


def _mig_profiles(groups: object, place: _Place) -> Iterable[MigProfile]:
    for number, group in enumerate(_list(groups, place.at("mig")), 1):
        at = place.at(f"[[mig]] {number}")
        table = _table(group, at)
        _known_only(table, _MIG_WORDS, at)
        gpus = _checked(_needed(table, "gpus", at), tuple, at.at("gpus"))
        whole = _origin([table[key] for key in ("source", "confidence") if key in table], at)
        for row in _list(_needed(table, "profiles", at), at.at("profiles")):
            yield _mig_profile(gpus, whole, row, at)


def _mig_profile(gpus: tuple[str, ...], whole: Origin, row: object, place: _Place) -> MigProfile:
    table = _table(row, place)
    _known_only(table, {"profile", "max_instances", "note", *_MIG_RATIOS, *_MIG_FACTS}, place)
    profile = _checked(_needed(table, "profile", place), str, place.at("profile"))
    at = place.at(profile)
    values: dict[str, Any] = {}
    origins = {"profile": whole}
    for key in _MIG_RATIOS:
        if key in table:
            values[key] = _ratio(table[key], at.at(key))
    for key, kind in _MIG_FACTS.items():
        if key in table:
            values[key], origins[key] = _fact(table[key], kind, at.at(key))
    if "note" in table:
        values["note"] = _checked(table["note"], str, at.at("note"))
    most = _checked(_needed(table, "max_instances", at), int, at.at("max_instances"))
    return MigProfile(gpus=gpus, profile=profile, max_instances=most, origins=origins, **values)


def _prices(groups: object, place: _Place) -> Iterable[Price]:
    """Read prices: what a group says holds for each of its rows that says nothing else."""
    for number, group in enumerate(_list(groups, place.at("prices")), 1):
        at = place.at(f"[[prices]] {number}")
        table = _table(group, at)
        _known_only(table, {*_PRICE_TEXTS, "rows"}, at)
        for row in _list(_needed(table, "rows", at), at.at("rows")):
            yield _price({**{key: table[key] for key in _PRICE_TEXTS if key in table}, **_table(row, at)}, at)


def _price(row: Mapping[str, object], place: _Place) -> Price:
    _known_only(row, {"gpu", "per_gpu_hour", *_PRICE_TEXTS}, place)
    gpu = _checked(_needed(row, "gpu", place), str, place.at("gpu"))
    at = place.at(gpu)
    texts = {key: _checked(row[key], str, at.at(key)) for key in _PRICE_TEXTS if key in row}
    if place.is_site:
        texts.setdefault("source", place.file)
    for key in ("currency", "source"):
        _needed(texts, key, at)
    amount = _checked(_needed(row, "per_gpu_hour", at), float, at.at("per_gpu_hour"))
    return Price(gpu=gpu, per_gpu_hour=amount, **texts)


# ----------------------------------------------------------------------------------------------------------- one value


def _fact(raw: object, kind: type, place: _Place) -> tuple[Any, Origin]:
    is_whole = isinstance(raw, list) and len(raw) == _FACT_PARTS and raw[2] in tuple(Confidence)
    if isinstance(raw, list) and is_whole:
        return _checked(raw[0], kind, place), _origin(raw[1:], place)
    if place.is_site:
        return _checked(raw, kind, place), _origin([], place)
    raise place.error(f"{raw!r} must be [value, source, confidence], confidence one of {', '.join(Confidence)}")


def _origin(parts: list[Any], place: _Place) -> Origin:
    """Make an origin of source and confidence; what a site leaves out is its own word."""
    if not parts and place.is_site:
        return Origin(place.file, Confidence.SITE)
    if len(parts) != len(("source", "confidence")) or parts[1] not in tuple(Confidence):
        raise place.error(f"needs source and confidence, confidence one of {', '.join(Confidence)}")
    return Origin(_checked(parts[0], str, place), Confidence(parts[1]))


def _checked(raw: object, kind: type, place: _Place) -> Any:
    """Give a value of its kind; numbers are finite and not negative, lists and texts are not empty."""
    if kind is tuple and isinstance(raw, list) and raw:
        return tuple(_checked(item, str, place) for item in raw)
    if kind is float and isinstance(raw, (int, float)) and not isinstance(raw, bool) and 0 <= raw <= _HIGHEST:
        return float(raw)
    if kind is int and isinstance(raw, int) and not isinstance(raw, bool) and 0 <= raw <= _HIGHEST:
        return raw
    if (kind is bool and isinstance(raw, bool)) or (kind is str and isinstance(raw, str) and raw.strip()):
        return raw
    raise place.error(f"{raw!r} must be {_KINDS[kind]}{', 0 or more' if kind in {int, float} else ''}")


def _ratio(raw: object, place: _Place) -> float:
    parts = _SHARE.fullmatch(raw) if isinstance(raw, str) else None
    value = int(parts[1]) / int(parts[2] or 1) if parts else 0.0
    if not 0 < value <= 1:
        raise place.error(f'{raw!r} must be a share of the card such as "1/7"')
    return value


def _needed(table: Mapping[str, Any], key: str, place: _Place) -> Any:
    if key not in table:
        raise place.error(f"{key} is missing; docs/gpus.md shows an example")
    return table[key]


def _table(raw: object, place: _Place) -> Mapping[str, Any]:
    if not isinstance(raw, dict):
        raise place.error(f"{raw!r} must be a table; docs/gpus.md shows one")
    return raw


def _list(raw: object, place: _Place) -> list[Any]:
    if not isinstance(raw, list):
        raise place.error(f"{raw!r} must be a list of tables; docs/gpus.md shows one")
    return raw


def _texts(raw: object, place: _Place) -> dict[str, str]:
    return {key: _checked(value, str, place.at(key)) for key, value in _table(raw, place).items()}


def _known_only(table: Mapping[str, object], known: Iterable[str], place: _Place) -> None:
    for key in table:
        if key not in known:
            raise place.error(f"unknown key {key!r}; {_nearest(key, sorted(known))}")


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.0)
    return f"the nearest is {near[0]}" if near else "there are none"
