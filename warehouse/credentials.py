"""Credentials in the store: tokens of people, agents and scrapers, kept as hashes; issued, rotated, revoked.

A token is 256 random bits, so that its plain SHA-256 can be neither guessed nor reversed. Who holds the object has all
credentials in memory: looking one up costs no query, and what this process revokes is refused from then on.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from warehouse.access import TOKEN_BYTES, Identity, Role
from warehouse.contract.errors import BadUseError, NotFoundError
from warehouse.contract.units import iso

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warehouse.store import Store

WRITE_USE_SECONDS = 600.0
"""When a token was last used is written this often at most: it is for people who clear up, not for accounting."""

LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class Credential:
    """What is known of one token. Instants are seconds since the epoch; ``revoked_at`` is None while it is valid."""

    credential_id: str
    role: Role
    name: str
    node: str | None
    accounts: tuple[str, ...]
    created_at: float
    revoked_at: float | None = None
    last_used_at: float | None = None

    @property
    def identity(self) -> Identity:
        """Give who comes with the token."""
        return Identity(self.role, self.name, self.node, self.accounts, self.credential_id)

    def document(self) -> dict[str, object]:
        """Give it for people, without anything that opens a door."""
        return {
            "credential_id": self.credential_id,
            "role": self.role,
            "name": self.name,
            "node": self.node,
            "accounts": list(self.accounts),
            "created_at": iso(self.created_at),
            "revoked_at": iso(self.revoked_at),
            "last_used_at": iso(self.last_used_at),
        }


class Credentials:
    """All credentials of a store, for the one process that owns it. Safe to use from several threads."""

    def __init__(self, store: Store) -> None:
        """Read what is known."""
        self._store = store
        self._lock = threading.Lock()
        self._by_hash: dict[str, Credential] = {}
        self._used: dict[str, float] = {}
        self._next_write = time.monotonic() + WRITE_USE_SECONDS
        self.reload()

    def reload(self) -> None:
        """Read them again from the store."""
        rows = self._store.read(
            "SELECT token_hash, credential_id, role, name, node, accounts, epoch(created_at) AS created_at, "
            "epoch(revoked_at) AS revoked_at, epoch(last_used_at) AS last_used_at FROM credential"
        ).to_pylist()
        found = {
            row.pop("token_hash"): Credential(
                **{**row, "role": Role(row["role"]), "accounts": tuple(row["accounts"] or ())}
            )
            for row in rows
        }
        with self._lock:
            self._by_hash = found

    def identify(self, token: str) -> Identity | None:
        """Give who comes with a token; None: nobody, or it was revoked."""
        known = self._by_hash.get(_hash(token))
        if known is None or known.revoked_at is not None:
            return None
        with self._lock:
            self._used[known.credential_id] = time.time()
            due = time.monotonic() >= self._next_write
        if due:
            self.write_use()
        return known.identity

    def write_use(self) -> None:
        """Write down when tokens were last used."""
        with self._lock:
            used, self._used = self._used, {}
            self._next_write = time.monotonic() + WRITE_USE_SECONDS
        if not used:
            return
        with self._store.transaction() as transaction:
            transaction.execute(
                "UPDATE credential SET last_used_at = make_timestamp((used.at * 1e6)::BIGINT) FROM "
                "(SELECT unnest(?::VARCHAR[]) AS id, unnest(?::DOUBLE[]) AS at) AS used WHERE credential_id = used.id",
                [list(used), list(used.values())],
            )

    def everything(self) -> list[Credential]:
        """Give all of them, the oldest first."""
        self.write_use()
        self.reload()
        return sorted(self._by_hash.values(), key=lambda known: (known.created_at, known.credential_id))

    def issue(
        self, role: Role, name: str, *, node: str | None = None, accounts: Sequence[str] = ()
    ) -> tuple[Credential, str]:
        """Make a credential; gives it with its token, which cannot be had again.

        Raises:
            BadUseError: no name, or accounts for a role that has none.

        """
        _check_name("name", name)
        if node is not None:
            _check_name("node", node)
        if bool(accounts) != (role is Role.LEAD):
            raise BadUseError("accounts: a lead is named with the accounts that he or she leads, and nobody else is")
        if node is not None and role is not Role.AGENT:
            raise BadUseError(f"node: binds an agent's token; a {role} has none")
        token = secrets.token_urlsafe(TOKEN_BYTES)
        made = Credential(secrets.token_hex(8), role, name, node, tuple(accounts), time.time())
        with self._store.transaction() as transaction:
            transaction.execute(
                "INSERT INTO credential VALUES (?, ?, ?, ?, ?, ?::VARCHAR[], make_timestamp(?), NULL, NULL)",
                [
                    made.credential_id,
                    _hash(token),
                    role.value,
                    name,
                    node,
                    list(made.accounts),
                    int(made.created_at * 1e6),
                ],
            )
        with self._lock:
            self._by_hash[_hash(token)] = made
        return made, token

    def enrol(self, node: str) -> tuple[Credential, str]:
        """Make the credential of a node's agent; the one that the node had before is revoked, for it has one agent."""
        before = [
            known.credential_id
            for known in self._by_hash.values()
            if known.role is Role.AGENT and known.node == node and known.revoked_at is None
        ]
        made = self.issue(Role.AGENT, node, node=node)
        for credential_id in before:
            self.revoke(credential_id)
        return made

    def revoke(self, credential_id: str) -> Credential:
        """Refuse a token from now on.

        Raises:
            NotFoundError: there is no such credential.

        """
        known = self._find(credential_id)
        if known.revoked_at is not None:
            return known
        revoked = replace(known, revoked_at=time.time())
        with self._lock:
            self._by_hash = {
                key: revoked if other.credential_id == credential_id else other for key, other in self._by_hash.items()
            }
        with self._store.transaction() as transaction:
            transaction.execute(
                "UPDATE credential SET revoked_at = now()::TIMESTAMP WHERE credential_id = ?", [credential_id]
            )
        return revoked

    def rotate(self, credential_id: str) -> tuple[Credential, str]:
        """Make a successor with the same rights, then revoke the old one."""
        known = self._find(credential_id)
        if known.revoked_at is not None:
            raise BadUseError(f"{credential_id}: was revoked; make a new token instead")
        made = self.issue(known.role, known.name, node=known.node, accounts=known.accounts)
        self.revoke(credential_id)
        return made

    def _find(self, credential_id: str) -> Credential:
        for known in self._by_hash.values():
            if known.credential_id == credential_id:
                return known
        raise NotFoundError(f"no credential {credential_id!r}; `trueload token list` names them")


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _check_name(what: str, name: str) -> None:
    if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise BadUseError(f"{what}: expected a printable text of 1 to {LONGEST_NAME} characters")
