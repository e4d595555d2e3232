"""Does the server answer, speak TLS as it should, and know the token?"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

import urllib3

from collector import settings as names
from collector.doctor.check import Check, Finding, Site, Stage
from collector.poster import Endpoint, open_pool
from collector.running import endpoint
from warehouse.contract.errors import BadUseError

UNREACHABLE: Final = "server"
"""The note for later checks that nobody answers there: they need not wait for it again."""

OK: Final = 200
REFUSED: Final = (401, 403)
ROLES: Final = ("agent", "operator")
REACH: Final = "check agent.server_url, name service, routes and firewalls between here and there; is the server up?"
TRUST: Final = (
    "set agent.tls_ca_file to the authority that signed the server's certificate, and the URL to a name in it"
)


def _run(site: Site) -> Iterator[Finding]:
    where = endpoint(site.settings)
    site.notes[UNREACHABLE] = "the server cannot be reached"
    needed = bool(site.settings[names.TOKEN_FILE] or site.settings[names.JOIN_TOKEN_FILE])
    try:
        pool = open_pool(where, 1)
    except BadUseError as error:
        yield Finding("TLS cannot be set up", ok=False, reason=str(error), fix="mend the files", needed=needed)
        return
    with pool:
        url = where.url.rstrip("/")
        try:
            answer = pool.request("GET", f"{url}/healthz")
        except (urllib3.exceptions.HTTPError, OSError) as error:
            text = _innermost(error)
            fix = TRUST if "certificate" in text.lower() or "ssl" in type(error).__name__.lower() else REACH
            why = f"{url}: {text}"
            yield Finding("it cannot be reached", ok=False, reason=why, fix=fix, needed=needed)
            return
        if answer.status != OK:
            why = f"{url}/healthz answers {answer.status}"
            yield Finding("something else answers", ok=False, reason=why, fix=REACH, needed=needed)
            return
        del site.notes[UNREACHABLE]
        yield Finding(f"{url} answers", needed=needed)
        if urlsplit(url).scheme == "http" and not _is_loopback(urlsplit(url).hostname or ""):
            why = "tokens and data travel in the clear"
            yield Finding("no TLS", ok=False, reason=why, fix="have the server, or a proxy before it, speak https")
        if needed:
            yield _known(pool, url, where)


def _known(pool: urllib3.PoolManager, url: str, where: Endpoint) -> Finding:
    """Ask the server whose the token is; one that is yet to be had by enrolling cannot be asked about."""
    try:
        token = "" if where.token_file is None else where.token_file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        if where.join_token_file is not None:
            return Finding(f"not enrolled yet; the agent enrols as {where.node} at its start", ok=None)
        return Finding("no token to ask with", ok=None, reason=str(error))
    try:
        answer = pool.request("GET", f"{url}/v1/me", headers={"Authorization": f"Bearer {token}"})
        told = json.loads(answer.data)
    except (urllib3.exceptions.HTTPError, OSError, ValueError, UnicodeError) as error:
        return Finding("it does not say whose the token is", ok=None, reason=_innermost(error))
    return _judged(answer.status, told, where)


def _judged(status: int, told: object, where: Endpoint) -> Finding:
    if status in REFUSED:
        fix = "give the agent a token that the server knows (trueload token new --role agent), or have it enrol"
        return Finding("it does not know the token", ok=False, reason=f"/v1/me answers {status}", fix=fix, needed=True)
    role, node = (told.get("role"), told.get("node")) if isinstance(told, dict) else (None, None)
    if role not in ROLES:
        fix = "an agent needs a token of the role agent"
        return Finding(f"the token is of the role {role}", ok=False, reason="it may not deliver", fix=fix, needed=True)
    if node is not None and node != where.node:
        why = f"the token is of node {node}; this is {where.node}"
        fix = "remove the token's file, so that the node enrols by its own name"
        return Finding("another node's token", ok=False, reason=why, fix=fix, needed=True)
    return Finding("it knows the token", needed=True)


def _innermost(error: BaseException) -> str:
    """Give the reason behind a connection's failure, without the layers around it."""
    while (inner := getattr(error, "reason", None) or error.__cause__) is not None and isinstance(inner, BaseException):
        error = inner
    return str(error).rpartition(": ")[2] if isinstance(error, urllib3.exceptions.HTTPError) else str(error)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


CHECK = Check("server", "whether the server answers and knows the token", Stage.SERVER, _run)
