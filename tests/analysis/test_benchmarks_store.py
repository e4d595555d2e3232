"""The store's benchmarks measure what they say, on small data."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest

import trueload
from analysis.benchmark import BenchRequest
from analysis.benchmarks import import_jobs, ingest, size
from analysis.benchmarks._fleet import Fleet
from analysis.benchmarks._servers import _literals, _varint
from warehouse import batches
from warehouse.client import open_client
from warehouse.contract.settings import Settings


def request(data_root: Path) -> BenchRequest:
    settings = Settings()
    return BenchRequest(
        data_root,
        full=False,
        open_client=lambda data, create: open_client(data, trueload.answers(), settings, create=create),
        settings=settings,
    )


def test_import_keeps_every_job_once_with_its_gpu_seconds(tmp_path: Path) -> None:
    folder = tmp_path / "philly_jobs"
    folder.mkdir()
    lines = ["timestamp,duration,num_gpus,gpu_time,cluster", "2017-10-09 07:01:55,3600.0,2,7200.0,a"]
    lines.append("2017-10-09 07:01:55,1800.0,1,1800.0,b")
    (folder / "philly.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    result = import_jobs.run(request(tmp_path))
    held = {bar.name: bar.holds for bar in result.bars if "per second" not in bar.name}
    assert all(held.values()), held
    assert result.figures["jobs"] == 2 * import_jobs.SMALL_COPIES
    assert result.figures["gpu_hours"] == pytest.approx(2.5 * import_jobs.SMALL_COPIES)


def test_import_says_that_its_source_is_not_there(tmp_path: Path) -> None:
    result = import_jobs.run(request(tmp_path))
    assert (result.bars, result.figures) == ((), {})
    assert any("philly_jobs" in line for line in result.not_shown)


def test_size_counts_every_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size, "SMALL", Fleet(gpus=2, seconds=7200.0))
    figures = size.run(request(tmp_path)).figures
    assert figures["samples"] == 1440


def test_a_batch_of_the_benchmark_is_wholly_possible() -> None:
    checked = batches.check(ingest._batch(1, 80))
    assert (checked.rows, dict(checked.rejected)) == (80, {})
    assert len(ingest._batch(1, 80).tables["device_sample"].columns) == 28


def test_a_block_of_literals_holds_its_bytes() -> None:
    plain = bytes(range(256)) * 300
    block = _literals(plain)
    head = _varint(len(plain))
    assert block.startswith(head)
    found, at = b"", len(head)
    while at < len(block):
        (length,) = struct.unpack("<H", block[at + 1 : at + 3])
        assert block[at] == 61 << 2
        found, at = found + block[at + 3 : at + 4 + length], at + 4 + length
    assert found == plain


@pytest.mark.parametrize(("value", "encoded"), [(0, b"\x00"), (1, b"\x01"), (300, b"\xac\x02")])
def test_whole_numbers_are_written_as_protobuf_writes_them(value: int, encoded: bytes) -> None:
    assert _varint(value) == encoded
