"""A scheduler's history goes to a real server, window by window; ``sacct`` is a script that keeps a diary."""

from __future__ import annotations

import gzip
import json
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from collector import accounting
from collector.accounting import Accounting, Desk, open_history
from collector.job_source import TooMuchError
from collector.jobs import _sacct
from collector.jobs._sacct import FIELDS, Sacct
from collector.jobs.slurm import CLUSTERS, SACCT, TIMEOUT_SECONDS, SlurmHistory
from collector.poster import Endpoint, Poster, TokenRefusedError
from tests.warehouse.serving import REPOSITORY, ServerProcess
from warehouse import access
from warehouse.contract.errors import BadUseError, UnreachableError
from warehouse.contract.settings import Settings

NOW = 1_790_100_000.0
DAY = 86400.0

SCRIPT = """#!{python}
import json, os, sys, time
folder = {folder!r}
seen = {{name: os.environ.get(name) for name in ("TZ", "SLURM_TIME_FORMAT", "SACCT_FORMAT")}}
with open(folder + "/calls", "a") as calls:
    print(json.dumps([sys.argv[1:], seen]), file=calls)
told = {{name: open(folder + "/" + name).read() for name in ("rows", "exit", "sleep", "fields")}}
if sys.argv[1] == "--helpformat":
    print(told["fields"])
    sys.exit(0)
time.sleep(float(told["sleep"]))
options = dict(option[2:].split("=", 1) for option in sys.argv[1:] if "=" in option)
names = options["format"].split(",")
print(options["delimiter"].join(names))
for row in json.loads(told["rows"]):
    print(options["delimiter"].join(str(row.get(name, "")) for name in names))
if told["exit"] != "0":
    print("sacct: error: Problem talking to the database: Connection refused", file=sys.stderr)
sys.exit(int(told["exit"]))
"""


class FakeSacct:
    """A ``sacct`` whose answers a test sets, and that remembers how it was asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "sacct"
        self.path.write_text(SCRIPT.format(python=sys.executable, folder=str(folder)))
        self.path.chmod(self.path.stat().st_mode | stat.S_IXUSR)
        self.say()

    def say(self, *rows: dict[str, Any], exit_code: int = 0, sleep_seconds: float = 0.0, fields: str = "") -> None:
        answers = {
            "rows": json.dumps(rows),
            "exit": str(exit_code),
            "sleep": str(sleep_seconds),
            "fields": fields or " ".join(FIELDS),
        }
        for name, text in answers.items():
            (self.folder / name).write_text(text)

    @property
    def calls(self) -> list[tuple[list[str], dict[str, str | None]]]:
        path = self.folder / "calls"
        return [tuple(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []

    def windows(self) -> list[tuple[str, str]]:
        """Give begin and end of each question."""
        asked = [dict(one[2:].split("=", 1) for one in call if "=" in one) for call, _ in self.calls]
        return [(one["starttime"], one["endtime"]) for one in asked if "starttime" in one]


def row(number: int | str = 77, start: float = -3600.0, end: float | None = -1800.0, **words: Any) -> dict[str, Any]:
    """Make a row of a job that held two GPUs, in seconds before NOW."""
    fields: dict[str, Any] = {
        "JobID": number,
        "JobIDRaw": number,
        "User": "alice",
        "State": "COMPLETED" if end is not None else "RUNNING",
        "Submit": int(NOW + start),
        "Start": int(NOW + start),
        "End": "Unknown" if end is None else int(NOW + end),
        "NodeList": "gpu1",
        "AllocTRES": "cpu=1,gres/gpu=2,node=1",
        "Cluster": "alex",
    }
    return fields | words


@pytest.fixture
def sacct(tmp_path: Path) -> FakeSacct:
    folder = tmp_path / "sacct"
    folder.mkdir()
    return FakeSacct(folder)


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServerProcess]:
    server = ServerProcess(tmp_path_factory.mktemp("server") / "data")
    yield server
    server.stop()


Make = Callable[..., Accounting]


@pytest.fixture
def make(sacct: FakeSacct, shared_server: ServerProcess, request: pytest.FixtureRequest) -> Make:
    """Give a maker of collectors, each test with a cluster's place in time of its own."""

    def open_one(now: float = NOW, **chosen: Any) -> Accounting:
        values: dict[str, object] = {SACCT.name: str(sacct.path), TIMEOUT_SECONDS.name: 30.0}
        values |= {accounting.HISTORY_SECONDS.name: 2.5 * DAY}
        settings = Settings(values | {f"jobs.{key}": value for key, value in chosen.items()})
        history = open_history(settings)
        history.cluster = request.node.name
        token = access.token_file(shared_server.data, access.Role.AGENT)
        desk = Desk(Poster(Endpoint(shared_server.url, token)), history)
        return Accounting(settings, history, desk, lambda: now)

    return open_one


def attempts(server: ServerProcess, cluster: str) -> list[dict[str, Any]]:
    found = server.client().past_attempts(cluster, ["77", "78"])
    return [{"key": one.attempt_key, "state": one.state, "end_at": one.end_at} for one in found]


def test_the_first_run_goes_back_day_by_day_and_the_next_goes_on_with_an_overlap(sacct: FakeSacct, make: Make) -> None:
    sacct.say(row(Cluster="first"))
    assert make().catch_up().windows == 3
    assert sacct.windows() == [
        ("2026-09-20T06:00:00", "2026-09-21T06:00:00"),
        ("2026-09-21T06:00:00", "2026-09-22T06:00:00"),
        ("2026-09-22T06:00:00", "2026-09-22T18:00:00"),
    ]
    (begin, end) = (make(NOW + 60).catch_up(), sacct.windows()[-1])[1]
    assert (begin, end) == ("2026-09-22T17:45:00", "2026-09-22T18:01:00")


def test_what_was_there_before_is_unchanged(sacct: FakeSacct, make: Make, shared_server: ServerProcess) -> None:
    sacct.say(row(Cluster="again"))
    first = make(history_seconds=DAY).catch_up()
    assert (first.rows, first.kept, first.unchanged) == (1, 1, 0)
    again = make(NOW + 60).catch_up()
    assert (again.rows, again.kept, again.unchanged) == (1, 0, 1)
    assert attempts(shared_server, "again") == [
        {"key": f"again/77#0:{int(NOW - 3600)}", "state": "completed", "end_at": NOW - 1800}
    ]


def test_a_running_job_gets_its_end_when_accounting_has_it(
    sacct: FakeSacct, make: Make, shared_server: ServerProcess
) -> None:
    sacct.say(row(Cluster="ends", end=None))
    make(history_seconds=DAY).catch_up()
    assert [one["state"] for one in attempts(shared_server, "ends")] == ["running"]
    sacct.say(row(Cluster="ends", end=60.0))
    make(NOW + 120).catch_up()
    assert [(one["state"], one["end_at"]) for one in attempts(shared_server, "ends")] == [("completed", NOW + 60)]


def test_times_are_asked_for_and_told_without_any_zone(
    sacct: FakeSacct, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Berlin 2026-10-25 02:30 comes twice; here it is two different seconds."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    monkeypatch.setenv("SACCT_FORMAT", "JobID%30")
    make(1_792_888_200.0, history_seconds=3600.0).catch_up()
    assert sacct.windows() == [("2026-10-24T23:30:00", "2026-10-25T00:30:00")]
    assert sacct.calls[-1][1] == {"TZ": "UTC", "SLURM_TIME_FORMAT": "%s", "SACCT_FORMAT": None}


def test_a_version_that_lacks_a_column_is_asked_for_the_others(
    sacct: FakeSacct, make: Make, shared_server: ServerProcess
) -> None:
    sacct.say(row(Cluster="old"), fields="Account AllocTRES Cluster End JobID JobIDRaw Start State Submit User")
    assert make(history_seconds=DAY).catch_up().kept == 1
    (asked,) = [option for option in sacct.calls[-1][0] if option.startswith("--format")]
    assert asked == "--format=JobID,JobIDRaw,User,Account,State,Submit,Start,End,AllocTRES,Cluster"


def test_what_is_no_sacct_is_said(sacct: FakeSacct, make: Make) -> None:
    sacct.say(fields="nonsense")
    with pytest.raises(BadUseError, match="no sacct of Slurm; it knows no End, JobID, Start, State"):
        make().catch_up()
    with pytest.raises(BadUseError, match=r"no-such-program: cannot be started .*jobs\.slurm_sacct"):
        make(slurm_sacct="no-such-program").catch_up()


def test_an_outage_of_accounting_moves_nothing_and_its_time_is_asked_for_again_for_a_while(
    sacct: FakeSacct, make: Make
) -> None:
    now = [NOW]
    one = make(history_seconds=3600.0)
    one._clock = lambda: now[0]
    one.catch_up()
    sacct.say(exit_code=1)
    now[0] += 7200.0
    with pytest.raises(UnreachableError, match="exit code 1: sacct: error: Problem talking to the database"):
        one.catch_up()
    sacct.say()
    now[0] += 600.0
    one.catch_up()
    now[0] += 600.0
    one.catch_up()
    now[0] += 3600.0
    one.catch_up()
    assert sacct.windows() == [
        ("2026-09-22T17:00:00", "2026-09-22T18:00:00"),
        ("2026-09-22T17:45:00", "2026-09-22T20:00:00"),
        ("2026-09-22T17:45:00", "2026-09-22T20:10:00"),
        ("2026-09-22T17:45:00", "2026-09-22T20:20:00"),
        ("2026-09-22T20:05:00", "2026-09-22T21:20:00"),
    ]


def test_rows_before_an_answer_broke_off_are_in_and_the_window_is_asked_for_again(
    sacct: FakeSacct, make: Make, shared_server: ServerProcess
) -> None:
    sacct.say(row(Cluster="broken"), exit_code=1)
    with pytest.raises(UnreachableError):
        make(history_seconds=DAY).catch_up()
    assert len(attempts(shared_server, "broken")) == 1
    sacct.say(row(Cluster="broken"), row(78, Cluster="broken"))
    tally = make(history_seconds=DAY).catch_up()
    assert (tally.kept, tally.unchanged) == (1, 1)


def test_u21_a_database_that_does_not_answer_is_asked_for_less_by_one_question_at_a_time(
    sacct: FakeSacct, make: Make
) -> None:
    sacct.say(sleep_seconds=120.0)
    begin = time.monotonic()
    with pytest.raises(TooMuchError, match="no answer within 1 s"):
        make(history_seconds=1800.0, slurm_timeout_seconds=1.0).catch_up()
    assert time.monotonic() - begin < 60
    assert sacct.windows() == [
        ("2026-09-22T17:30:00", "2026-09-22T18:00:00"),
        ("2026-09-22T17:30:00", "2026-09-22T17:45:00"),
        ("2026-09-22T17:30:00", "2026-09-22T17:40:00"),
    ]


def test_a_stop_is_heeded_while_accounting_is_away(sacct: FakeSacct, make: Make) -> None:
    sacct.say(exit_code=1)
    stop = threading.Event()
    thread = threading.Thread(target=make().run, args=(stop,))
    thread.start()
    while not sacct.windows():
        time.sleep(0.01)
    stop.set()
    thread.join(20)
    assert not thread.is_alive()
    assert len(sacct.windows()) == 1


def test_text_goes_in_pieces_that_end_with_rows(
    sacct: FakeSacct, make: Make, shared_server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_sacct, "PIECE_BYTES", 1)
    lost = row(77, Cluster="pieces", State="REQUEUED")
    again = row(77, -1800.0, -900.0, Cluster="pieces")
    broken = row(78, Cluster="pieces", Comment="two\nlines")
    sacct.say(lost, row("77.batch", JobIDRaw="77.batch", Cluster="pieces"), broken, again)
    history = open_history(Settings({SACCT.name: str(sacct.path)}))
    texts = [(gzip.decompress(text).decode(), rows) for text, rows in history.pieces(NOW - DAY, NOW)]
    assert [rows for _, rows in texts] == [1, 1, 2, 1]
    assert all(text.startswith("JobID\x1fJobIDRaw\x1f") for text, _ in texts)
    assert make(history_seconds=DAY).catch_up().kept == 4
    assert [one["key"] for one in attempts(shared_server, "pieces")] == [
        f"pieces/77#0:{int(NOW - 3600)}",
        f"pieces/78#0:{int(NOW - 3600)}",
        f"pieces/77#0:{int(NOW - 1800)}",
    ]


def test_rows_that_cannot_be_read_are_counted_and_cost_only_themselves(sacct: FakeSacct, make: Make) -> None:
    sacct.say(row(Cluster="bad"), row(78, Cluster="bad", Start="yesterday"))
    tally = make(history_seconds=DAY).catch_up()
    assert (tally.rows, tally.kept, tally.rejected) == (2, 1, 1)
    assert list(tally.reasons.values()) == [1]


def test_other_clusters_are_asked_for_by_name() -> None:
    history = open_history(Settings({CLUSTERS.name: "alex,woody"}))
    assert isinstance(history, SlurmHistory)
    assert history.cluster == "alex,woody"
    assert Sacct("sacct", "alex,woody", 1.0)._where() == ["--clusters=alex,woody"]


def test_a_source_without_history_is_named_with_those_that_have_one() -> None:
    with pytest.raises(BadUseError, match="no cluster is known to 'process'; there are kubernetes, slurm"):
        open_history(Settings({"jobs.source": "process"}))


def test_a_nodes_own_token_may_not_bring_accounting_and_an_agents_brings_nothing_else(
    shared_server: ServerProcess,
) -> None:
    text = gzip.compress(b"x")
    enrolled = shared_server.client().manage_tokens("new", {"role": "agent", "name": "n1", "node": "n1"})
    shared = access.token_file(shared_server.data, access.Role.AGENT).read_text()
    for token, path, message in (
        (str(enrolled["token"]), "/v1/imports/sacct/text", "token is of node"),
        (shared, "/v1/imports/jobs_csv/text", "accounting"),
    ):
        file = shared_server.data.parent / "some.token"
        file.write_text(token)
        with pytest.raises(TokenRefusedError, match=message):
            Poster(Endpoint(shared_server.url, file)).send(path, text)


def test_the_command_brings_in_once_and_says_what_became_of_it(
    sacct: FakeSacct, shared_server: ServerProcess, tmp_path: Path
) -> None:
    sacct.say(
        row(Cluster="command", Start=int(time.time()) - 60, End=int(time.time()) - 30, Submit=int(time.time()) - 60)
    )
    token = access.token_file(shared_server.data, access.Role.AGENT)
    command = [sys.executable, "-m", "trueload", "jobs", "once", "--json", f"--server={shared_server.url}"]
    environment = {
        **os.environ,
        "TRUELOAD_JOBS__SLURM_SACCT": str(sacct.path),
        "TRUELOAD_JOBS__HISTORY_SECONDS": "3600",
    }
    environment["TRUELOAD_AGENT__CLUSTER"] = "command"
    done = subprocess.run(
        [*command, f"--token-file={token}"],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["windows"], told["rows"], told["kept"], told["rejected"]) == (1, 1, 1, 0)
