"""Who stands at the door of the server: the one place where a token becomes an identity."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import HTTPException, Request

from warehouse.access import Identity, Role
from warehouse.tls import NODE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from warehouse.access import Tokens
    from warehouse.credentials import Credentials


class Door:
    """Knows the tokens in the data directory's files and those in the store."""

    def __init__(self, tokens: Tokens, credentials: Credentials, *, shared_agent_token: bool) -> None:
        """Take both; ``shared_agent_token`` says whether the agents' token in the file opens anything."""
        self._tokens = tokens
        self._credentials = credentials
        self._shared_agent_token = shared_agent_token

    def identify(self, token: str) -> Identity | None:
        """Give who comes with a token; None: nobody that is known, or any more."""
        role = self._tokens.role_of(token)
        if role is None:
            return self._credentials.identify(token)
        if role is Role.AGENT and not self._shared_agent_token:
            return None
        return Identity(role, role.value)

    def for_roles(self, *roles: Role) -> Callable[[Request], Awaitable[Identity]]:
        """Give what a route depends on: it lets these roles in and tells who came."""

        # Asynchronous, for it looks at what is in memory: a thread for each request would cost more than the check.
        async def check(request: Request) -> Identity:
            identity = self.identify(bearer(request)) or _of_certificate(request)
            if identity is None:
                raise HTTPException(401, "no valid token", {"WWW-Authenticate": "Bearer"})
            if identity.role not in roles:
                raise HTTPException(403, f"a token of role {identity.role} may not do this")
            return identity

        return check


def _of_certificate(request: Request) -> Identity | None:
    """Give the agent of the node that the client's verified certificate names; a token that was sent counts first."""
    node = None if bearer(request) else request.scope.get(NODE)
    return Identity(Role.AGENT, node, node) if isinstance(node, str) else None


def bearer(request: Request) -> str:
    """Give the token that a request carries; empty where there is none."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
