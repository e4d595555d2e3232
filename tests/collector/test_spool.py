from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from collector import spool_state
from collector.spool import KEPT_FOLDER, STATE_FILE, Bounds, Spool
from warehouse.contract import wire
from warehouse.contract.errors import BadInputError, BadUseError
from warehouse.contract.model import Event

DAY_SECONDS = 86_400.0


def opened(folder: Path, max_bytes: int = 10**9, max_age_seconds: float = DAY_SECONDS) -> Spool:
    return Spool(folder, "node-1", Bounds(max_bytes, max_age_seconds))


def tables(detail: str = "") -> dict[str, wire.Table]:
    return wire.from_records([Event("c", "node-1", "test", 1.0, detail=detail)])


def sequences(spool: Spool) -> list[int]:
    return [wire.decode(batch.path.read_bytes()).sequence for batch in spool.waiting()]


def test_batches_wait_in_order_until_they_are_acknowledged(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        for _ in range(3):
            spool.put(tables())
        assert sequences(spool) == [1, 2, 3]
        spool.acknowledge(spool.waiting()[0])
        assert sequences(spool) == [2, 3]


def test_numbers_go_on_after_a_restart_even_when_nothing_waits(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        stream = wire.decode(spool.put(tables()).read_bytes()).boot_id
        spool.acknowledge(spool.waiting()[0])
    with opened(tmp_path) as spool:
        batch = wire.decode(spool.put(tables()).read_bytes())
    assert (batch.sequence, batch.boot_id) == (2, stream)


def test_after_a_boot_a_new_stream_begins_and_what_waits_goes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot_id = tmp_path / "boot_id"
    monkeypatch.setattr(spool_state, "BOOT_ID_FILE", boot_id)
    boot_id.write_text("first\n")
    with opened(tmp_path / "spool") as spool:
        spool.put(tables("old"))
    boot_id.write_text("second\n")
    with opened(tmp_path / "spool") as spool:
        spool.put(tables("new"))
        found = [wire.decode(batch.path.read_bytes()) for batch in spool.waiting()]
    assert [(batch.boot_id.partition(".")[0], batch.sequence) for batch in found] == [("first", 1), ("second", 1)]


def test_a_spool_that_lost_its_memory_never_gives_an_old_name_again(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        before = wire.decode(spool.put(tables()).read_bytes())
    (tmp_path / STATE_FILE).unlink()
    with opened(tmp_path) as spool:
        after = wire.decode(spool.put(tables()).read_bytes())
        assert len(spool.waiting()) == 2
    assert before.boot_id != after.boot_id


def test_a_damaged_memory_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    opened(tmp_path).close()
    (tmp_path / STATE_FILE).write_text("{", encoding="ascii")
    with pytest.raises(BadInputError, match=r"state\.json: damaged .* remove it"):
        opened(tmp_path)


def test_too_many_bytes_drop_the_oldest_and_count_them(tmp_path: Path) -> None:
    with opened(tmp_path / "measure") as spool:
        size_bytes = spool.put(tables()).stat().st_size
    with opened(tmp_path / "spool", max_bytes=int(size_bytes * 2.5)) as spool:
        for _ in range(5):
            spool.put(tables())
        assert sequences(spool) == [4, 5]
        assert spool.dropped_total == 3


def test_too_old_batches_are_dropped(tmp_path: Path) -> None:
    with opened(tmp_path, max_age_seconds=3600) as spool:
        old = spool.put(tables())
        os.utime(old, (time.time() - 7200,) * 2)
    with opened(tmp_path, max_age_seconds=3600) as spool:
        spool.put(tables())
        assert sequences(spool) == [2]
        assert spool.dropped_total == 1


def test_the_newest_batch_stays_however_small_the_bound(tmp_path: Path) -> None:
    with opened(tmp_path, max_bytes=1) as spool:
        spool.put(tables())
        spool.put(tables())
        assert sequences(spool) == [2]


def test_a_number_that_was_dropped_is_not_given_again(tmp_path: Path) -> None:
    with opened(tmp_path, max_bytes=1) as spool:
        spool.put(tables())
        spool.put(tables())
        spool.acknowledge(spool.waiting()[0])
    with opened(tmp_path) as spool:
        spool.put(tables())
        assert sequences(spool) == [3]


def test_a_batch_set_aside_is_not_sent_again_and_counts_against_the_bound(tmp_path: Path) -> None:
    with opened(tmp_path / "measure") as spool:
        size_bytes = spool.put(tables()).stat().st_size
    with opened(tmp_path / "spool", max_bytes=int(size_bytes * 1.5)) as spool:
        spool.put(tables())
        spool.set_aside(spool.waiting()[0])
        assert spool.waiting() == []
        spool.put(tables())
        assert [path.name for path in (tmp_path / "spool").glob("*.refused")] == []


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(BadUseError, match="another process uses it"):
        opened(tmp_path)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadUseError, match=r"file.*agent\.spool_dir"):
        opened(tmp_path / "file")


WRITER = """
import sys
from pathlib import Path
from collector.spool import Bounds, Spool
from warehouse.contract import wire
from warehouse.contract.model import Event
events = [Event("c", "node-1", "test", float(at), detail="x" * 200) for at in range(500)]
spool = Spool(Path(sys.argv[1]), "node-1", Bounds(10**9, 1e9))
while True:
    spool.put(wire.from_records(events))
    print("kept", flush=True)
    spool.acknowledge(spool.waiting()[0])
    print("sent", flush=True)
"""


def test_a_writer_killed_at_any_point_leaves_whole_batches_and_no_number_twice(
    tmp_path: Path, repository: Path, wait_until: Callable[..., None]
) -> None:
    draw = random.Random(7)
    highest = 0
    for _ in range(6):
        child = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], cwd=repository, stdout=subprocess.PIPE)
        assert child.stdout is not None
        for _ in range(draw.randrange(1, 12)):
            child.stdout.readline()
        time.sleep(draw.random() * 0.01)  # the point of the kill is what is varied
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        with opened(tmp_path) as spool:
            waiting = sequences(spool)  # decodes every file: half a file would raise
            assert len(waiting) <= 1
            kept = [int(path.name[7:19]) for path in (tmp_path / KEPT_FOLDER).glob("*.batch")]
            assert max([0, *kept, *waiting]) >= highest
            spool.put(tables())
            newest = max(sequences(spool))
            assert newest == max([0, *kept, *waiting]) + 1
            highest = newest
            for batch in spool.waiting():
                spool.acknowledge(batch)
        assert not list(tmp_path.glob(".unfinished-*"))


def test_u27_a_disk_that_turns_read_only_sends_nothing_twice_and_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mount with open files cannot be made read-only from outside; a file system with an error does it by itself."""
    with opened(tmp_path) as spool:
        for _ in range(2):
            spool.put(tables())
        replace = Path.replace

        def refuse(_path: Path, _target: Path) -> Path:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

        monkeypatch.setattr(Path, "replace", refuse)
        spool.put(tables("in memory"))
        first, second, third = spool.waiting()
        spool.acknowledge(first)
        assert spool.waiting() == [second, third]
        spool.set_aside(second)
        assert spool.waiting() == [third]
        spool.acknowledge(third)
        assert (spool.waiting(), spool.waiting_count, spool.dropped_total) == ([], 0, 0)
        monkeypatch.setattr(Path, "replace", replace)
        spool.put(tables("on disk again"))
        assert sequences(spool) == [3]
        assert (spool.kept_count, [path.name for path in tmp_path.glob("*.refused")]) == (
            1,
            [f"{second.path.name}.refused"],
        )


@pytest.mark.parametrize("refused_from", [1, 2], ids=["the first half", "the second half"])
def test_u27_halves_that_a_read_only_disk_does_not_take_are_sent_from_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused_from: int
) -> None:
    events = [Event("c", "node-1", "test", float(at)) for at in range(2)]
    with opened(tmp_path) as spool:
        spool.put(wire.from_records(events))
        spool.put(tables("later"))
        whole, later = spool.waiting()
        written: list[Path] = []

        def refuse(path: Path, content: bytes) -> None:
            written.append(path)
            if len(written) >= refused_from:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))
            path.write_bytes(content)

        with monkeypatch.context() as patched:
            patched.setattr("collector.spool.replace_file", refuse)
            assert spool.split(whole)
        waiting = spool.waiting()
        halves = [wire.decode(batch.read()) for batch in waiting if batch.content is not None]
        assert waiting[0] == later
        assert [(half.sequence, half.part, half.tables["event"].rows) for half in halves] == [(1, 0, 1), (1, 1, 1)]
        for batch in waiting:
            spool.acknowledge(batch)
        spool.put(tables("the disk takes something again"))
        assert sequences(spool) == [3]
        assert (spool.dropped_total, spool.kept_count) == (0, 2)  # the whole stands for its halves until a backup


def test_nobody_else_may_look_into_a_spool(tmp_path: Path) -> None:
    with opened(tmp_path / "deep" / "spool") as spool:
        written = spool.put(tables())
    modes = [path.stat().st_mode & 0o777 for path in (spool.folder, spool.folder / KEPT_FOLDER, written)]
    assert modes == [0o700, 0o700, 0o600]
