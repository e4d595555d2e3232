"""``trueload jobs``: what a scheduler remembers of its jobs goes to the server, window by window, for ever.

The place in time lies at the server, which moves it when a whole window is in. So this needs no disk, and may be
killed, moved to another machine or started twice: what is sent again changes nothing. Windows overlap, for accounting
learns of things late.
"""

from __future__ import annotations

import json
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode

from collector.job_source import TooMuchError
from collector.poster import BatchRefusedError, NotOfferedError, Poster, TokenRefusedError
from warehouse.contract.errors import BadUseError, UnreachableError
from warehouse.contract.settings import AnySetting, Setting

if TYPE_CHECKING:
    import threading

    from collector.job_source import History, JobSource
    from warehouse.contract.settings import Settings

LOG = logging.getLogger("trueload.jobs")

SOURCE = Setting("jobs", "source", "slurm", "name", "The scheduler whose accounting is read; see docs/settings.md.")
INTERVAL_SECONDS = Setting(
    "jobs",
    "interval_seconds",
    120.0,
    "seconds",
    "One question in two minutes is nothing to an accounting database, and nodes tell what runs now anyway.",
    1.0,
    86400.0,
)
OVERLAP_SECONDS = Setting(
    "jobs",
    "overlap_seconds",
    900.0,
    "seconds",
    "A controller tells accounting of a job within seconds; a quarter of an hour covers one that is busy.",
    0.0,
    7 * 86400.0,
)
SETTLE_SECONDS = Setting(
    "jobs",
    "settle_seconds",
    3600.0,
    "seconds",
    "So long after accounting was away its time is asked for again: the controller tells what it kept meanwhile.",
    0.0,
    7 * 86400.0,
)
HISTORY_SECONDS = Setting(
    "jobs",
    "history_seconds",
    30 * 86400.0,
    "seconds",
    "How far the first run goes back: a month shows what repeats; longer histories come with trueload import.",
    0.0,
    10 * 366 * 86400.0,
)
WINDOW_SECONDS = Setting(
    "jobs",
    "window_seconds",
    86400.0,
    "seconds",
    "At most a day at once, and less when the database is slow: a big answer is memory in it and in sacct.",
    60.0,
    31 * 86400.0,
)
LONGEST_WAIT_SECONDS = Setting(
    "jobs",
    "longest_wait_seconds",
    600.0,
    "seconds",
    "An accounting database that is in trouble is not asked more often than this.",
    1.0,
    86400.0,
)
POST_SECONDS = Setting(
    "jobs",
    "post_timeout_seconds",
    300.0,
    "seconds",
    "A server reads some tens of thousands of jobs in one message within seconds, and minutes when it is busy.",
    1.0,
    3600.0,
)
SETTINGS: tuple[AnySetting, ...] = (
    *(SOURCE, INTERVAL_SECONDS, OVERLAP_SECONDS, SETTLE_SECONDS, HISTORY_SECONDS, WINDOW_SECONDS),
    *(LONGEST_WAIT_SECONDS, POST_SECONDS),
)

LEAST_WINDOW_SECONDS: Final = 600.0
LEAST_PAUSE_SECONDS: Final = 0.5
"""Between two windows of a long history: at least this, and as long as the last one took, so that half the time is the
database's own."""


@dataclass(slots=True)
class Tally:
    """What became of the rows that were sent, and how far it has come."""

    windows: int = 0
    rows: int = 0
    kept: int = 0
    unchanged: int = 0
    rejected: int = 0
    until_at: float | None = None
    reasons: dict[str, int] = field(default_factory=dict)

    def add(self, report: object) -> None:
        """Add a server's report of one text."""
        if not isinstance(report, dict):
            return
        self.rows += int(report.get("read", 0))
        self.kept += int(report.get("kept", 0))
        self.unchanged += int(report.get("unchanged", 0))
        for refused in report.get("rejected", ()):
            reason, count = str(refused.get("reason")), int(refused.get("count", 0))
            self.rejected += count
            self.reasons[reason] = self.reasons.get(reason, 0) + count

    def document(self) -> dict[str, object]:
        """Give it as JSON."""
        return {
            "windows": self.windows,
            "rows": self.rows,
            "kept": self.kept,
            "unchanged": self.unchanged,
            "rejected": self.rejected,
            "reasons": self.reasons,
            "until_at": self.until_at,
        }


class Desk:
    """The server's side of it: texts, and the place in time."""

    def __init__(self, poster: Poster, history: History) -> None:
        """Speak to one server of one history."""
        self._poster = poster
        self._cluster = history.cluster
        self._path = f"/v1/imports/{quote(history.format, safe='')}"

    def until(self) -> float | None:
        """Give up to when the server has everything; None: it has nothing."""
        return self._until(self._poster.get(f"{self._path}/cursor?{urlencode({'cluster': self._cluster})}"))

    def send(self, text: bytes) -> object:
        """Send a text and give the server's report."""
        # Times are seconds since the epoch, so the zone decides nothing.
        return self._poster.send(f"{self._path}/text?{urlencode({'cluster': self._cluster, 'zone': 'UTC'})}", text)

    def move(self, until_at: float) -> None:
        """Tell that everything before an instant is in."""
        body = json.dumps({"cluster": self._cluster, "until_at": until_at}).encode()
        self._poster.send(f"{self._path}/cursor", body, gzipped=False)

    def _until(self, answer: object) -> float | None:
        if not isinstance(answer, dict) or "until_at" not in answer:
            raise UnreachableError(f"{self._poster.endpoint.url}: answered without a place in time; is it a server?")
        until = answer["until_at"]
        return None if until is None else float(until)


class Accounting:
    """Brings one scheduler's history up to date. Used from one thread."""

    def __init__(
        self, settings: Settings, history: History, desk: Desk, clock: Callable[[], float] = time.time
    ) -> None:
        """Read ``history`` into the server of ``desk``."""
        self.tally = Tally()
        self._settings = settings
        self._history = history
        self._desk = desk
        self._clock = clock
        self._window_seconds: float = settings[WINDOW_SECONDS]
        self._away_since: float | None = None
        self._again: tuple[float, float] | None = None
        """What was asked for while accounting was away is asked for again until an instant."""

    def run(self, stop: threading.Event) -> None:
        """Go on until told to stop; whatever is away is waited for.

        Raises:
            BadUseError: it can never work as it is set up.

        """
        failures, said = 0, ""
        while not stop.is_set():
            begin = self._clock()
            try:
                self.catch_up(stop)
            except (UnreachableError, TokenRefusedError, NotOfferedError, BatchRefusedError) as error:
                failures += 1
                if str(error) != said:
                    LOG.warning("%s", error)
                    said = str(error)
                longest = self._settings[LONGEST_WAIT_SECONDS]
                wait = min(longest, self._settings[INTERVAL_SECONDS] * 2.0 ** min(failures - 1, 20))
                stop.wait(wait * (1 - random.random() / 4))  # noqa: S311 - so that two do not come back together
                continue
            if failures:
                LOG.info("accounting of %s is read again", self._history.cluster)
            failures, said = 0, ""
            stop.wait(max(0.0, self._settings[INTERVAL_SECONDS] - max(0.0, self._clock() - begin)))

    def catch_up(self, stop: threading.Event | None = None) -> Tally:
        """Bring in everything up to now.

        Raises:
            UnreachableError: scheduler or server do not answer; whole windows before that are in.
            BatchRefusedError: the server will not take a text.
            TokenRefusedError: the server does not know the token.

        """
        now = self._clock()
        known = self._desk.until()
        since = now - self._settings[HISTORY_SECONDS] if known is None else self._since(min(known, now), now)
        while since < now and not (stop is not None and stop.is_set()):
            begin = time.monotonic()
            until = min(since + self._window_seconds, now)
            if not self._window(since, until):
                continue
            since = until
            if since < now:
                pause = max(LEAST_PAUSE_SECONDS, time.monotonic() - begin)
                if stop is None:
                    time.sleep(pause)
                else:
                    stop.wait(pause)
        return self.tally

    def _since(self, known: float, now: float) -> float:
        since = known - self._settings[OVERLAP_SECONDS]
        if self._again is not None:
            if now < self._again[1]:
                return min(since, self._again[0])
            self._again = None
        return since

    def _window(self, since: float, until: float) -> bool:
        """Bring one window in; False where it was too much at once, and the next is shorter."""
        try:
            for text, _rows in self._history.pieces(since, until):
                self.tally.add(self._desk.send(text))
        except TooMuchError:
            if until - since <= LEAST_WINDOW_SECONDS:
                self._note_away(since)
                raise
            self._window_seconds = max(LEAST_WINDOW_SECONDS, (until - since) / 2)
            LOG.warning("accounting is slow: windows of %g s from now on", self._window_seconds)
            return False
        except UnreachableError:
            self._note_away(since)
            raise
        self._desk.move(until)
        self.tally.windows += 1
        self.tally.until_at = until
        if self._away_since is not None:
            self._again = (self._away_since, self._clock() + self._settings[SETTLE_SECONDS])
            self._away_since = None
        self._window_seconds = min(self._settings[WINDOW_SECONDS], self._window_seconds * 2)
        return True

    def _note_away(self, since: float) -> None:
        self._away_since = since if self._away_since is None else min(self._away_since, since)


def open_history(settings: Settings) -> History:
    """Open the history that the settings name.

    Raises:
        BadUseError: there is no such source, or it has no history.

    """
    source = able(settings[SOURCE])
    if source.history is None:
        raise BadUseError(f"{SOURCE.name}: {source.name} has no history; it is followed")
    return source.history(settings)


def able(name: str) -> JobSource:
    """Give the source of that name, if it knows a whole cluster.

    Raises:
        BadUseError: it does not, or there is none.

    """
    from collector.registry import job_sources

    known = {one.name: one for one in job_sources().values() if one.history is not None or one.follower is not None}
    if name not in known:
        raise BadUseError(f"{SOURCE.name}: no cluster is known to {name!r}; there are {', '.join(known)}")
    return known[name]


def open_accounting(settings: Settings) -> Accounting:
    """Put it together from the settings; where the server is, and the token, are the agent's settings.

    Raises:
        BadUseError: a setting names something that does not exist.

    """
    from dataclasses import replace

    from collector.running import endpoint

    history = open_history(settings)
    patient = replace(endpoint(settings), timeout_seconds=settings[POST_SECONDS])
    return Accounting(settings, history, Desk(Poster(patient), history))
