"""How long is the server's certificate still good?"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from collector import settings as names
from collector.doctor.check import Check, Finding, Site, Stage, not_told
from collector.doctor.checks.server import UNREACHABLE
from collector.doctor.settings import CERTIFICATE_DAYS

DAY_SECONDS: Final = 86400.0
HTTPS_PORT: Final = 443


def _run(site: Site) -> Iterator[Finding]:
    url = urlsplit(site.settings[names.SERVER_URL])
    if url.scheme != "https":
        yield Finding("none: the server is spoken to without TLS")
        return
    if UNREACHABLE in site.notes:
        yield not_told(site.notes[UNREACHABLE])
        return
    host, timeout_seconds = url.hostname or "", site.settings[names.POST_TIMEOUT_SECONDS]
    try:
        trusted = ssl.create_default_context(cafile=site.settings[names.TLS_CA_FILE] or None)
        with (
            socket.create_connection((host, url.port or HTTPS_PORT), timeout_seconds) as connection,
            trusted.wrap_socket(connection, server_hostname=host) as secured,
        ):
            told = secured.getpeercert() or {}
    except OSError as error:  # ssl.SSLError is one; what is wrong is the business of the check "server"
        yield Finding("not seen", ok=None, reason=f"{error}; a proxy may stand between")
        return
    ends_at = ssl.cert_time_to_seconds(str(told["notAfter"]))
    days = (ends_at - time.time()) / DAY_SECONDS
    if days >= site.settings[CERTIFICATE_DAYS]:
        yield Finding(f"good for {days:.0f} days")
    else:
        why = f"it ends in {days:.1f} days; then nothing is sent any more"
        yield Finding("ends soon", ok=False, reason=why, fix="have a new one made for the server")


CHECK = Check("certificate", "how long the server's certificate is good", Stage.EXCHANGE, _run)
