"""How the pages are started: the same for ``trueload up`` and ``trueload pages``."""

from __future__ import annotations

import ipaddress
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dashboards import sign_in_settings
from dashboards.settings import CACHE_ENTRIES, CACHE_SECONDS
from dashboards.sign_in_settings import MODE, PROXY_SECRET_FILE, SECRETS_FILE
from warehouse.contract.errors import BadUseError
from warehouse.contract.identity import IDENTITY_FILE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warehouse.contract.settings import AnySetting, Settings

APP = Path(__file__).with_name("app.py")
PAGES_SETTINGS: tuple[AnySetting, ...] = (CACHE_SECONDS, CACHE_ENTRIES, IDENTITY_FILE, *sign_in_settings.SETTINGS)
"""What the process of the pages is told, as variables of its environment; secrets are files that these name."""

STREAMLIT_OPTIONS = {
    "server.headless": "true",
    "server.fileWatcherType": "none",
    "browser.gatherUsageStats": "false",
    "client.toolbarMode": "viewer",
    "client.showErrorDetails": "none",
    "theme.primaryColor": "#0072B2",
    "theme.metricValueFontSize": "1.6rem",
    "theme.headingFontSizes": '["2.25rem"]',  # the longest title of a page fits a phone's line
}
"""Report to nobody, show no buttons for developers, and no insides when a page fails."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where the pages ask: the server that owns a directory, or one at an address with the token in a file."""

    data: Path | None = None
    url: str = ""
    token_file: Path | None = None

    def environment(self) -> dict[str, str]:
        """Give it as variables of an environment."""
        named = {"TRUELOAD_DATA": self.data, "TRUELOAD_PAGES_SERVER": self.url, "TRUELOAD_PAGES_TOKEN": self.token_file}
        return {name: str(value) for name, value in named.items() if value}


def check(host: str, settings: Settings) -> None:
    """Refuse to show everything to everybody: without a sign-in the pages are for this machine alone.

    Raises:
        BadUseError: others could reach the pages and nobody would have to sign in, or a file of the sign-in is missing.

    """
    mode = settings[MODE]
    needed = {"oidc": SECRETS_FILE, "proxy": PROXY_SECRET_FILE}.get(mode)
    if needed is not None and not os.access(settings[needed], os.R_OK):
        raise BadUseError(f"{needed.name}: {settings[needed] or 'none'} cannot be read; sign_in.mode {mode} needs it")
    try:
        alone = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        alone = False
    if not alone and mode == "none":
        raise BadUseError(
            f"--host {host}: others could see everything there; set sign_in.mode to oidc or proxy (docs/pages.md)"
        )


def command(host: str, port: int, settings: Settings) -> tuple[str, ...]:
    """Give the command that serves the pages."""
    options = {**STREAMLIT_OPTIONS, "server.address": host, "server.port": str(port)}
    if settings[SECRETS_FILE]:
        options["secrets.files"] = settings[SECRETS_FILE]
    flags = (f"--{name}={value}" for name, value in options.items())
    return (sys.executable, "-m", "streamlit", "run", str(APP), *flags)


def environment(source: Source, settings: Settings) -> Mapping[str, str]:
    """Give the variables that the process of the pages needs beside those of its parent."""
    told = {setting.variable: _text(settings, setting) for setting in PAGES_SETTINGS}
    return {**source.environment(), **told}


def _text(settings: Settings, setting: AnySetting) -> str:
    value = settings.values.get(setting.name, setting.default)
    return ",".join(value) if isinstance(value, tuple) else str(value)
