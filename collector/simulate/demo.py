"""The demo's memory: when it first started, when it was played, and which of the past has been told.

All of it lies in a folder of the data directory, so that history and present agree and a restart goes on.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from collector.files import replace_file
from collector.simulate.history import write_history
from collector.simulate.player import jobs_file, state_file
from collector.simulate.scenario import MINUTE_SECONDS, Scenario
from collector.simulate.standin import STATE_VARIABLE, library_path
from warehouse.contract.errors import BadInputError
from warehouse.contract.intervals import clip, subtract, union

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warehouse.contract import wire

Span = tuple[int, int]
LEAST_GAP_SECONDS: Final = 2 * MINUTE_SECONDS
"""Shorter pauses of the demo are not filled in: the agents are only about to start, or to come back."""


NOTED_EVERY_SECONDS: Final = 10
UNNOTED_SECONDS: Final = NOTED_EVERY_SECONDS + 5
"""So long play may have gone on after the last note: until the next one was due, and while the agents ended."""


@dataclass(frozen=True, slots=True)
class DemoFolder:
    """The demo's part of a data directory."""

    data: Path

    @property
    def path(self) -> Path:
        """Give the folder itself."""
        return self.data / "demo"

    def spool(self, sender: str) -> Path:
        """Give the spool of one sender of the demo."""
        return self.path / "spool" / sender

    def epoch_at(self) -> float:
        """Give the full minute of the demo's first start in this data directory; the first to ask sets it."""
        self.path.mkdir(parents=True, exist_ok=True)
        file = self.path / "epoch.json"
        if not file.exists():
            aside = self.path / f"epoch.{os.getpid()}"
            replace_file(aside, json.dumps({"epoch_at": int(time.time()) // MINUTE_SECONDS * MINUTE_SECONDS}).encode())
            try:
                os.link(aside, file)
            except FileExistsError:
                pass  # another process of the demo was first; its word counts
            finally:
                aside.unlink()
        return float(_read(file)["epoch_at"])

    def spans(self, name: str) -> list[Span]:
        """Give spans of time that were noted under a name (``played``, ``told``, ``begun``)."""
        file = self.path / f"{name}.json"
        return [(int(first), int(last)) for first, last in _read(file)["spans"]] if file.exists() else []

    def note(self, name: str, spans: list[Span]) -> None:
        """Note spans of time."""
        replace_file(self.path / f"{name}.json", json.dumps({"spans": spans}).encode())


class PlayedTime:
    """Notes when the demo is played, now and then, as spans that survive a kill."""

    def __init__(self, folder: DemoFolder) -> None:
        """Begin a span with the first ``extend``."""
        self._folder = folder
        self._before = folder.spans("played")
        self._since: float | None = None
        self._noted_at = 0.0

    def extend(self, now: float) -> None:
        """Say that the demo is being played at ``now``."""
        self._since = now if self._since is None else self._since
        if now - self._noted_at >= NOTED_EVERY_SECONDS:
            self._folder.note("played", union([*self._before, (int(self._since), int(now) + 1)]))
            self._noted_at = now


def spans_to_tell(folder: DemoFolder, scenario: Scenario, now: float) -> list[Span]:
    """Give the parts of the past that nobody has told yet: not played, not told, within the history's length.

    A span that was begun and not ended is told again as it was, so that what arrived before is recognised.
    """
    epoch_at = int(folder.epoch_at())
    length = scenario.history_minutes * MINUTE_SECONDS
    first, last = max(epoch_at - length, _minute(now) - length), _minute(now)
    told, begun = folder.spans("told"), folder.spans("begun")
    unfinished = [span for span in begun if span not in told]
    # The epoch parts what was before the demo from what it missed while it did not run.
    pieces = [(first, min(epoch_at, last)), (epoch_at, last)]
    played = [(since, until + UNNOTED_SECONDS) for since, until in folder.spans("played")]
    known = union([*played, *told, *begun])
    missed = [span for piece in pieces for span in subtract(clip([piece], first, last), known)]
    whole = [(-(-begin // MINUTE_SECONDS) * MINUTE_SECONDS, _minute(end)) for begin, end in missed]
    return [*unfinished, *(span for span in whole if span[1] - span[0] >= LEAST_GAP_SECONDS)]


def tell_history(
    folder: DemoFolder,
    scenario: Scenario,
    now: float,
    send: Callable[[wire.Batch], None],
    settle: Callable[[], None] = lambda: None,
) -> int:
    """Tell all of the past that was not told yet; gives the number of samples.

    ``send`` may return before the receiver has the batch; ``settle`` returns when it has all of them.
    """
    start_at = folder.epoch_at() - scenario.history_minutes * MINUTE_SECONDS
    samples = 0
    for span in spans_to_tell(folder, scenario, now):
        folder.note("begun", [*(other for other in folder.spans("begun") if other != span), span])
        # With what is told first, whose beginning need not be the history's: a minute may have passed since the epoch.
        is_first = not folder.spans("told")
        samples += write_history(scenario, start_at, span[0], span[1], send, with_inventory=is_first)
        settle()
        folder.note("told", [*folder.spans("told"), span])
    return samples


@dataclass(frozen=True, slots=True)
class Child:
    """One process of the demo, for whoever starts and watches it. ``ends`` says that it ends by itself, with 0."""

    name: str
    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    ends: bool = False


def children(data: Path, server_url: str, token_file: Path, scenario: Scenario) -> list[Child]:
    """Prepare the folder and give the processes that make up the demo: player, one agent per node, teller of the past.

    The player must have begun before the agents start: then ``is_playing`` says yes.

    Raises:
        TrueloadError: the NVML stand-in is not built.

    """
    folder = DemoFolder(data)
    folder.epoch_at()
    for left in (jobs_file(folder.path), *(state_file(folder.path, node) for node in scenario.nodes)):
        left.unlink(missing_ok=True)  # of an earlier run; agents would read it as the present
    command = [sys.executable, "-m", "trueload"]
    where = ["--data", str(data), "--server", server_url, "--token-file", str(token_file)]
    return [
        Child("demo-player", [*command, "demo", "play", *where]),
        *(
            Child(
                f"agent-{node}",
                [*command, "agent", "run", "--node", node],
                _agent_environment(folder, scenario.cluster, node, where),
            )
            for node in scenario.nodes
        ),
        Child("demo-history", [*command, "demo", "history", *where], ends=True),
    ]


def is_playing(data: Path, scenario: Scenario) -> bool:
    """Say whether the player has written everything that the agents need."""
    folder = DemoFolder(data).path
    return jobs_file(folder).exists() and all(state_file(folder, node).exists() for node in scenario.nodes)


def _agent_environment(folder: DemoFolder, cluster: str, node: str, where: list[str]) -> dict[str, str]:
    return {
        STATE_VARIABLE: str(state_file(folder.path, node)),
        "TRUELOAD_AGENT__CLUSTER": cluster,
        "TRUELOAD_AGENT__NVML_LIBRARY": str(library_path()),
        "TRUELOAD_AGENT__JOB_SOURCE": "scenario",
        "TRUELOAD_AGENT__SCENARIO_JOBS_FILE": str(jobs_file(folder.path)),
        "TRUELOAD_AGENT__SPOOL_DIR": str(folder.spool(node)),
        "TRUELOAD_AGENT__SERVER_URL": where[3],
        "TRUELOAD_AGENT__TOKEN_FILE": where[5],
    }


def _minute(at: float) -> int:
    return int(at) // MINUTE_SECONDS * MINUTE_SECONDS


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as cause:
        raise BadInputError(str(file), None, f"cannot be read ({cause}); remove {file.parent} to begin anew") from cause
    if not isinstance(content, dict):
        raise BadInputError(str(file), None, f"expected an object; remove {file.parent} to begin anew")
    return content
