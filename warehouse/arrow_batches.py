"""Batches as Arrow, for senders that have their rows in columns already. The same limits and checks as for JSON.

A body is a row of Arrow IPC streams, one a table, gzip'd as a whole or not. The schema of each stream carries the
table's name as ``table``; that of the first carries the batch's ``version``, ``agent``, ``boot_id``, ``sequence``,
``part`` and ``sent_at``, all as text. Buffers within a stream must not be compressed: their size is known only after
unpacking. Instants are timestamps, or seconds since the epoch.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from warehouse.arrow import COLUMN_TYPES
from warehouse.contract import wire
from warehouse.contract.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Mapping

ORIGIN = "batch"
GZIP_MAGIC = b"\x1f\x8b"
SECOND_IN_MICROSECONDS = 1_000_000
EARLIEST, LATEST = -62_135_596_800, 253_402_300_799
"""Seconds from the epoch to the first second of the year 1 and the last of 9999."""

_INSTANT = pa.timestamp("us")
LONGEST_NAME = 200
_SCHEMA, _ROWS = "schema", "record batch"
_HEADER, _COMPRESSION = 2, 3
"""Numbers of fields in the flat buffers of Arrow's messages (Arrow format, Message.fbs): ``Message.header``,
``RecordBatch.compression``."""


def encode_arrow(batch: wire.Batch, tables: Mapping[str, pa.Table]) -> bytes:
    """Give the body of a batch; the batch's own tables are not looked at."""
    heads = {key: str(getattr(batch, key)) for key in ("version", "agent", "boot_id", "sequence", "part", "sent_at")}
    sink = pa.BufferOutputStream()
    for name, rows in (tables or {"job": pa.table({})}).items():
        marked = rows.replace_schema_metadata({**heads, "table": name})
        with pa.ipc.new_stream(sink, marked.schema) as writer:
            writer.write_table(marked)
    return bytes(sink.getvalue())


def decode_arrow(body: bytes) -> tuple[wire.Batch, dict[str, pa.Table]]:
    """Read a body, treating it as hostile; gives the batch without its tables, and these with the store's types.

    Raises:
        BadInputError: too big, no Arrow, compressed within, a wrong version, an unknown table or column, a wrong type.

    """
    plain = wire.inflate(body, ORIGIN) if body.startswith(GZIP_MAGIC) else body
    source = pa.BufferReader(plain)
    heads: dict[str, str] = {}
    tables: dict[str, pa.Table] = {}
    try:
        while source.tell() < len(plain):
            rows = _stream(source)
            marks = {key.decode(): value.decode() for key, value in (rows.schema.metadata or {}).items()}
            heads = heads or marks
            name = marks.get("table", "")
            if name in tables or name not in COLUMN_TYPES:
                raise BadInputError(ORIGIN, f"table {name!r}"[:200], "unknown table, or one that comes twice")
            tables[name] = conform(name, rows)
    except (pa.ArrowException, ValueError, OSError, MemoryError, struct.error, IndexError) as cause:
        raise BadInputError(ORIGIN, None, f"not Arrow ({(str(cause).splitlines() or [''])[0]})") from cause
    return _batch(heads), tables


def _stream(source: pa.BufferReader) -> pa.Table:
    """Read one IPC stream, message by message, so that none is unpacked before it was looked at."""
    begin = source.tell()
    schema = None
    while (message := _next(source)) is not None:
        if message.type != (_SCHEMA if schema is None else _ROWS):
            # Arrow verifies what a header says it is; one that says nothing would be read unverified, out of bounds.
            raise BadInputError(ORIGIN, None, f"a message of type {message.type}; expected a schema, then rows")
        if schema is None:
            schema = pa.ipc.read_schema(message)
        elif _is_compressed(bytes(message.metadata)):
            raise BadInputError(ORIGIN, None, "buffers are compressed; compress the whole body with gzip instead")
    end = source.tell()
    if schema is None:
        raise BadInputError(ORIGIN, None, "an Arrow stream without a schema")
    source.seek(begin)
    rows = pa.ipc.open_stream(source).read_all()
    source.seek(end)
    if rows.num_rows > wire.MAX_ROWS:  # a table without columns has any number of them in a few bytes
        raise BadInputError(ORIGIN, None, f"{rows.num_rows} rows, at most {wire.MAX_ROWS} are taken: send parts")
    rows.validate(full=True)
    return rows


def _next(source: pa.BufferReader) -> pa.ipc.Message | None:
    try:
        return pa.ipc.read_message(source)
    except EOFError:
        return None


def _is_compressed(metadata: bytes) -> bool:
    """Look into a message's flat buffer, which Arrow has verified, whether its batch says how it is compressed."""
    root = _number("<I", metadata, 0)
    header = _field(metadata, root, _HEADER)
    if header is None:
        return False
    return _field(metadata, header + _number("<I", metadata, header), _COMPRESSION) is not None


def _field(buffer: bytes, table: int, number: int) -> int | None:
    layout = table - _number("<i", buffer, table)
    slot = 4 + 2 * number
    if _number("<H", buffer, layout) <= slot:
        return None
    offset = _number("<H", buffer, layout + slot)
    return table + offset if offset else None


def _number(kind: str, buffer: bytes, at: int) -> int:
    return int(struct.unpack_from(kind, buffer, at)[0])


def conform(name: str, rows: pa.Table) -> pa.Table:
    """Give rows with the store's columns and types; columns left out become absent values.

    Raises:
        BadInputError: an unknown column, a wrong type, an instant out of range, a required value is missing.

    """
    types = COLUMN_TYPES[name]
    for column in rows.column_names:
        if column not in types or rows.column_names.count(column) > 1:
            raise BadInputError(ORIGIN, f"{name}.{column}"[:200], "unknown column, or one that comes twice")
    columns = []
    for column, (kind, required) in types.items():
        values = rows[column] if column in rows.column_names else pa.nulls(rows.num_rows, kind)
        try:
            array = _instants(values) if kind == _INSTANT else _cast(values, kind)
        except (pa.ArrowException, ValueError) as cause:
            detail = f"expected values of type {kind} ({str(cause).splitlines()[0]})"
            raise BadInputError(ORIGIN, f"{name}.{column}", detail) from cause
        if required and array.null_count:
            raise BadInputError(ORIGIN, f"{name}.{column}", "a value is missing, and every row must have one")
        columns.append(array)
    return pa.table(columns, names=list(types))


def _cast(values: pa.ChunkedArray | pa.Array, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """Widen or narrow within the kind: a number never becomes a text, nor a text a number."""
    given = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    alike = (
        pa.types.is_null(given)
        or (_is_number(given) and _is_number(kind))
        or (_is_text(given) and _is_text(kind))
        or given == kind
    )
    if not alike:
        raise ValueError(f"has type {given}")
    return values.cast(kind, safe=not pa.types.is_floating(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _instants(values: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    if pa.types.is_null(values.type):
        return values.cast(_INSTANT)
    if pa.types.is_timestamp(values.type):
        whole = values.cast(pa.timestamp("us", values.type.tz), safe=False).cast(pa.int64())
    elif _is_number(values.type):
        seconds = values.cast(pa.float64())
        _require_within(seconds, EARLIEST, LATEST)
        whole = pc.round(pc.multiply(seconds, SECOND_IN_MICROSECONDS)).cast(pa.int64())
    else:
        raise ValueError(f"has type {values.type}")
    _require_within(whole, EARLIEST * SECOND_IN_MICROSECONDS, (LATEST + 1) * SECOND_IN_MICROSECONDS - 1)
    return whole.cast(_INSTANT)


def _require_within(values: pa.ChunkedArray | pa.Array, lowest: int, highest: int) -> None:
    inside = pc.and_(pc.greater_equal(values, lowest), pc.less_equal(values, highest))
    if pc.all(inside).as_py() not in (True, None):
        raise ValueError("an instant lies outside the years that can be kept")


def _batch(heads: Mapping[str, str]) -> wire.Batch:
    try:
        version, sequence, part = (int(heads[key]) for key in ("version", "sequence", "part"))
        batch = wire.Batch(heads["agent"], heads["boot_id"], sequence, float(heads["sent_at"]), {}, part)
    except (KeyError, ValueError) as cause:
        raise BadInputError(ORIGIN, "schema metadata", f"a batch's name is missing or wrong ({cause})") from cause
    if version != wire.VERSION:
        raise BadInputError(ORIGIN, "version", f"expected a batch of version {wire.VERSION}")
    if not (0 <= sequence < 2**63 and 0 <= part < 2**63):
        raise BadInputError(ORIGIN, "sequence, part", "expected whole numbers from 0 on")
    if not all(0 < len(name) <= LONGEST_NAME for name in (batch.agent, batch.boot_id)):
        raise BadInputError(ORIGIN, "agent, boot_id", f"expected texts of 1 to {LONGEST_NAME} characters")
    return batch
