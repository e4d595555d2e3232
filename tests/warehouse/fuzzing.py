"""Hostile bytes for everything that reads what others wrote: batches, what agents say beside them, every importer.

``test_fuzz.py`` takes some thousands of cases a target. By hand, from the root of the repository::

    python -m tests.warehouse.fuzzing --cases 1000000
    python -m tests.warehouse.fuzzing --atheris json     (in an environment that has atheris: guided by coverage)

A case is a good document with a few mutations; the seed and number of a case give it again. What must hold: the reader
gives what it read or refuses with ``BadInputError``; nothing else is raised; what a decoder lets through can be
written, whole; an importer's counts add up, and what it loads a second time changes nothing.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any, Final

import orjson

from tests.warehouse.conftest import MemoryClient
from warehouse import batches
from warehouse.arrow import to_arrow
from warehouse.arrow_batches import decode_arrow, encode_arrow
from warehouse.contract import exchange, model, wire
from warehouse.contract.errors import BadInputError
from warehouse.contract.metrics import BY_NAME
from warehouse.importer import ImportOptions
from warehouse.loading import importers, load_files
from warehouse.web import as_object

SEED: Final = 5
CHANGES: Final = (1, 1, 1, 2, 4)
EVERY: Final = 400
"""How many accepted batches are written together."""

MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a million small files, none of which has to last
OPTIONS: Final = ImportOptions(cluster="c", zone="Europe/Berlin", node="n")
WORDS: Final = (
    *(b"null", b"true", b"-1", b"0", b"1e999", b"-0.0", b"NaN", b"1e-400", b"9223372036854775807"),
    *(b"9223372036854775808", b"18446744073709551616", b"253402300800", b"-62135596801", b'""', b"[]", b"{}"),
    *(b'"\\ud800"', b'"\\u0000"', b"\\", b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"\n", b"\r\n", b",", b"|", b"\x1f"),
    *(b'"', b"'", b" ", b"\xef\xbb\xbf", b"=", b"2016-12-31T23:59:60", b"Unknown", b"None", b"gres/gpu="),
    *(b"gpu:a100:4", b"4294967296K", b"1-2:3:4", b"%", b"#"),
)
"""What readers stumble over: ends of ranges, halves of characters, separators, and words of the formats."""

VALUES: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63), 10**40),
    *(0.5, -0.0, 1e-320, 1e308, 253402300800.0, -62135596801.0, float("nan"), float("inf")),
    *("", "x", "\0", "\ud800", "\u202e", "🦆" * 70, "x" * 5000, "1e5", "NaN", "2026-11-30T00:00:00Z"),
    *([], {}, [None], [1, "x"], [[1]], {"x": 1}, [True, 0.5], [0.5, None]),
)
"""Values of every kind that JSON has, at the ends of what fits into columns."""


@dataclass(frozen=True, slots=True)
class Target:
    """One reader: documents it takes, and what feeds it. ``read`` gives a batch that was accepted, or None."""

    documents: tuple[bytes, ...]
    read: Callable[[bytes], batches.Checked | None]


class BrokenError(AssertionError):
    """Something that must hold does not; the message names target, seed and number of the case."""


def mutate(document: bytes, chance: random.Random) -> bytes:
    """Give a document with one to four changes; half of the JSON documents stay JSON, with values of other kinds."""
    if document.startswith(b"{") and chance.random() < 0.5:
        try:
            parsed = json.loads(document)
        except ValueError:
            parsed = None  # several documents, one a line
        if parsed is not None:
            for _ in range(chance.choice(CHANGES)):
                _replace_one(parsed, chance)
            return json.dumps(parsed, ensure_ascii=chance.random() < 0.5).encode("utf-8", "surrogatepass")
    return _mutate_bytes(document, chance)


def _replace_one(document: Any, chance: random.Random) -> None:
    """Put another value, or none, in the place of one somewhere in a document."""
    holder = document
    while True:
        places = list(range(len(holder))) if isinstance(holder, list) else list(holder)
        if not places:
            return
        place = chance.choice(places)
        if not isinstance(holder[place], (dict, list)) or chance.random() < 0.3:
            break
        holder = holder[place]
    kind = chance.randrange(4)
    if kind == 0:
        del holder[place]
    elif kind == 1 and isinstance(holder, dict):
        holder[chance.choice(("x", "", "\ud800", str(place).upper()))] = holder.pop(place)
    elif kind == 2 and isinstance(holder, list):
        holder.insert(place, deepcopy(holder[place]))
    else:
        holder[place] = deepcopy(chance.choice(VALUES))


def _mutate_bytes(document: bytes, chance: random.Random) -> bytes:
    """Change bytes; have pieces go, come twice or elsewhere; put words in."""
    content = bytearray(document)
    for _ in range(chance.choice(CHANGES)):
        at, kind = chance.randrange(len(content) + 1), chance.randrange(7)
        length = min(chance.choice((1, 2, 4, 16, 64)), len(content) - at)
        if kind == 0 and at < len(content):
            content[at] = chance.randrange(256)
        elif kind == 1:
            del content[at : at + length]
        elif kind == 2:
            content[at:at] = content[at : at + length] * chance.choice((1, 2, 50))
        elif kind == 3:
            content[at:at] = chance.choice(WORDS)
        elif kind == 4:
            content[at : at + length] = chance.choice(WORDS)
        elif kind == 5:
            other = chance.randrange(len(content) + 1)
            content[at : at + length] = content[other : other + length]
        else:
            del content[at if chance.random() < 0.2 else len(content) :]
    return bytes(content)


# ------------------------------------------------------------------------------------------------ what agents send


def _batch() -> wire.Batch:
    columns: dict[str, wire.Column] = {
        "cluster": "c",
        "node": "n",
        "device_uuid": ["GPU-1", "GPU-2"],
        "cadence_seconds": 10.0,
        "source": "nvml",
        "sampled_at": [1.5, 11.5],
        "driver_util_ratio": [0.25, 7.0],
        "power_watts": 100,
        "attempt_key": None,
    }
    records: list[model.Record] = [
        model.Node("c", "n", 1.0),
        model.Job("c/1#0", "c", "1", "s", name="train", user="alice"),
    ]
    tables = {"device_sample": wire.Table(2, columns), **wire.from_records(records)}
    return wire.Batch("n", "boot", 1, 1.0, tables)


def _json(content: bytes) -> batches.Checked:
    packed = gzip.compress(content, compresslevel=0, mtime=0)
    return batches.check(wire.decode(packed, orjson.loads, "batch"))


def _packed(content: bytes) -> batches.Checked:
    return batches.check(wire.decode(content, orjson.loads, "batch"))


def _arrow(content: bytes) -> batches.Checked:
    return batches.check_arrow(*decode_arrow(content))


def _held(content: bytes) -> None:
    exchange.read_holdings(as_object(content, "held"))


def _detail(content: bytes) -> None:
    exchange.read_detail(as_object(content, "detail"), BY_NAME)


def _senders() -> dict[str, Target]:
    batch = _batch()
    packed = wire.encode(batch)
    arrow = encode_arrow(batch, {name: to_arrow(name, table) for name, table in batch.tables.items()})
    held = {"agent": "n", "streams": [{"boot_id": "b", "acknowledged": 9, "held": [[1, 3, 0], [5, 9, 0]]}]}
    series = [{"device_uuid": "GPU-1", "source": "nvml", "at": [1.0, 2.0], "columns": {"power_watts": [1.0, None]}}]
    detail = {"agent": "n", "ask_id": "x", "series": series}
    return {
        "json": Target((gzip.decompress(packed),), _json),
        "gzip": Target((packed,), _packed),
        "arrow": Target((arrow,), _arrow),
        "held": Target((json.dumps(held).encode(),), _held),
        "detail": Target((json.dumps(detail).encode(),), _detail),
    }


# ------------------------------------------------------------------------------------------------- foreign files


def _importing(name: str, folder: Path) -> Callable[[bytes], None]:
    importer, path = importers()[name], folder / name

    def read(content: bytes) -> None:
        path.write_bytes(content)
        client: Any = MemoryClient()
        first = load_files(client, importer, [path], OPTIONS, chunk_records=3)
        told = first.document()
        json.dumps(told)
        refused = sum(tally.count for tally in first.rejected.values())
        assert first.read == first.kept + first.unchanged + refused, told
        assert len(client.ledger) <= first.kept, told
        rows = {table: dict(kept) for table, kept in client.rows.items()}
        again = load_files(client, importer, [path], OPTIONS, chunk_records=3)
        assert (again.kept, again.read) == (0, first.read), (told, again.document())
        assert client.rows == rows, "a second time changed something"

    return read


def targets(folder: Path) -> dict[str, Target]:
    """Give every reader by name; importers read from a file in ``folder``."""
    found = _senders()
    for name, importer in importers().items():
        found[name] = Target((importer.example.encode(),), _importing(name, folder))
    return found


# --------------------------------------------------------------------------------------------------------- running


@dataclass(slots=True)
class Tally:
    """What became of the cases of one target."""

    cases: int = 0
    accepted: int = 0


def fuzz(
    folder: Path,
    cases: int,
    seconds: float,
    write: Callable[[list[batches.Checked]], None],
    seed: int = SEED,
) -> dict[str, Tally]:
    """Feed all readers in turn until there were so many cases, or the time is over; gives what became of them.

    Raises:
        BrokenError: a reader raised something else than its refusal, or what must hold does not.

    """
    every, ends_at = targets(folder), time.monotonic() + seconds
    tallies = {name: Tally() for name in every}
    accepted: list[batches.Checked] = []
    for number in range(cases // len(every)):
        for name, target in every.items():
            chance = random.Random(f"{seed} {name} {number}")
            content = mutate(chance.choice(target.documents), chance)
            batch = _case(name, target, content, f"{name}, seed {seed}, case {number}", tallies[name])
            if batch is not None and batch.rows:
                accepted.append(batch)
        if len(accepted) >= EVERY or time.monotonic() > ends_at:
            write(accepted)
            accepted = []
        if time.monotonic() > ends_at:
            break
    write(accepted)
    return tallies


def _case(name: str, target: Target, content: bytes, where: str, tally: Tally) -> batches.Checked | None:
    tally.cases += 1
    try:
        batch = target.read(content)
    except BadInputError:
        return None
    except BaseException as broken:
        raise BrokenError(f"{where}: {type(broken).__name__}: {broken}; content {content[:2000]!r}") from broken
    tally.accepted += 1
    return batch


def writer(folder: Path) -> tuple[Callable[[list[batches.Checked]], None], Callable[[], None]]:
    """Give what writes accepted batches into a real store and counts them, and what closes it.

    What a decoder lets through must go in, for it is written together with what others sent.
    """
    from warehouse.store import open_store

    store = open_store(folder, create=True)
    numbers = iter(range(10**9))

    def samples() -> int:
        return int(store.read("SELECT count(*) AS n FROM device_sample").to_pylist()[0]["n"])

    def write(accepted: list[batches.Checked]) -> None:
        renamed = [
            batches.Checked("fuzz", "boot", next(numbers), 0, batch.pieces, batch.rejected) for batch in accepted
        ]
        before = samples()
        results = batches.commit(store, renamed)
        assert [result.rows for result in results] == [batch.rows for batch in renamed]
        new = sum(batch.tables["device_sample"].num_rows for batch in renamed if "device_sample" in batch.tables)
        assert samples() == before + new, "a partial write"

    return write, store.close


def main() -> None:
    """Fuzz by hand."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--cases", type=int, default=1_000_000)
    options.add_argument("--seconds", type=float, default=1e9)
    options.add_argument("--seed", type=int, default=SEED)
    options.add_argument("--atheris", metavar="TARGET", help="one target, guided by coverage; needs atheris")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        folder = Path(name)
        if chosen.atheris:
            _guided(targets(folder)[chosen.atheris], chosen.cases)
        write, close = writer(folder / "data")
        tallies = fuzz(folder, chosen.cases, chosen.seconds, write, chosen.seed)
        close()
    total = Counter({name: tally.cases for name, tally in tallies.items()}).total()
    for target, tally in tallies.items():
        print(f"{target}: {tally.cases} cases, {tally.accepted} accepted")  # noqa: T201 - a program of its own
    print(f"{total} cases, nothing broke")  # noqa: T201


def _guided(target: Target, cases: int) -> None:
    atheris = import_module("atheris")

    def one(content: bytes) -> None:
        try:
            target.read(content)
        except BadInputError:
            return

    corpus = Path(tempfile.mkdtemp())
    for number, document in enumerate(target.documents):
        (corpus / str(number)).write_bytes(document)
    for name, module in list(sys.modules.items()):
        if name.startswith("warehouse."):
            for function in vars(module).values():
                if isinstance(function, FunctionType) and function.__module__ == name:
                    atheris.instrument_func(function)
    atheris.Setup([sys.argv[0], f"-runs={cases}", str(corpus)], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
