"""Bodies that several routes read."""

from __future__ import annotations

import orjson

from warehouse.client import RecordId
from warehouse.contract import wire
from warehouse.contract.errors import BadInputError


def decode(body: bytes, origin: str) -> wire.Batch:
    """Read a batch of gzip'd columnar JSON, treating it as hostile."""
    return wire.decode(body, orjson.loads, origin)


def records(batch: wire.Batch) -> list[RecordId]:
    """Give the records that a batch of imported rows came from.

    Raises:
        BadInputError: the table of records is wrong.

    """
    table = batch.tables.get(wire.LEDGER_ONLY, wire.Table(0, {}))
    keys, hashes = table.columns.get("record_key", []), table.columns.get("content_hash", [])
    if not isinstance(keys, list) or not isinstance(hashes, list) or len(keys) != len(hashes):
        raise BadInputError(batch.agent, wire.LEDGER_ONLY, "expected as many keys as hashes")
    if not all(isinstance(key, str) for key in keys) or not all(isinstance(value, int) for value in hashes):
        raise BadInputError(batch.agent, wire.LEDGER_ONLY, "keys are texts and hashes whole numbers")
    return [RecordId(key, value) for key, value in zip(keys, hashes, strict=True)]
