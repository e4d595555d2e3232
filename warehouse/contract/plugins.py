"""Finding plug-ins: one package scan, one constant per module.

A unit (source, job source, importer, remedy, page) is one module with one constant that holds a frozen dataclass of
its kind. Adding a unit is adding that file; a module without the constant, or with a wrong one, is an error at start.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from typing import Protocol, TypeVar

from warehouse.contract.errors import PluginError

_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")


class Plugin(Protocol):
    """What every kind of plug-in has: a short name, used on the command line, and a one-sentence description."""

    @property
    def name(self) -> str:
        """Give the unit's name: lower case, digits and underscores."""
        ...

    @property
    def description(self) -> str:
        """Say in one plain sentence what the unit does."""
        ...


Kind = TypeVar("Kind", bound=Plugin)


def scan(package: str, constant: str, kind: type[Kind]) -> dict[str, Kind]:
    """Import every module of ``package`` and give its units by name, sorted.

    Modules whose name begins with an underscore are helpers and are passed over.

    Raises:
        PluginError: a module lacks ``constant``, holds another type, or two units share a name.

    """
    found: dict[str, Kind] = {}
    home = importlib.import_module(package)
    for entry in sorted(pkgutil.iter_modules(home.__path__), key=lambda module: module.name):
        if entry.name.startswith("_"):
            continue
        module = importlib.import_module(f"{package}.{entry.name}")
        unit = getattr(module, constant, None)
        if not isinstance(unit, kind):
            message = f"{package}.{entry.name} must hold a constant {constant} of type {kind.__name__}"
            raise PluginError(message)
        if not _NAME.match(unit.name) or unit.name in found:
            message = f"{package}.{entry.name}: name {unit.name!r} is taken or not lower_case"
            raise PluginError(message)
        found[unit.name] = unit
    return dict(sorted(found.items()))
