"""Signing in to the pages: by OIDC, through a proxy that did it, or not at all for one person on this machine.

Nobody is let in by default: whoever cannot be told apart from somebody else sees the reason and nothing more. What a
person asked for before signing in is remembered, for Streamlit's sign-in comes back to the first page.
"""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

import streamlit as st

from dashboards.person import ALONE, Person, person_of
from dashboards.sign_in_settings import (
    GROUPS_CLAIM,
    GROUPS_HEADER,
    MODE,
    NAME_CLAIM,
    PROXY_SECRET_FILE,
    STRIP_DOMAIN,
    USER_HEADER,
)
from dashboards.text import markdown, plain
from warehouse.contract.errors import RefusedError, SettingsError
from warehouse.contract.identity import IDENTITY_FILE, read_directory
from warehouse.contract.settings import Settings

AUDIT = logging.getLogger("trueload.audit")
MODES = ("none", "oidc", "proxy")
SECRET_HEADER = "X-Trueload-Proxy-Secret"  # noqa: S105 - its name
SHORTEST_SECRET = 16
REMEMBER_SECONDS = 600.0
"""How long a sign-in may take before the page asked for is forgotten."""
MOST_REMEMBERED = 10_000
LONGEST_TARGET = 2000
_XSRF_COOKIE = "_streamlit_xsrf"


def person(settings: Settings, known_accounts: Callable[[], Sequence[str]]) -> Person:
    """Give who looks; does not come back while nobody has signed in.

    Raises:
        SettingsError: the settings cannot be used.
        RefusedError: who came cannot be told.

    """
    mode = settings[MODE]
    if mode not in MODES:
        raise SettingsError(f"{MODE.name}: {mode!r} is none of {', '.join(MODES)}")
    if mode == "none":
        return ALONE
    login, groups = _from_proxy(settings) if mode == "proxy" else _from_oidc(settings)
    found = person_of(login, groups, read_directory(settings[IDENTITY_FILE]), settings, known_accounts)
    if st.session_state.get("signed_in") != found:
        AUDIT.info("signed in: %s as %s by %s", plain(login), found.role, mode)
        st.session_state["signed_in"] = found
    return found


def _from_proxy(settings: Settings) -> tuple[str, list[str]]:
    path = settings[PROXY_SECRET_FILE]
    try:
        secret = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as cause:
        raise SettingsError(f"{PROXY_SECRET_FILE.name}: {path or 'none'} cannot be read ({cause})") from cause
    if len(secret) < SHORTEST_SECRET:
        raise SettingsError(f"{path}: expected {SHORTEST_SECRET} or more characters, at random")
    headers = st.context.headers
    given = headers.get(SECRET_HEADER) or ""
    if not hmac.compare_digest(given.encode("utf-8", "replace"), secret.encode()):
        AUDIT.warning("refused: a request that did not come through the proxy")
        raise RefusedError("These pages are reached through the site's proxy, which signs you in.")
    name = headers.get(settings[USER_HEADER]) or ""
    groups = [word.strip() for word in (headers.get(settings[GROUPS_HEADER]) or "").split(",")]
    return _login(name, settings), [word for word in groups if word]


def _from_oidc(settings: Settings) -> tuple[str, list[str]]:
    if not st.user.get("is_logged_in", False):
        _TARGETS.remember(_browser(), _asked_for())
        st.title("trueload")
        st.write("Sign in to see how much of their GPUs your jobs truly use.")
        if st.button("Sign in", type="primary"):
            st.login()
        st.stop()
    claims: Mapping[str, object] = st.user.to_dict()
    name = claims.get(settings[NAME_CLAIM])
    if settings[NAME_CLAIM] == "email" and claims.get("email_verified") is not True:
        raise RefusedError("The provider does not say that your address is verified.")
    groups = claims.get(settings[GROUPS_CLAIM])
    texts = [str(one) for one in groups] if isinstance(groups, list) else []
    return _login(name if isinstance(name, str) else "", settings), texts


def _login(name: str, settings: Settings) -> str:
    domain = settings[STRIP_DOMAIN]
    login = name
    if domain:
        login, _, of = name.rpartition("@")
        if of.lower() != domain.lower():
            login = ""
    if not login or not login.isprintable():
        AUDIT.warning("refused: %s names no login", plain(name) if name else "a sign-in")
        raise RefusedError(
            f"You are signed in, but as nobody this site knows: {plain(name) if name else 'no name was given'}."
        )
    return login


def sign_out_button(who: Person) -> None:
    """Show who looks, in the side bar; and where trueload signed the person in, the way out."""
    if not who.name:
        return
    with st.sidebar:
        st.caption(f"{markdown(who.name)}, as {who.role}")
        if st.user.get("is_logged_in", False) and st.button("Sign out"):
            AUDIT.info("signed out: %s", plain(who.name))
            st.logout()


@dataclass(slots=True)
class Targets:
    """Pages that browsers asked for before their person signed in, in this process, for a few minutes."""

    _known: dict[str, tuple[float, str, dict[str, str]]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def remember(self, browser: str | None, target: tuple[str, dict[str, str]] | None) -> None:
        """Keep what a browser asked for; the first page without a query is nothing to keep."""
        if browser is None or target is None:
            return
        now = time.monotonic()
        with self._lock:
            self._known = {key: one for key, one in self._known.items() if now - one[0] < REMEMBER_SECONDS}
            if len(self._known) < MOST_REMEMBERED:
                self._known[browser] = (now, *target)

    def take(self, browser: str | None) -> tuple[str, dict[str, str]] | None:
        """Give what the browser asked for, once."""
        with self._lock:
            found = None if browser is None else self._known.pop(browser, None)
        if found is None or time.monotonic() - found[0] > REMEMBER_SECONDS:
            return None
        return found[1], found[2]


_TARGETS = Targets()


def remembered() -> tuple[str, dict[str, str]] | None:
    """Give the name of the page and the query that this browser asked for before its person signed in, once."""
    return _TARGETS.take(_browser())


def _asked_for() -> tuple[str, dict[str, str]] | None:
    url = st.context.url or ""
    name = url.partition("?")[0].rstrip("/").rpartition("/")[2]
    query = {key: value for key, value in st.query_params.items() if len(value) <= LONGEST_TARGET}
    return (name, query) if query or name else None


def _browser() -> str | None:
    """Give what stays the same of a browser over its sign-in: the token behind Streamlit's cookie against forgery.

    The cookie is ``2|mask|token under the mask|time`` (Tornado's format), masked anew with each answer.
    """
    parts = (st.context.cookies.get(_XSRF_COOKIE) or "").split("|")
    try:
        mask, masked = bytes.fromhex(parts[1]), bytes.fromhex(parts[2])
    except (IndexError, ValueError):
        return None
    if not mask or not masked:
        return None
    return bytes(byte ^ mask[place % len(mask)] for place, byte in enumerate(masked)).hex()
