"""No acknowledged or spooled batch is lost or doubled, proved by the ledger and the rows of a real server."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.warehouse.serving import ServerProcess
from warehouse import access
from warehouse.store import open_store

Wait = Callable[..., None]
SENDER = """
import os, signal, sys, threading, time
from pathlib import Path
from collector.ship import Shipper
from collector.poster import Endpoint
from collector.spool import Bounds, Spool
from warehouse.contract import wire

folder, url_file, token_file, first, count, pause_seconds = sys.argv[1:]
url = Path(url_file).read_text()
spool = Spool(Path(folder), "node-1", Bounds(10**8, 1e9))
endpoint = Endpoint(url, Path(token_file), timeout_seconds=5.0, first_wait_seconds=0.02, longest_wait_seconds=0.1)
shipper = Shipper(spool, endpoint)
shipper.start()
shipper.wake()
for number in range(int(first), int(first) + int(count)):
    columns = {"cluster": "c", "node": "node-1", "device_uuid": "GPU-a", "cadence_seconds": 10.0, "source": "nvml"}
    columns |= {"sampled_at": [1000.0 + 20 * number, 1010.0 + 20 * number], "power_watts": [1.0, 2.0]}
    spool.put({"device_sample": wire.Table(2, columns)})
    print("kept", number, spool.memory_count, flush=True)
    if os.environ.get("DIE_AFTER") == str(number):
        os.kill(os.getpid(), signal.SIGKILL)
    shipper.wake()
    time.sleep(float(pause_seconds))
while spool.waiting_count:
    time.sleep(0.02)
    shipper.wake()
print("sent", spool.dropped_total, spool.kept_count, flush=True)
shipper.stop(5.0)
spool.close()
"""


class Site:
    """A server that goes and comes, and senders over one spool."""

    def __init__(self, folder: Path, repository: Path) -> None:
        self.folder = folder
        self.repository = repository
        self.data = folder / "data"
        self.url_file = folder / "url"
        self.port = 0
        self.server = ServerProcess(self.data)
        self.url_file.write_text(self.server.url)

    def sender(self, first: int, count: int, pause_seconds: float = 0.0, within: str = "") -> subprocess.Popen[str]:
        """Start a process that spools batches with these numbers and sends them."""
        token_file = access.token_file(self.data, access.Role.AGENT)
        spool = self.folder / "spool"
        arguments = [str(spool), str(self.url_file), str(token_file), str(first), str(count), str(pause_seconds)]
        command = [sys.executable, "-c", SENDER, *arguments]
        if within:
            command = ["unshare", "-m", "sh", "-c", f'{within} && exec "$@"', "sh", *command]
        return subprocess.Popen(command, cwd=self.repository, stdout=subprocess.PIPE, text=True)

    def restart(self) -> None:
        """Start the server anew; senders that begin from now on find it."""
        self.server = ServerProcess(self.data)
        self.url_file.write_text(self.server.url)

    def stored(self) -> list[float]:
        """Stop the server and give the instants of all samples, in order, doubles included."""
        self.server.stop()
        store = open_store(self.data)
        try:
            ledger = store.read(
                "SELECT count(*) AS n, count(DISTINCT (boot_id, sequence, part)) AS d FROM batch_ledger"
            )
            assert ledger["n"].to_pylist() == ledger["d"].to_pylist()
            rows = store.read("SELECT epoch(sampled_at) AS at FROM device_sample ORDER BY 1")
            return [float(at) for at in rows["at"].to_pylist()]
        finally:
            store.close()


def expected(numbers: set[int]) -> list[float]:
    return sorted(1000.0 + 20 * number + more for number in numbers for more in (0.0, 10.0))


@pytest.fixture
def site(tmp_path: Path, repository: Path) -> Site:
    return Site(tmp_path, repository)


def finish(sender: subprocess.Popen[str]) -> list[str]:
    output, _ = sender.communicate(timeout=60)
    assert sender.returncode == 0
    return output.splitlines()


@pytest.mark.slow
def test_senders_killed_at_random_moments_lose_and_double_nothing(site: Site) -> None:
    draw, kept, first = random.Random(11), set[int](), 0
    for _ in range(3):
        sender = site.sender(first, 1000, 0.02)
        assert sender.stdout is not None
        for _ in range(draw.randrange(2, 8)):
            kept.add(int(sender.stdout.readline().split()[1]))
        time.sleep(draw.random() * 0.02)  # the point of the kill is what is varied
        sender.send_signal(signal.SIGKILL)
        rest, _ = sender.communicate()
        kept |= {int(line.split()[1]) for line in rest.splitlines() if line.count(" ") == 2}
        first = max(kept) + 2  # the one after the last that was told may be whole on disk, too
    assert finish(site.sender(first, 1))[-1].startswith("sent 0 ")
    stored = site.stored()
    assert len(stored) == len(set(stored))
    assert set(expected(kept | {first})) <= set(stored)
    assert len(stored) - len(expected(kept | {first})) <= 2 * 3


@pytest.mark.slow
def test_a_server_killed_and_back_has_each_batch_once(site: Site) -> None:
    kept: set[int] = set()
    for round_number in range(2):
        sender = site.sender(1000 * round_number, 12, 0.01)
        assert sender.stdout is not None
        kept |= {int(sender.stdout.readline().split()[1]) for _ in range(4)}
        site.server.kill()
        kept |= {int(sender.stdout.readline().split()[1]) for _ in range(8)}
        sender.kill()
        sender.communicate()
        site.restart()
    assert finish(site.sender(9000, 1))[-1].startswith("sent 0 ")
    assert site.stored() == expected(kept | {9000})


@pytest.mark.slow
def test_a_server_that_fell_back_to_an_older_state_gets_again_what_it_had_acknowledged(site: Site) -> None:
    finish(site.sender(0, 3))
    site.server.stop()
    old = site.folder / "old"
    shutil.copytree(site.data, old)
    site.restart()
    finish(site.sender(3, 5))
    site.server.kill()
    shutil.rmtree(site.data)
    old.rename(site.data)
    site.restart()
    assert finish(site.sender(8, 1))[-1] == "sent 0 9"
    assert site.stored() == expected(set(range(9)))


def flipped(content: bytes, at: int, length: int) -> bytes:
    return content[:at] + bytes(byte ^ 0xFF for byte in content[at : at + length]) + content[at + length :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda log: log[: len(log) * 2 // 3],
    "flipped": lambda log: flipped(log, len(log) // 2, 4),
    "length of the first record": lambda log: flipped(log, 0, 8),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=list(DAMAGES))
def test_a_damaged_log_is_said_and_agents_send_again_what_it_lost(site: Site, damage: Callable[[bytes], bytes]) -> None:
    finish(site.sender(0, 10, 0.1))
    site.server.kill()
    log = site.data / "hot.duckdb.wal"
    log.write_bytes(damage(log.read_bytes()))
    site.restart()
    assert finish(site.sender(10, 1))[-1] == "sent 0 11"
    told = (site.folder / "data.log").read_text()
    assert "Set aside" in told or "gone without a trace" in told
    assert site.stored() == expected(set(range(11)))


@pytest.mark.slow
@pytest.mark.parametrize("disk", ["size=28k", "size=1m,ro"])
def test_u27_a_disk_that_is_full_or_read_only_loses_nothing_while_the_server_answers(site: Site, disk: str) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("mounts a small disk: needs to be root")
    spool = site.folder / "spool"
    spool.mkdir()
    lines = finish(site.sender(0, 12, 0.0, f"mount -t tmpfs -o {disk} tmpfs {spool}"))
    assert lines[-1].startswith("sent 0 ")
    assert site.stored() == expected(set(range(12)))


@pytest.mark.slow
def test_a_full_disk_and_no_server_hold_batches_in_memory_until_it_answers(site: Site) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("mounts a small disk: needs to be root")
    spool = site.folder / "spool"
    spool.mkdir()
    port = site.server.url.rpartition(":")[2]
    site.server.stop()
    sender = site.sender(0, 12, 0.0, f"mount -t tmpfs -o size=28k tmpfs {spool}")
    assert sender.stdout is not None
    in_memory = [int(sender.stdout.readline().split()[2]) for _ in range(12)]
    assert in_memory[-1] > 0
    site.server = ServerProcess(site.data, int(port))
    assert finish(sender)[-1].startswith("sent 0 ")
    assert site.stored() == expected(set(range(12)))


@pytest.mark.slow
def test_u27_killed_on_a_full_disk_what_was_spooled_arrives_once_and_what_was_in_memory_is_gone(site: Site) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("mounts a small disk: needs to be root")
    spool = site.folder / "spool"
    spool.mkdir()
    port = site.server.url.rpartition(":")[2]
    site.server.stop()
    killed = '{ DIE_AFTER=11 "$1" "$2" "$3" "$4" "$5" "$6" 0 100 "$9"; true; }'
    sender = site.sender(500, 1, 0.0, f"mount -t tmpfs -o size=28k tmpfs {spool} && {killed}")
    assert sender.stdout is not None
    in_memory = [int(sender.stdout.readline().split()[2]) for _ in range(12)]
    site.server = ServerProcess(site.data, int(port))
    assert finish(sender)[-1].startswith("sent 0 ")
    spooled = {number for number, count in enumerate(in_memory) if count == 0}
    assert 0 < len(spooled) < 12
    assert site.stored() == expected(spooled | {500})
