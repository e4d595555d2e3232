"""Following the pods of a cluster: listed once, watched from then on, listed again when the watch lost its place.

What is open is remembered in a file beside the batches, so that a collector that was away still ends what ended
meanwhile: at the moment at which it was last seen, for nobody knows more.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from collector.files import replace_file
from collector.jobs._kube_api import GoneError, KubeApi, Object, object_path
from collector.jobs._kube_pods import DELETED, Owner, Reading, owner_of, records_of
from warehouse.contract.model import Allocation, Attempt, AttemptState, Record

LOG: Final = logging.getLogger("trueload.jobs")
PODS: Final = "/api/v1/pods"
MEMORY_FILE: Final = "open_pods.json"
MOST_OWNERS: Final = 10_000
"""Owners that are remembered; looked up again when there are more."""

MOST_AT_ONCE: Final = 1000
"""Records of one batch, when all pods are told at once."""

REMEMBER_SECONDS: Final = 60.0
"""How often it is written down that what is open is still seen; servers send a bookmark about once a minute."""

Tell = Callable[[list[Record]], None]


@dataclass(slots=True)
class _Known:
    """A pod as it was told last."""

    records: tuple[Record, ...]
    is_open: bool


@dataclass(slots=True)
class PodFollower:
    """Follows the pods of one cluster that ask for GPUs. Used from one thread."""

    cluster: str
    api: KubeApi
    reading: Reading
    folder: Path
    watch_seconds: float = 300.0
    clock: Callable[[], float] = time.time
    _known: dict[str, _Known] = field(default_factory=dict)
    _owners: dict[tuple[str, str, str, str], Object | None] = field(default_factory=dict)
    _was_restored: bool = False
    _seen_at: float = 0.0
    _written_at: float = 0.0
    _is_forgetful: bool = False

    def follow(self, tell: Tell, stop: threading.Event) -> None:
        """See ``job_source.Follower``."""
        version = self._list(tell)
        while not stop.is_set():
            try:
                for kind, found in self.api.watch(PODS, version, self.watch_seconds):
                    version = str(_metadata(found).get("resourceVersion") or version)
                    if kind in ("ADDED", "MODIFIED"):
                        self._see(found, tell)
                    elif kind == "DELETED":
                        self._end(found, tell)
                    self._seen_at = self.clock()
                    if self._seen_at - self._written_at > REMEMBER_SECONDS:
                        self._remember()
                    if stop.is_set():
                        return
            except GoneError as error:
                LOG.info("%s; all pods are listed again", error)
                version = self._list(tell)

    def look(self, tell: Tell) -> None:
        """See ``job_source.Follower``."""
        self._list(tell)

    def _list(self, tell: Tell) -> str:
        self._restore()
        self._owners.clear()
        try:
            listed = self.api.list_all(PODS)
        except GoneError:
            listed = self.api.list_all(PODS)  # it changed between two pages; twice in a row it is an outage
        there = {str(_metadata(pod).get("uid")) for pod in listed.items}
        news: list[Record] = []
        for pod in listed.items:
            self._see(pod, news.extend)
            if len(news) >= MOST_AT_ONCE:
                tell(news)
                news = []
        tell(news)
        for uid in [uid for uid in self._known if uid not in there]:
            gone = self._known.pop(uid)
            if gone.is_open:
                tell(_ended(gone.records, self._seen_at))
        self._seen_at = self.clock()
        self._remember()
        return listed.version

    def _see(self, pod: Object, tell: Tell) -> None:
        uid = str(_metadata(pod).get("uid"))
        owner = self._owner(pod)
        self._take(uid, records_of(pod, owner, self.reading), tell)

    def _end(self, pod: Object, tell: Tell) -> None:
        uid = str(_metadata(pod).get("uid"))
        self._take(uid, records_of(pod, self._owner(pod), self.reading, deleted_at=self.clock()), tell)
        if self._known.pop(uid, None) is not None:
            self._remember()

    def _take(self, uid: str, records: list[Record], tell: Tell) -> None:
        before = self._known.get(uid)
        if not records or (before is not None and before.records == tuple(records)):
            return
        is_open = any(isinstance(one, Attempt) and one.end_at is None for one in records)
        self._known[uid] = _Known(tuple(records), is_open)
        tell(records)
        if before is None or before.is_open != is_open:
            self._remember()

    def _owner(self, pod: Object) -> Owner:
        return owner_of(pod, self._look)

    def _look(self, api_version: str, kind: str, namespace: str, name: str) -> Object | None:
        key = (api_version, kind, namespace, name)
        if key not in self._owners:
            if len(self._owners) >= MOST_OWNERS:
                self._owners.clear()
            self._owners[key] = self.api.get(object_path(*key))
        return self._owners[key]

    # --------------------------------------------------------------------------------------------------- memory

    def _remember(self) -> None:
        """Write down what is open, and when it was seen to be."""
        self._written_at = self._seen_at
        found = {uid: _stored(known.records) for uid, known in self._known.items() if known.is_open}
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self.folder / MEMORY_FILE, json.dumps({"seen_at": self._seen_at, "open": found}).encode())
        except OSError as error:
            if not self._is_forgetful:
                LOG.warning("%s: %s; what is open is not remembered until there is room", self.folder, error.strerror)
            self._is_forgetful = True
            return
        self._is_forgetful = False

    def _restore(self) -> None:
        if self._was_restored:
            return
        self._was_restored = True
        path = self.folder / MEMORY_FILE
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            self._seen_at = float(content["seen_at"])
            for uid, stored in content["open"].items():
                self._known.setdefault(uid, _Known(_read(stored), is_open=True))
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError) as error:
            LOG.warning("%s: cannot be read (%s); pods that ended meanwhile stay open", path, error)


def _ended(records: tuple[Record, ...], at: float) -> list[Record]:
    """End what went away unseen."""
    found: list[Record] = []
    for one in records:
        if isinstance(one, Attempt):
            end_at = None if one.start_at is None else max(at, one.start_at)
            found.append(replace(one, state=AttemptState.UNKNOWN, raw_state=DELETED, end_at=end_at))
        elif isinstance(one, Allocation):
            found.append(replace(one, end_at=max(at, one.start_at)))
    return found


def _stored(records: tuple[Record, ...]) -> list[dict[str, Any]]:
    from dataclasses import asdict

    return [{"table": one.TABLE, **asdict(one)} for one in records if isinstance(one, (Attempt, Allocation))]


def _read(stored: list[dict[str, Any]]) -> tuple[Record, ...]:
    kinds = {Attempt.TABLE: Attempt, Allocation.TABLE: Allocation}
    found: list[Record] = []
    for one in stored:
        words = {key: value for key, value in one.items() if key != "table"}
        if one["table"] == Attempt.TABLE:
            words["state"] = AttemptState(words["state"])
        found.append(kinds[one["table"]](**words))
    return tuple(found)


def _metadata(found: Object) -> Mapping[str, Any]:
    told = found.get("metadata")
    return told if isinstance(told, Mapping) else {}
