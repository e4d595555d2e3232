"""What people changed of the families that were found: split, merged, renamed.

A file of JSON lines that is only ever added to, so that it is told who changed what, when and why; an undo is a line.
An edit speaks of families by their ids, which are hashes of what jobs have in common: it holds for later weeks, too.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from analysis.sweep import parameters
from warehouse.contract.errors import BadUseError, SettingsError
from warehouse.contract.settings import Setting
from warehouse.contract.units import iso

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from analysis.evidence import AttemptEvidence
    from analysis.names import Vocabulary
    from warehouse.contract.settings import Settings

EDITS_FILE = Setting(
    "families",
    "edits_file",
    "",
    "path",
    "Where `trueload families split`, `merge` and `rename` write what people changed, one JSON line each, and where "
    "every answer reads it; empty: families are as they were found, and nothing can be changed.",
)
SPLIT, MERGE, RENAME, UNDO = "split", "merge", "rename", "undo"
SPLIT_COLUMNS: Final = (
    *("partition", "qos", "account", "gpu_model", "gpu_count", "node_count", "image", "command", "work_dir"),
    *("array_job_id", "name"),
)
"""What a family can be split by, beside the parameters of its command and name."""
_LONGEST_NAME: Final = 200


@dataclass(frozen=True, slots=True)
class Edit:
    """One change: ``value`` is what a family is split by, the id of the other family, its new name, or a number."""

    do: str
    family_id: str
    value: str
    who: str
    at: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Edits:
    """The changes in force: by family id the column that splits it, the family it is part of, its name."""

    splits: Mapping[str, Edit] = field(default_factory=dict)
    merges: Mapping[str, Edit] = field(default_factory=dict)
    names: Mapping[str, Edit] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Say whether anything is changed."""
        return bool(self.splits or self.merges or self.names)

    def placed(self, family_id: str, job: AttemptEvidence, known: Vocabulary) -> tuple[str, tuple[str, ...]]:
        """Give the family that a job belongs to after all changes, and what was done, in words."""
        done: list[str] = []
        seen = {family_id}
        while True:
            split, merge = self.splits.get(family_id), self.merges.get(family_id)
            if split is not None:
                value = _value(job, split.value, known)
                family_id = part_id(family_id, split.value, value)
                done.append(f"split by {split.value} = {value or 'none'} ({split.who})")
            elif merge is not None:
                family_id = merge.value
                done.append(f"merged ({merge.who})")
            else:
                return family_id, tuple(done)
            if family_id in seen:
                return family_id, tuple(done)
            seen.add(family_id)


def part_id(family_id: str, column: str, value: str) -> str:
    """Give the stable id of a part of a family that was split."""
    text = json.dumps([family_id, column, value])
    return f"f-{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"


def _value(job: AttemptEvidence, column: str, known: Vocabulary) -> str:
    found = getattr(job, column) if column in SPLIT_COLUMNS else parameters(job, known).get(column)
    return "" if found is None else f"{found:g}" if isinstance(found, float) else str(found)


def read_edits(settings: Settings) -> Edits:
    """Read the changes in force.

    Raises:
        SettingsError: the file cannot be read, or a line of it says something that is not understood.

    """
    return in_force(history(settings[EDITS_FILE]))


def in_force(edits: Sequence[Edit]) -> Edits:
    """Give what is left of all changes; a later one takes the place of an earlier one on the same family."""
    undone = {int(edit.value) for edit in edits if edit.do == UNDO}
    by_kind: dict[str, dict[str, Edit]] = defaultdict(dict)
    for number, edit in enumerate(edits, start=1):
        if edit.do != UNDO and number not in undone:
            by_kind[edit.do].pop(edit.family_id, None)
            by_kind[edit.do][edit.family_id] = edit
    return Edits(by_kind[SPLIT], by_kind[MERGE], by_kind[RENAME])


def history(path: str) -> list[Edit]:
    """Give every change ever made, in order; a file that is not there yet has none.

    Raises:
        SettingsError: the file cannot be read, or a line of it says something that is not understood.

    """
    if not path or not Path(path).exists():
        return []
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as cause:
        raise SettingsError(f"{path}: cannot be read ({cause}); setting {EDITS_FILE.name}") from cause
    return [_edit(path, number, line) for number, line in enumerate(lines, start=1)]


def _edit(path: str, number: int, line: str) -> Edit:
    try:
        edit = Edit(**json.loads(line))
    except (ValueError, TypeError) as cause:
        raise SettingsError(f"{path}: line {number} is no change of a family ({cause})") from cause
    is_text = all(isinstance(value, str) for value in asdict(edit).values())
    if not is_text or edit.do not in {SPLIT, MERGE, RENAME, UNDO} or (edit.do == UNDO and not edit.value.isdecimal()):
        raise SettingsError(f"{path}: line {number} is no change of a family: {line[:80]!r}")
    return edit


def add_edit(settings: Settings, do: str, family_id: str, value: str, why: str = "") -> Edit:
    """Check a change against those in force, and write it down.

    Raises:
        BadUseError: no file is set, or the change makes no sense.
        SettingsError: the file cannot be read or written.

    """
    path = settings[EDITS_FILE]
    if not path:
        raise BadUseError(f"no file for changes of families: set {EDITS_FILE.name}, on the server too")
    past = history(path)
    edit = Edit(do, family_id, value.strip(), getpass.getuser(), iso(time.time()) or "", why)
    _check(edit, past)
    try:
        with Path(path).open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(asdict(edit)) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as cause:
        raise SettingsError(f"{path}: cannot be written ({cause.strerror}); setting {EDITS_FILE.name}") from cause
    return edit


def _check(edit: Edit, past: Sequence[Edit]) -> None:
    if edit.do == UNDO:
        if not edit.value.isdecimal() or not 1 <= int(edit.value) <= len(past):
            raise BadUseError(f"undo: there is no change {edit.value}; `trueload families edits` numbers them")
        return
    if not edit.value or len(edit.value) > _LONGEST_NAME:
        raise BadUseError(f"{edit.do}: give 1 to {_LONGEST_NAME} characters")
    if edit.do == MERGE and edit.value in {edit.family_id, *_into(edit.value, in_force(past), edit.family_id)}:
        raise BadUseError(f"merge: {edit.value} is {edit.family_id}, or is itself part of it")


def _into(family_id: str, edits: Edits, target: str) -> Iterator[str]:
    """Give the family itself if following the merges leads from it to the target."""
    at, seen = family_id, {family_id}
    while at in edits.merges:
        at = edits.merges[at].value
        if at == target:
            yield family_id
        if at in seen:
            return
        seen.add(at)


def fingerprint(settings: Settings) -> str:
    """Give a text that changes with the file of changes."""
    path = settings[EDITS_FILE]
    try:
        found = Path(path).stat() if path else None
    except OSError:
        return ""
    return "" if found is None else f"{found.st_mtime_ns}:{found.st_size}"
