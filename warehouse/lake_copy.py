"""A copy of the lake at another address, for engines of other machines. No backup: nothing reads it back.

Each round puts there what the local manifest names, then replaces the copy's manifest, then removes what no manifest
has named for ``lake.keep_replaced_seconds``. Nothing is renamed and nothing overwritten but the manifest: the name of a
file holds the digest of its content, so that a generation that was written twice (a store came back from a backup) is
two files. A crash between any two steps leaves the old manifest with all its files, and the next round goes on.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from warehouse import layout
from warehouse.contract.errors import StoreError
from warehouse.files import open_files
from warehouse.lake import replace_durably
from warehouse.settings import COPY_ADDRESS, COPY_ENDPOINT_URL, COPY_REGION, KEEP_REPLACED_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from warehouse.contract.settings import Settings
    from warehouse.files import Files

NOTE = "lake_copy.json"
OWNER = "owner.json"
_OURS = re.compile(r"[a-z0-9_]+/(date=[0-9-]{10}/)?gen=[0-9]+/part-[0-9a-f]{32}\.parquet")

LOG = logging.getLogger("trueload.lake_copy")


@dataclass(slots=True)
class Note:
    """What this side remembers of its copy, beside the database. Losing it costs time, never data.

    ``names`` are the digests of local files as (length, instant of change in ns, name), so that each is read once;
    ``unnamed_since`` tells since when a file of the copy is named by no manifest, in seconds since the epoch.
    """

    owner: str
    address: str = ""
    names: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    unnamed_since: dict[str, float] = field(default_factory=dict)


def copy_of(settings: Settings) -> Files | None:
    """Give where the copy lies; None: no copy is wanted.

    Raises:
        SettingsError, StoreError: the address cannot be used.

    """
    address = settings[COPY_ADDRESS]
    if not address:
        return None
    return open_files(address, endpoint_url=settings[COPY_ENDPOINT_URL], region=settings[COPY_REGION])


def follow(data: Path, settings: Settings, now: float) -> int:
    """Bring the copy up to the lake's manifest, if one is wanted; gives the number of files that were put there.

    Call it from the thread that seals: the files that the manifest names must stay meanwhile.

    Raises:
        StoreError: it could not be finished; the copy is whole as it was before, and the next round goes on.

    """
    files = copy_of(settings)
    if files is None:
        return 0
    try:
        return renew(data, files, settings[KEEP_REPLACED_SECONDS], now)
    except OSError as cause:
        raise StoreError(f"the lake's copy is as it was, and the next round goes on: {cause}") from cause


def renew(data: Path, files: Files, keep_replaced_seconds: float, now: float) -> int:
    """Bring a copy up to the lake's manifest; see ``follow``.

    Raises:
        StoreError: the address belongs to another data directory.
        OSError: a file could not be read or written.

    """
    try:
        content = json.loads((data / layout.FOLDER / layout.MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return 0
    note = _read_note(data, files.address)
    _claim(data, files, note)
    folders = [day["path"] for day in content["days"]] + list(content["snapshots"].values())
    parts = {folder: _name(data / layout.FOLDER / folder / layout.PART, folder, note) for folder in folders}
    note.names = {folder: note.names[folder] for folder in folders}
    there = {found.path: found.file_bytes for found in files.listed()}
    put = 0
    for folder, name in parts.items():
        put += _put(files, f"{folder}/{name}", data / layout.FOLDER / folder / layout.PART, there)
    manifest = json.dumps(content | {"parts": parts}, indent=1).encode()
    if _present(files) != manifest:
        files.replace(layout.MANIFEST, manifest)
    unnamed = sorted(set(there) - {f"{folder}/{name}" for folder, name in parts.items()})
    _remove(files, note, unnamed, keep_replaced_seconds, now)
    _write_note(data, note)
    return put


def _put(files: Files, path: str, source: Path, there: Mapping[str, int]) -> bool:
    """Have one file there, whole; says whether it had to be sent. A listing that is late costs one question."""
    wanted = source.stat().st_size
    if there.get(path) == wanted or files.size(path) == wanted:
        return False
    files.put(path, source)
    arrived = files.size(path)
    if arrived != wanted:
        raise OSError(f"{files.address}/{path}: has {arrived} bytes after it was written, and not {wanted}")
    return True


def _present(files: Files) -> bytes | None:
    try:
        return files.read(layout.MANIFEST)
    except FileNotFoundError:
        return None


def _remove(files: Files, note: Note, unnamed: Iterable[str], keep_seconds: float, now: float) -> None:
    """Remove files of ours that no manifest has named for long enough; what is not ours is left alone."""
    ours = [path for path in unnamed if _OURS.fullmatch(path)]
    note.unnamed_since = {path: note.unnamed_since.get(path, now) for path in ours}
    for path in ours:
        if now - note.unnamed_since[path] >= keep_seconds:
            files.delete(path)
            del note.unnamed_since[path]


def _claim(data: Path, files: Files, note: Note) -> None:
    """Make sure that no other data directory writes to this address: their manifests would undo each other."""
    _write_note(data, note)  # before: a crash after the claim must find the same name
    mine = json.dumps({"owner": note.owner}).encode()
    if files.create(OWNER, mine):
        return
    if files.read(OWNER) != mine:
        raise StoreError(
            f"{files.address}: holds the lake of another data directory; give each its own lake.copy_address, or, when "
            f"this one takes over (after a restore), delete {OWNER} there"
        )


def _name(file: Path, folder: str, note: Note) -> str:
    """Give the name of a file in the copy, and remember it."""
    state = file.stat()
    size, changed, name = note.names.get(folder, (-1, -1, ""))
    if (size, changed) != (state.st_size, state.st_mtime_ns):
        with file.open("rb") as content:
            name = f"part-{hashlib.file_digest(content, 'sha256').hexdigest()[:32]}.parquet"
        note.names[folder] = (state.st_size, state.st_mtime_ns, name)
    return name


def _read_note(data: Path, address: str) -> Note:
    try:
        known: dict[str, Any] = json.loads((data / NOTE).read_text(encoding="utf-8"))
        names = {folder: (int(size), int(at), str(name)) for folder, (size, at, name) in known["names"].items()}
        note = Note(str(known["owner"]), address, names)
        if known["address"] == address:
            note.unnamed_since = {path: float(at) for path, at in known["unnamed_since"].items()}
    except FileNotFoundError:
        return Note(uuid.uuid4().hex, address)
    except (ValueError, LookupError, TypeError, AttributeError) as cause:
        raise StoreError(f"{data / NOTE}: cannot be read; delete it, and {OWNER} at {address} ({cause})") from cause
    return note


def _write_note(data: Path, note: Note) -> None:
    content = {
        "owner": note.owner,
        "address": note.address,
        "names": note.names,
        "unnamed_since": note.unnamed_since,
    }
    replace_durably(data / NOTE, json.dumps(content))
