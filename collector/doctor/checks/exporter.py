"""Can metrics be served, or does an agent do it already?"""

from __future__ import annotations

import socket
from collections.abc import Iterator

import urllib3

from collector import settings as names
from collector.doctor.check import Check, Finding, Site, Stage

ASK_SECONDS = 2.0


def _run(site: Site) -> Iterator[Finding]:
    listen = site.settings[names.EXPORTER_LISTEN]
    if not listen:
        yield Finding("off")
        return
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind((host, int(port)))
    except (OSError, ValueError, OverflowError) as error:
        yield _taken(listen, host, error)
        return
    yield Finding(f"{listen} is free; no agent runs here now")


def _taken(listen: str, host: str, error: Exception) -> Finding:
    where = "127.0.0.1" if host in ("", "0.0.0.0") else host  # noqa: S104 - asked, not listened on
    try:
        port = int(listen.rpartition(":")[2])
        answer = urllib3.request("GET", f"http://{where}:{port}/readyz", timeout=ASK_SECONDS, retries=False)
    except (urllib3.exceptions.HTTPError, OSError, ValueError):
        why = f"{listen}: {error}; the agent would go on without /metrics"
        return Finding("cannot be listened on", ok=False, reason=why, fix="set agent.exporter_listen to a free address")
    if answer.status == 200:  # noqa: PLR2004 - HTTP
        return Finding(f"an agent answers on {listen}")
    said = answer.data[:200].decode(errors="replace").strip()
    return Finding(
        f"{listen} answers {answer.status}", ok=False, reason=said, fix="look into the log of what runs there"
    )


CHECK = Check("exporter", "whether metrics can be served", Stage.SPOOL, _run)
