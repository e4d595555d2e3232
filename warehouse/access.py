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

SERVER_FILE = "server.json"
TOKEN_BYTES = 32


class Role(StrEnum):
    """What a token allows: an agent only delivers batches; an operator reads everything and imports."""

    AGENT = "agent"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a data directory, by role."""

    by_role: dict[Role, str]

    def role_of(self, token: str) -> Role | None:
        """Give the role that a token carries, comparing in constant time."""
        for role, known in self.by_role.items():
            if hmac.compare_digest(known.encode(), token.encode()):
                return role
        return None


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server that owns a data directory listens, and the operator's token for it."""

    url: str
    process_id: int
    token: str


def token_file(data: Path, role: Role) -> Path:
    """Give the path of a role's token."""
    return data / "tokens" / f"{role}.token"


def ensure_tokens(data: Path) -> Tokens:
    """Read the tokens of a data directory, making those that are missing (files of mode 600)."""
    return Tokens({role: _ensure_token(token_file(data, role)) for role in Role})


def publish(data: Path, address: Address) -> None:
    """Leave the server's address and the operator's token in the data directory (mode 600), atomically."""
    content = {"url": address.url, "process_id": address.process_id, "token": address.token}
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
        address = Address(str(content["url"]), int(content["process_id"]), str(content["token"]))
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
