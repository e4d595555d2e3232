"""Who is who: logins of one person, and which project, team and cost centre a login or account belongs to.

A site writes it down in one TOML file (setting ``identity.file``)::

    [users.alice]
    team = "vision"
    [users.alice2]              # the same person on another cluster
    same_as = "alice"
    [accounts.ml]               # an account of Slurm, or a namespace
    project = "Perception"
    team = "vision"
    cost_centre = "4711"
    [accounts."proj-*"]         # a pattern; the first that fits, after exact names
    cost_centre = "4712"
    [leads.carol]               # who answers for accounts: sees their jobs, and gets their report
    accounts = ["ml", "proj-*"]

A user's ``mail`` is the address of the reports. The team is the person's, else the account's; project and cost centre
are the account's, else the person's.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from warehouse.contract.errors import SettingsError
from warehouse.contract.settings import Setting

IDENTITY_FILE = Setting(
    "identity", "file", "", "path", "Who is who, as docs/identity.md says; empty: every login is a person of its own."
)
USE_GETENT = Setting(
    "identity",
    "use_getent",
    False,  # noqa: FBT003 - a setting's default
    "yes or no",
    "Users that are bare numbers are looked up on the machine that answers, which may not know a cluster's users.",
)
PSEUDONYM_KEY_FILE = Setting(
    "identity",
    "pseudonym_key_file",
    "",
    "path",
    "Holds the secret that pseudonyms are made with: without it anybody could try all logins.",
)
SETTINGS = (IDENTITY_FILE, USE_GETENT, PSEUDONYM_KEY_FILE)

GROUPS = ("team", "project", "cost_centre")
"""What people and accounts may belong to."""

SHORTEST_KEY_CHARACTERS = 16
PSEUDONYM_CHARACTERS = 8
"""Digits of a pseudonym: two of 10,000 people get the same once in a hundred sites."""

_KEYS = {"users": {"same_as", "team", "project", "cost_centre", "mail"}, "accounts": {"team", "project", "cost_centre"}}
_LEADS = "leads"


@dataclass(frozen=True, slots=True)
class Directory:
    """Who is who: groups by login and by account, exact or by pattern, and the logins that are another's.

    ``leads`` are the accounts, exact or by pattern, that a login answers for.
    """

    users: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    accounts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    leads: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def mail(self, user: str) -> str | None:
        """Give the address that a user's mails go to; None where nobody said."""
        return self.users.get(user, {}).get("mail")

    def led_by(self, lead: str, accounts: Iterable[str]) -> tuple[str, ...]:
        """Give those of some accounts that somebody answers for."""
        patterns = self.leads.get(lead, ())
        return tuple(
            account
            for account in accounts
            if any(account == one or (_is_pattern(one) and fnmatchcase(account, one)) for one in patterns)
        )

    def aliases(self) -> dict[str, str]:
        """Give the login that stands for each login that is another's."""
        return {login: entry["same_as"] for login, entry in self.users.items() if "same_as" in entry}

    def group(self, kind: str, user: str | None, account: str | None) -> str | None:
        """Give the team, project or cost centre of a job by its user and account; None where nobody said."""
        of_user, of_account = _entry(self.users, user).get(kind), _entry(self.accounts, account).get(kind)
        return (of_user or of_account) if kind == "team" else (of_account or of_user)

    def pseudonymous(self, key: str) -> Directory:
        """Give the same under pseudonyms; patterns cannot be kept."""
        users = {pseudonym(key, "user", name): entry for name, entry in self.users.items() if not _is_pattern(name)}
        accounts = {
            pseudonym(key, "account", name): entry for name, entry in self.accounts.items() if not _is_pattern(name)
        }
        return Directory(users, accounts)


def pseudonym(key: str, kind: str, name: str) -> str:
    """Give the stable pseudonym of a name, such as ``user-3f9a01bc``; the same in every answer with the same secret."""
    digest = hashlib.sha256(f"{key}:{kind}:{name}".encode("utf-8", "surrogatepass")).hexdigest()
    return f"{kind}-{digest[:PSEUDONYM_CHARACTERS]}"


def read_directory(path: str) -> Directory:
    """Read the file; an empty path is an empty directory.

    Raises:
        SettingsError: it cannot be read, or says something that is not understood.

    """
    if not path:
        return Directory()
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as cause:
        raise SettingsError(f"{path}: cannot be read ({cause}); setting {IDENTITY_FILE.name}") from cause
    for section in document:
        if section not in (*_KEYS, _LEADS):
            raise SettingsError(f"{path}: unknown section [{section}]; there are {', '.join((*_KEYS, _LEADS))}")
    users, accounts = (_section(path, document, section) for section in _KEYS)
    found = Directory(users, accounts, _leads(path, document))
    for login, other in found.aliases().items():
        if "same_as" in found.users.get(other, {}):
            raise SettingsError(f"{path}: users.{login}: same_as {other!r}, which is itself the same as another")
    return found


def read_key(path: str) -> str:
    """Read the secret of pseudonyms.

    Raises:
        SettingsError: there is none, or it is too short to be one.

    """
    if not path:
        raise SettingsError(
            "pseudonyms need a secret: put 64 random digits in a file (openssl rand -hex 32), and name it in setting "
            + PSEUDONYM_KEY_FILE.name
        )
    try:
        key = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as cause:
        raise SettingsError(f"{path}: cannot be read ({cause}); setting {PSEUDONYM_KEY_FILE.name}") from cause
    if len(key) < SHORTEST_KEY_CHARACTERS or not key.isalnum() or not key.isascii():
        raise SettingsError(f"{path}: expected {SHORTEST_KEY_CHARACTERS} or more letters and digits, at random")
    return key


def _section(path: str, document: Mapping[str, Any], section: str) -> dict[str, dict[str, str]]:
    entries = document.get(section, {})
    if not isinstance(entries, dict):
        raise SettingsError(f"{path}: [{section}] must hold tables, such as [{section}.NAME]")
    for name, entry in entries.items():
        where = f"{path}: {section}.{name}"
        if not isinstance(entry, dict) or not all(isinstance(value, str) and value for value in entry.values()):
            raise SettingsError(f"{where}: expected texts under {', '.join(sorted(_KEYS[section]))}")
        if unknown := sorted(set(entry) - _KEYS[section]):
            raise SettingsError(f"{where}: unknown {unknown[0]!r}; there are {', '.join(sorted(_KEYS[section]))}")
    return entries


def _leads(path: str, document: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    entries = document.get(_LEADS, {})
    if not isinstance(entries, dict):
        raise SettingsError(f"{path}: [{_LEADS}] must hold tables, such as [{_LEADS}.NAME]")
    for login, entry in entries.items():
        accounts = entry.get("accounts") if isinstance(entry, dict) and set(entry) == {"accounts"} else None
        if not isinstance(accounts, list) or not all(isinstance(one, str) and one for one in accounts):
            raise SettingsError(f"{path}: {_LEADS}.{login}: expected accounts, a list of names, and nothing else")
        found[login] = tuple(accounts)
    return found


def _entry(entries: Mapping[str, Mapping[str, str]], name: str | None) -> Mapping[str, str]:
    if name is None:
        return {}
    if name in entries:
        return entries[name]
    return next(
        (entry for pattern, entry in entries.items() if _is_pattern(pattern) and fnmatchcase(name, pattern)), {}
    )


def _is_pattern(name: str) -> bool:
    return any(sign in name for sign in "*?[")


def login_of(number: str) -> str | None:
    """Give the login of a user's number on this machine, as ``getent passwd`` would; None where it knows none."""
    import pwd

    try:
        return pwd.getpwuid(int(number)).pw_name
    except (KeyError, ValueError, OverflowError):
        return None
