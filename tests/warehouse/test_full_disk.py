"""A server that starts on a disk without a free byte answers, refuses what is new, and goes on once there is space."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RESTART = """
import os, shutil, subprocess, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
os.chdir(sys.argv[2])
import urllib3
from analysis.benchmarks._agents import body
from warehouse import access

disk, port = Path(sys.argv[1]), int(sys.argv[3])
data, url = disk / "data", f"http://127.0.0.1:{port}"
tokens = access.ensure_tokens(data).by_role

def start():
    command = [sys.executable, "-m", "trueload", "serve", "--data", str(data), "--port", str(port)]
    process = subprocess.Popen(command, env={**os.environ, "TRUELOAD_STORE__FREE_SPACE_FLOOR_BYTES": "1048576"})
    ends_at = time.monotonic() + 90
    while True:
        assert process.poll() is None, "the server ended"
        assert time.monotonic() < ends_at
        try:
            if urllib3.request("GET", url + "/healthz", retries=False, timeout=5).status == 200:
                return process
        except urllib3.exceptions.HTTPError:
            time.sleep(0.05)

def ask(method, path, role, content=None):
    headers = {"Authorization": f"Bearer {tokens[role]}"}
    return urllib3.request(method, url + path, headers=headers, body=content, retries=False, timeout=60)

def send(sequence):
    return ask("POST", "/v1/batches", access.Role.AGENT, body("n", sequence, 5000)).status

process = start()
assert [send(sequence) for sequence in range(20)] == [200] * 20
process.kill()
process.wait()
ballast = disk / "ballast"
with ballast.open("wb") as file:
    os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(disk).free)
assert shutil.disk_usage(disk).free == 0

process = start()
assert ask("GET", "/v1/answers/jobs", access.Role.OPERATOR).status == 200, "reads go on"
assert send(20) == 429, "there is no space"
assert process.poll() is None
ballast.unlink()
assert send(20) == 200, "writes resume"
assert send(19) == 200
process.terminate()
assert process.wait(60) == 0

from warehouse.store import open_store
store = open_store(data)
assert store.read("SELECT count(*) AS n FROM device_sample").to_pylist() == [{"n": 21 * 5000}]
"""


@pytest.mark.slow
def test_a_server_starts_on_a_full_disk_reads_and_goes_on_once_there_is_space(
    tmp_path: Path, repository: Path, free_port: int
) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root, to mount a small disk")
    script = tmp_path / "restart.py"
    script.write_text(RESTART)
    (tmp_path / "disk").mkdir()
    mount = 'mount -t tmpfs -o size=64m small "$1" && exec "$2" "$3" "$1" "$4" "$5"'
    words = (tmp_path / "disk", sys.executable, script, repository, free_port)
    command = ["unshare", "--mount", "sh", "-c", mount, "sh", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=170)
    if "permission denied" in done.stderr.lower() and "mount" in done.stderr:
        pytest.skip("needs the right to mount a small disk")
    assert done.returncode == 0, done.stderr
