"""Who may do what on a server: tokens in files, roles, and how a running server is found."""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from warehouse.contract.errors import StoreError
from warehouse.viewer import Viewer

SERVER_FILE = "server.json"
TOKEN_BYTES = 32


JOIN_FILE = "join.token"


class Role(StrEnum):
    """What a token allows.

    An agent only delivers batches; a user reads the own jobs, a lead those of some accounts too; an operator reads
    everything, imports and keeps house; a scraper of metrics reads these alone.
    """

    AGENT = "agent"
    USER = "user"
    LEAD = "lead"
    OPERATOR = "operator"
    METRICS = "metrics"


FILE_ROLES = (Role.AGENT, Role.OPERATOR)
"""Roles that have a token in a file of the data directory: for one machine, and for its operator."""

READERS = frozenset({Role.USER, Role.LEAD, Role.OPERATOR})


@dataclass(frozen=True, slots=True)
class Identity:
    """Who asks. ``node`` binds an agent; ``credential_id`` is None for the tokens in the data directory's files."""

    role: Role
    name: str
    node: str | None = None
    accounts: tuple[str, ...] = ()
    credential_id: str | None = None

    @property
    def viewer(self) -> Viewer:
        """Give what this person may see."""
        return Viewer(self.name, self.accounts, everything=self.role is Role.OPERATOR)


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a data directory, by role."""

    by_role: dict[Role, str]

    def role_of(self, token: str) -> Role | None:
        """Give the role that a token carries, comparing in constant time."""
        for role, known in self.by_role.items():
            if is_same(known, token):
                return role
        return None


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server that owns a data directory listens, and the operator's token for it."""

    url: str
    process_id: int
    token: str
    fingerprint: str | None = None
    """SHA-256 of the certificate of a server that speaks TLS."""


def join_file(data: Path) -> Path:
    """Give the path of the secret that agents enrol with."""
    return data / "tokens" / JOIN_FILE


def ensure_join_secret(data: Path) -> str:
    """Read the join secret, making it where it is missing."""
    return _ensure_token(join_file(data))


def rotate_join_secret(data: Path) -> Path:
    """Replace the join secret; who enrolled before stays enrolled. Takes effect at once. Gives its file."""
    path = join_file(data)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f"{JOIN_FILE}.{os.getpid()}")
    _write_private(fresh, secrets.token_urlsafe(TOKEN_BYTES), os.O_TRUNC)
    fresh.replace(path)
    return path


def write_token(path: Path, token: str) -> None:
    """Write a token into a new file of mode 600.

    Raises:
        StoreError: the file exists, or cannot be written.

    """
    try:
        _write_private(path, token, os.O_EXCL)
    except OSError as cause:
        message = f"{path}: the token cannot be written there ({cause.strerror}); name another --file"
        raise StoreError(message) from cause


def is_same(one: str, other: str) -> bool:
    """Compare two secrets in constant time."""
    return hmac.compare_digest(one.encode(), other.encode())


def token_file(data: Path, role: Role) -> Path:
    """Give the path of a role's token."""
    return data / "tokens" / f"{role}.token"


def ensure_tokens(data: Path) -> Tokens:
    """Read the tokens of a data directory, making those that are missing (files of mode 600)."""
    return Tokens({role: _ensure_token(token_file(data, role)) for role in FILE_ROLES})


def publish(data: Path, address: Address) -> None:
    """Leave the server's address and the operator's token in the data directory (mode 600), atomically."""
    content = {
        "url": address.url,
        "process_id": address.process_id,
        "token": address.token,
        "fingerprint": address.fingerprint,
    }
    fresh = data / f"{SERVER_FILE}.{address.process_id}"
    _write_private(fresh, json.dumps(content), os.O_TRUNC)
    fresh.replace(data / SERVER_FILE)


def withdraw(data: Path) -> None:
    """Take the address away again, if it is this process's."""
    address = published(data)
    if address is not None and address.process_id == os.getpid():
        (data / SERVER_FILE).unlink(missing_ok=True)


def published(data: Path) -> Address | None:
    """Give the address that a live server left, or None; one whose process is gone counts as none."""
    try:
        content = json.loads((data / SERVER_FILE).read_text(encoding="utf-8"))
        address = Address(
            str(content["url"]), int(content["process_id"]), str(content["token"]), content.get("fingerprint")
        )
    except FileNotFoundError:
        return None
    except PermissionError as cause:
        raise StoreError(f"{data / SERVER_FILE}: belongs to somebody else; ask the person who runs it") from cause
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return address if _is_alive(address.process_id) else None


def _is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _ensure_token(path: Path) -> str:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        _write_private(path, secrets.token_urlsafe(TOKEN_BYTES), os.O_EXCL)
    token = path.read_text(encoding="utf-8").strip()
    if not token:
        raise StoreError(f"{path}: holds no token; remove the file and start again")
    return token


def _write_private(path: Path, text: str, flags: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
