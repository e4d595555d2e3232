"""Somebody who asks, and how much of the store that person may see. Light: everybody may import it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


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


OPERATOR = Viewer("operator", everything=True)
"""Who opens the file sees all of it."""
