"""The benchmark of ingest: what it sends is possible, and its peer is written to in the peer's own format."""

from __future__ import annotations

import struct

import pytest

from analysis.benchmarks import ingest
from analysis.benchmarks._servers import literals, varint
from warehouse import batches


def test_a_batch_of_the_benchmark_is_wholly_possible() -> None:
    checked = batches.check(ingest.batch_of(1, 80))
    assert (checked.rows, dict(checked.rejected)) == (80, {})
    assert len(ingest.batch_of(1, 80).tables["device_sample"].columns) == 28


def test_a_block_of_literals_holds_its_bytes() -> None:
    plain = bytes(range(256)) * 300
    block = literals(plain)
    head = varint(len(plain))
    assert block.startswith(head)
    found, at = b"", len(head)
    while at < len(block):
        (length,) = struct.unpack("<H", block[at + 1 : at + 3])
        assert block[at] == 61 << 2
        found, at = found + block[at + 3 : at + 4 + length], at + 4 + length
    assert found == plain


@pytest.mark.parametrize(("value", "encoded"), [(0, b"\x00"), (1, b"\x01"), (300, b"\xac\x02")])
def test_whole_numbers_are_written_as_protobuf_writes_them(value: int, encoded: bytes) -> None:
    assert varint(value) == encoded
