"""What an operator may do with credentials: the same near (own store) and far (through the server that owns it)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warehouse.access import Role
from warehouse.contract.errors import BadUseError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from warehouse.client import Document
    from warehouse.credentials import Credential, Credentials


def act(credentials: Credentials, action: str, asked: Mapping[str, object]) -> Document:
    """Do one of ``ACTIONS``; an answer with ``token`` holds a new one, which cannot be had again.

    Raises:
        BadUseError: no such action, or something asked for that cannot be used.
        NotFoundError: there is no such credential.

    """
    if action not in ACTIONS:
        raise BadUseError(f"no action {action!r}; there are {', '.join(ACTIONS)}")
    return ACTIONS[action](credentials, asked)


def _list(credentials: Credentials, _asked: Mapping[str, object]) -> Document:
    return {"credentials": [known.document() for known in credentials.everything()]}


def _new(credentials: Credentials, asked: Mapping[str, object]) -> Document:
    role, name, node, accounts = (asked.get(key) for key in ("role", "name", "node", "accounts"))
    if role not in list(Role):
        raise BadUseError(f"role: there are {', '.join(Role)}")
    if not isinstance(name, str) or not (node is None or isinstance(node, str)):
        raise BadUseError("name, node: expected texts")
    named = accounts if isinstance(accounts, list) else []
    if any(not isinstance(account, str) or not account for account in named):
        raise BadUseError("accounts: expected a list of names")
    return _with_token(*credentials.issue(Role(str(role)), name, node=node, accounts=named))


def _rotate(credentials: Credentials, asked: Mapping[str, object]) -> Document:
    return _with_token(*credentials.rotate(str(asked.get("credential_id"))))


def _revoke(credentials: Credentials, asked: Mapping[str, object]) -> Document:
    return credentials.revoke(str(asked.get("credential_id"))).document()


def _with_token(made: Credential, token: str) -> Document:
    return {**made.document(), "token": token}


ACTIONS: Mapping[str, Callable[[Credentials, Mapping[str, object]], Document]] = {
    "list": _list,
    "new": _new,
    "rotate": _rotate,
    "revoke": _revoke,
}
