"""Settings: one ``trueload.toml``, overridden by ``TRUELOAD_SECTION__KEY`` in the environment.

A setting is declared once, with unit, default and reason; rooms declare theirs in ``<room>/settings.py`` and plug-ins
beside their code. An unknown key is an error that names the nearest known one.
"""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from warehouse.contract.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Value = TypeVar("Value", bool, int, float, str, tuple[str, ...])
PREFIX = "TRUELOAD_"
RESERVED = {
    "TRUELOAD_CONFIG",
    "TRUELOAD_DATA",
    "TRUELOAD_DATA_ROOT",
    "TRUELOAD_PAGES_SERVER",
    "TRUELOAD_PAGES_TOKEN",
    "TRUELOAD_REQUIRE_ALL",
    "TRUELOAD_STANDIN_STATE",
    "TRUELOAD_TOKEN_FILE",
}
RESERVED_PREFIXES = ("TRUELOAD_TRACER_", "TRUELOAD_CUPTI_")
"""Environment names that are no settings: where files and servers are, what tests and the simulation use, and what the
tracer inside a traced job reads."""


@dataclass(frozen=True, slots=True)
class Setting(Generic[Value]):
    """One named value: ``section.key``, its default, its unit, and why the default is what it is.

    The type of the default is the type of the setting. ``lowest``/``highest`` bound numbers, inclusive.
    """

    section: str
    key: str
    default: Value
    unit: str
    reason: str
    lowest: float | None = None
    highest: float | None = None

    @property
    def name(self) -> str:
        """Give the full name, ``section.key``."""
        return f"{self.section}.{self.key}"

    @property
    def variable(self) -> str:
        """Give the environment variable that overrides it."""
        return f"{PREFIX}{self.section.upper()}__{self.key.upper()}"


AnySetting = Setting[bool] | Setting[int] | Setting[float] | Setting[str] | Setting[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Settings:
    """All values that differ from their defaults, with where each came from."""

    values: Mapping[str, object] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, setting: Setting[Value]) -> Value:
        """Give the value of a setting."""
        value = self.values.get(setting.name, setting.default)
        if not isinstance(value, type(setting.default)):
            raise SettingsError(f"{setting.name}: {value!r} is not a {type(setting.default).__name__}")
        return value

    def origin(self, setting: AnySetting) -> str:
        """Say where the value came from: ``default``, a file, or an environment variable."""
        return self.origins.get(setting.name, "default")


def load(registry: Iterable[AnySetting], path: Path | None, environment: Mapping[str, str]) -> Settings:
    """Read the file (if any) and the environment into settings.

    Raises:
        SettingsError: the file cannot be read, a key is unknown, or a value has the wrong type or range.

    """
    known = {setting.name: setting for setting in registry}
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    for name, raw, origin in [*_from_file(path), *_from_environment(environment)]:
        if name not in known:
            raise SettingsError(f"{origin}: unknown setting {name}; {_nearest(name, known)}")
        values[name] = _convert(known[name], raw, origin)
        origins[name] = origin
    return Settings(values, origins)


def _nearest(name: str, known: Mapping[str, AnySetting]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
    return f"the nearest is {near[0]}" if near else "there are none"


def _from_file(path: Path | None) -> list[tuple[str, object, str]]:
    if path is None:
        return []
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as cause:
        raise SettingsError(f"{path}: cannot be read as settings ({cause})") from cause
    found: list[tuple[str, object, str]] = []
    for section, keys in tables.items():
        if not isinstance(keys, dict):
            raise SettingsError(f"{path}: {section} stands outside a [section]")
        found += [(f"{section}.{key}", value, str(path)) for key, value in keys.items()]
    return found


def _from_environment(environment: Mapping[str, str]) -> list[tuple[str, object, str]]:
    found: list[tuple[str, object, str]] = []
    for variable, value in sorted(environment.items()):
        if not variable.startswith(PREFIX) or variable in RESERVED:
            continue
        if variable.startswith(RESERVED_PREFIXES) and not variable.startswith(
            tuple(f"{one}_" for one in RESERVED_PREFIXES)
        ):
            continue
        section, separator, key = variable.removeprefix(PREFIX).lower().partition("__")
        found.append((f"{section}.{key}" if separator else section, value, variable))
    return found


_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def _convert(setting: AnySetting, raw: object, origin: str) -> object:
    kind = type(setting.default)
    try:
        value = _as(kind, raw)
    except (TypeError, ValueError, KeyError):
        message = f"{origin}: {setting.name} = {raw!r}, but it must be a {kind.__name__} in {setting.unit}"
        raise SettingsError(message) from None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        low, high = setting.lowest, setting.highest
        if value != value or (low is not None and value < low) or (high is not None and value > high):  # noqa: PLR0124
            raise SettingsError(f"{origin}: {setting.name} = {raw!r} is outside {low} to {high} {setting.unit}")
    return value


def _as(kind: type, raw: object) -> object:
    if kind is bool:
        return raw if isinstance(raw, bool) else _BOOLEANS[str(raw).strip().lower()]
    if kind is tuple:
        items = raw if isinstance(raw, list) else str(raw).split(",")
        return tuple(str(item).strip() for item in items if str(item).strip())
    if kind is str:
        if not isinstance(raw, str):
            raise TypeError
        return raw
    if isinstance(raw, bool) or not isinstance(raw, (int, float, str)):
        raise TypeError
    return kind(raw)
