"""Somebody who asks, and how much of the store that person may see. Light: everybody may import it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from urllib.parse import quote, unquote

from warehouse.contract.errors import BadUseError

BEHALF = "Trueload-On-Behalf-Of"
"""The header by which an operator's program (the pages, the report) asks as a person would: it only ever narrows."""

LONGEST_BEHALF = 64_000
"""Characters of that header: some thousand accounts."""


@dataclass(frozen=True, slots=True)
class Viewer:
    """Somebody who asks. ``everything`` is an operator's sight; else own jobs and those of ``accounts``."""

    name: str
    accounts: tuple[str, ...] = ()
    everything: bool = False

    @property
    def fingerprint(self) -> str:
        """Give a text that is equal for viewers who see the same."""
        sees = repr((self.everything, self.name, sorted(set(self.accounts))))
        return hashlib.sha256(sees.encode()).hexdigest()


def as_header(viewer: Viewer) -> str:
    """Give the value of the header that asks on somebody's behalf."""
    return quote(json.dumps({"name": viewer.name, "accounts": list(viewer.accounts)}), safe="")


def from_header(value: str) -> Viewer:
    """Read that header's value; it never names somebody who sees everything.

    Raises:
        BadUseError: it is none.

    """
    try:
        content = json.loads(unquote(value, errors="strict")) if len(value) <= LONGEST_BEHALF else None
    except (ValueError, RecursionError):  # UnicodeDecodeError is one
        content = None
    name, accounts = (content.get("name"), content.get("accounts")) if isinstance(content, dict) else (None, None)
    if not isinstance(name, str) or not name or not isinstance(accounts, list):
        raise BadUseError(f"{BEHALF}: expected an object with a name and a list of accounts, as percent-encoded JSON")
    if any(not isinstance(text, str) or not text or "\0" in text for text in (name, *accounts)):
        raise BadUseError(f"{BEHALF}: name and accounts are texts that are neither empty nor hold a NUL")
    return Viewer(name, tuple(accounts))


OPERATOR = Viewer("operator", everything=True)
"""Who opens the file sees all of it."""
