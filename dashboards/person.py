"""Who looks at the pages, and what that person may see: by login and groups, apart from any web framework."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dashboards.sign_in_settings import OPERATOR_GROUPS, OPERATORS

if TYPE_CHECKING:
    from warehouse.contract.identity import Directory
    from warehouse.contract.settings import Settings

GROUP = "group:"
"""Before the name of a group among the leads of identity.file: its members answer for these accounts."""


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who looks. ``everything`` is an operator's sight; else the own jobs and those of ``accounts``.

    ``name`` is empty for the one person who runs everything on this machine.
    """

    name: str
    accounts: tuple[str, ...] = ()
    everything: bool = False

    @property
    def role(self) -> str:
        """Say in one word what the person may see."""
        return "operator" if self.everything else "lead" if self.accounts else "user"


ALONE = Person("", everything=True)
"""Who runs trueload on the own machine, for nobody else."""


def person_of(
    login: str,
    groups: Iterable[str],
    directory: Directory,
    settings: Settings,
    known_accounts: Callable[[], Sequence[str]],
) -> Person:
    """Settle what somebody who signed in may see.

    ``known_accounts`` gives the accounts of the store, which patterns of leads are held against; it is asked only for
    leads.
    """
    names = set(groups)
    if login in settings[OPERATORS] or names & set(settings[OPERATOR_GROUPS]):
        return Person(login, everything=True)
    own = () if login.startswith(GROUP) else (login,)
    leads = [one for one in (*own, *(GROUP + name for name in sorted(names))) if one in directory.leads]
    if not leads:
        return Person(login)
    accounts = known_accounts()
    led = {account for one in leads for account in directory.led_by(one, accounts)}
    return Person(login, tuple(sorted(led)))
