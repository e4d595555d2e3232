"""How far are this node's clock and the server's apart?"""

from __future__ import annotations

import email.utils
import json
import time
from collections.abc import Iterator
from typing import Final

import urllib3

from collector.doctor.check import Check, Finding, Site, Stage, not_told
from collector.doctor.checks.server import UNREACHABLE
from collector.poster import open_pool
from collector.running import endpoint
from warehouse.contract.clocks import CLOCK_OFF_SECONDS, Offset, offset_between
from warehouse.contract.errors import BadUseError

DATE_SECONDS: Final = 1.0
"""An HTTP date (RFC 9110, 5.6.7) has whole seconds: where nothing better is told, it is cut by up to one."""

FIX: Final = "have both follow one time source (chronyc tracking, timedatectl); rows are not moved afterwards"


def _run(site: Site) -> Iterator[Finding]:
    if UNREACHABLE in site.notes:
        yield not_told(site.notes[UNREACHABLE])
        return
    where = endpoint(site.settings)
    url = where.url.rstrip("/")
    try:
        with open_pool(where, 1) as pool:
            pool.request("GET", f"{url}/healthz")  # connecting takes round trips of its own
            before = time.time()
            answer = pool.request("GET", f"{url}/healthz")
            after = time.time()
    except (BadUseError, urllib3.exceptions.HTTPError, OSError):
        yield not_told("the server cannot be reached")
        return
    told = _offset(answer, before, after)
    if told is None:
        yield not_told("the server does not tell its time")
        return
    most_seconds = site.settings[CLOCK_OFF_SECONDS]
    if told.is_beyond(most_seconds):
        why = f"this node's clock is {told}; rows bear this node's time ({CLOCK_OFF_SECONDS.name}: {most_seconds:g})"
        yield Finding("off", ok=False, reason=why, fix=FIX)
    else:
        yield Finding(f"this node's clock is within {most_seconds:g} s of the server's")


def _offset(answer: urllib3.BaseHTTPResponse, before: float, after: float) -> Offset | None:
    try:
        at = json.loads(answer.data)["answered_at"]
        return offset_between(before, after, float(at), float(at))
    except (ValueError, KeyError, TypeError):
        pass
    try:
        date = email.utils.parsedate_to_datetime(answer.headers["Date"]).timestamp()
    except (ValueError, KeyError, TypeError):
        return None
    return offset_between(before, after, date + DATE_SECONDS, date)


CHECK = Check("clock", "how far this clock and the server's are apart", Stage.EXCHANGE, _run)
