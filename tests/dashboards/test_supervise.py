"""Child processes: awaited without fixed sleeps, watched, told apart by their logs, and ended by pid."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboards.supervise import Part, PartDiedError, Stop, Supervisor, answers_ok, require_free, some_free_port
from warehouse.contract.errors import BadUseError

STAYS = "import time; print('up', flush=True); time.sleep(600)"


def _part(name: str, program: str, **more: object) -> Part:
    return Part(name, (sys.executable, "-c", program), **more)  # type: ignore[arg-type]


@pytest.fixture
def stop() -> Stop:
    return Stop()


@pytest.fixture
def supervisor(tmp_path: Path, stop: Stop) -> Iterator[Supervisor]:
    with Supervisor(tmp_path / "logs", stop, ready_seconds=20.0, stop_seconds=2.0) as made:
        yield made


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _pid(path: Path) -> int:
    return int(path.read_text(encoding="utf-8"))


def _writes_pid(path: Path, then: str) -> str:
    return f"import os, pathlib; pathlib.Path({str(path)!r}).write_text(str(os.getpid())); {then}"


def test_a_part_is_awaited_until_it_is_ready(supervisor: Supervisor, tmp_path: Path) -> None:
    sign = tmp_path / "ready"
    part = _part("server", f"import pathlib; pathlib.Path({str(sign)!r}).touch(); {STAYS}", is_ready=sign.exists)
    supervisor.start(part)
    supervisor.await_ready(part)
    assert sign.exists()


def test_a_part_that_dies_early_is_told_with_the_end_of_its_log(supervisor: Supervisor) -> None:
    part = _part("server", "print('no such table'); raise SystemExit(3)", is_ready=lambda: False)
    supervisor.start(part)
    with pytest.raises(PartDiedError, match=r"server ended with exit code 3; [\s\S]*server.log:\n    no such table"):
        supervisor.await_ready(part)


def test_a_part_that_never_gets_ready_is_told(tmp_path: Path, stop: Stop) -> None:
    part = _part("server", STAYS, is_ready=lambda: False)
    with Supervisor(tmp_path, stop, ready_seconds=0.3, stop_seconds=2.0) as supervisor:
        supervisor.start(part)
        with pytest.raises(PartDiedError, match=r"server was not ready within 0\.3 s"):
            supervisor.await_ready(part)


def test_leaving_ends_every_part_the_last_started_first(tmp_path: Path, stop: Stop) -> None:
    ends = tmp_path / "ends"
    program = (
        "import signal, sys, time\n"
        f"def end(*_): open({str(ends)!r}, 'a').write(sys.argv[1]); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "open(sys.argv[2], 'w').close()\n"
        "time.sleep(600)"
    )
    with Supervisor(tmp_path / "logs", stop, ready_seconds=20.0, stop_seconds=5.0) as supervisor:
        for name in ("a", "b", "c"):
            sign = tmp_path / name
            part = Part(name, (sys.executable, "-c", program, name, str(sign)), sign.exists)
            supervisor.start(part)
            supervisor.await_ready(part)
    assert ends.read_text(encoding="utf-8") == "cba"


def test_a_part_that_ignores_the_request_is_ended_by_force(tmp_path: Path, stop: Stop) -> None:
    mark = tmp_path / "pid"
    ignores = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    part = _part("deaf", ignores + _writes_pid(mark, "time.sleep(600)"), is_ready=mark.exists)
    with Supervisor(tmp_path / "logs", stop, ready_seconds=20.0, stop_seconds=0.3) as supervisor:
        supervisor.start(part)
        supervisor.await_ready(part)
        pid = _pid(mark)
        assert _is_alive(pid)
    assert not _is_alive(pid)


def test_watching_tells_a_part_that_ends_by_itself(supervisor: Supervisor) -> None:
    supervisor.start(_part("pages", STAYS))
    supervisor.start(_part("server", "raise SystemExit('gone')"))
    with pytest.raises(PartDiedError, match=r"server ended with exit code 1; [\s\S]*    gone"):
        supervisor.watch()


def test_a_part_may_be_run_to_its_end(supervisor: Supervisor) -> None:
    supervisor.run(_part("history", "print('done')"))
    supervisor.check()


def test_a_run_that_fails_is_told(supervisor: Supervisor) -> None:
    with pytest.raises(PartDiedError, match="history ended with exit code 1"):
        supervisor.run(_part("history", "raise SystemExit(1)"))


def test_a_signal_ends_the_watch(supervisor: Supervisor, stop: Stop) -> None:
    supervisor.start(_part("server", STAYS))
    with stop.on_signals():
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
        began = time.monotonic()
        supervisor.watch()
    assert stop.asked.is_set()
    assert time.monotonic() - began < 5.0


def test_watching_for_some_seconds_ends_by_itself(supervisor: Supervisor) -> None:
    supervisor.start(_part("server", STAYS))
    supervisor.watch(0.2)
    supervisor.check()


def test_a_busy_port_is_one_line_that_says_what_to_change() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BadUseError) as error:
            require_free("127.0.0.1", port, "--port", "server.port")
    assert str(port) in str(error.value)
    assert "--port or server.port" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_free_port_is_free() -> None:
    port = some_free_port("127.0.0.1")
    require_free("127.0.0.1", port, "--port", "server.port")
    assert not answers_ok(f"http://127.0.0.1:{port}/healthz")
