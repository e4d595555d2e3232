"""Names in answers: logins of one person become one, and pseudonyms stand for people where an answer is passed on.

Both are done to the table of jobs, before anything is judged: what is computed never held the real names, so no
sentence, label or command of a document can tell them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import ibis

from analysis.frames import fetch
from warehouse.contract.identity import (
    IDENTITY_FILE,
    PSEUDONYM_CHARACTERS,
    PSEUDONYM_KEY_FILE,
    USE_GETENT,
    Directory,
    login_of,
    read_directory,
    read_key,
)

if TYPE_CHECKING:
    from warehouse.client import Parameters
    from warehouse.contract.settings import Settings

PSEUDONYMS = "pseudonyms"
"""The parameter that asks for an answer that may be passed on."""

_NUMBER = "^[0-9]{1,10}$"
_HOME = r"/(home|users?|u|people)/[^/\s]+"
"""Paths that lead into somebody's home."""


@dataclass(frozen=True, slots=True)
class Naming:
    """How names are shown: ``key`` is the secret of pseudonyms, None: real names."""

    directory: Directory = field(default_factory=Directory)
    use_getent: bool = False
    key: str | None = None

    @property
    def fingerprint(self) -> str:
        """Give a text that is equal where the same names are shown."""
        told = (sorted(self.directory.users.items()), list(self.directory.accounts.items()))
        return repr((told, self.use_getent, self.key)) if self.changes_names or any(told) else ""

    @property
    def changes_names(self) -> bool:
        """Say whether the table of jobs has to be shown otherwise than it is."""
        return bool(self.directory.aliases()) or self.use_getent or self.key is not None

    def jobs(self, job: Any) -> Any:
        """Give the table of jobs as it may be seen."""
        aliases = dict(self.directory.aliases())
        if self.use_getent:
            found = fetch(job.filter(job.user.re_search(_NUMBER)).select("user").distinct()).values("user")
            aliases |= {number: login for number in found if (login := login_of(number)) is not None}
        if aliases:
            job = job.mutate(user=job.user.substitute(aliases))
        return job if self.key is None else _hidden(job, self.key)

    def groups(self, kind: str, users: Sequence[str | None], accounts: Sequence[str | None]) -> list[str | None]:
        """Give the team, project or cost centre of each user with an account, as these stand in the table of jobs."""
        directory = self.directory if self.key is None else self.directory.pseudonymous(self.key)
        known: dict[tuple[str | None, str | None], str | None] = {}
        found = []
        for pair in zip(users, accounts, strict=True):
            if pair not in known:
                known[pair] = directory.group(kind, *pair)
            found.append(known[pair])
        return found


def naming(settings: Settings, parameters: Parameters) -> Naming:
    """Read how names are to be shown.

    Raises:
        SettingsError: a file of the settings cannot be used.

    """
    key = read_key(settings[PSEUDONYM_KEY_FILE]) if parameters.get(PSEUDONYMS) == "yes" else None
    return Naming(read_directory(settings[IDENTITY_FILE]), settings[USE_GETENT], key)


def without(parameters: Parameters) -> Mapping[str, str]:
    """Give the other parameters."""
    return {name: value for name, value in parameters.items() if name != PSEUDONYMS}


def _hidden(job: Any, key: str) -> Any:
    """Put pseudonyms in the place of names, also where a job's own names stand in its texts; comments are left out."""
    columns = {name: _pseudonym(job[name], key, kind) for name, kind in _PEOPLE.items()}
    for name in ("name", "command", "image"):
        text = job[name]
        for person, shown in columns.items():
            is_there = job[person].notnull() & (job[person].length() > 1)
            text = ibis.cases((is_there, text.replace(job[person], shown)), else_=text)
        columns[name] = text.re_replace(_HOME, "/home/-")
    columns["work_dir"] = _pseudonym(job.work_dir, key, "dir")
    columns["comment"] = ibis.null("string")
    return job.mutate(**columns)


_PEOPLE = {"user": "user", "account": "account", "namespace": "account"}


def _pseudonym(column: Any, key: str, kind: str) -> Any:
    digest = (ibis.literal(f"{key}:{kind}:") + column).hexdigest("sha256")
    return ibis.literal(f"{kind}-") + digest.left(PSEUDONYM_CHARACTERS)
