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
from collector.jobs._kube_api import GoneError, KubeApi, Object, RefusedByServerError, object_path
from collector.jobs._kube_facts import Book, Key
from collector.jobs._kube_held import claims_of, completed
from collector.jobs._kube_pods import DELETED, Owner, Reading, group_of, owner_of, records_of, waiting_job
from collector.jobs._kube_reflect import Kind, Reflector
from warehouse.contract.errors import UnreachableError
from warehouse.contract.model import Allocation, Attempt, AttemptState, Event, Job, Record

LOG: Final = logging.getLogger("trueload.jobs")
PODS: Final = "/api/v1/pods"
MEMORY_FILE: Final = "open_pods.json"
MOST_OWNERS: Final = 10_000
"""Owners that are remembered; looked up again when there are more."""

MOST_AT_ONCE: Final = 1000
"""Records of one batch, when all pods are told at once."""

REMEMBER_SECONDS: Final = 60.0
"""How often it is written down that what is open is still seen; servers send a bookmark about once a minute."""

CLOCK_SLACK_SECONDS: Final = 5.0
"""By less than this a clock may differ from the server's: HTTP tells whole seconds, and answers take time."""

NOT_READY, READY = "node_not_ready", "node_ready"
Tell = Callable[[list[Record]], None]


@dataclass(slots=True)
class _Known:
    """A pod as it was told last, what it tells by itself, and by what others speak of it."""

    records: tuple[Record, ...]
    own: tuple[Record, ...] = ()
    owner_uid: str = ""
    node: str | None = None
    group: str | None = None
    claims: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        """Say whether it was told and not yet told to have ended."""
        return any(isinstance(one, Attempt) and one.end_at is None for one in self.records)

    def is_meant(self, changed: set[Key]) -> bool:
        """Say whether something beside the pod changed that is told with it."""
        keys = {("owner", self.owner_uid), ("group", self.group or ""), ("node", self.node or "")}
        keys.update(("claim", name) for name in self.claims)
        return not changed.isdisjoint(keys) or (bool(self.claims) and ("slices", "") in changed)


@dataclass(slots=True)
class PodFollower:
    """Follows the pods of one cluster that ask for GPUs. Used from one thread."""

    cluster: str
    api: KubeApi
    reading: Reading
    folder: Path
    watch_seconds: float = 300.0
    clock: Callable[[], float] = time.time
    kinds: tuple[Kind, ...] = ()
    """What is listed and watched beside pods."""

    book: Book = field(default_factory=Book)
    reflectors: tuple[Reflector, ...] = ()
    _jobs: dict[str, Job] = field(default_factory=dict)
    """Work that waits in a queue and has no pods yet, as it was told."""

    _version: str = ""
    _nodes: dict[str, bool] = field(default_factory=dict)
    _known: dict[str, _Known] = field(default_factory=dict)
    _owners: dict[tuple[str, str, str, str], Object | None] = field(default_factory=dict)
    _was_restored: bool = False
    _seen_at: float = 0.0
    _written_at: float = 0.0
    _is_forgetful: bool = False

    def follow(self, tell: Tell, stop: threading.Event) -> None:
        """See ``job_source.Follower``. A watch that breaks off goes on where it was, once; then it is an outage."""
        self._begin_reflecting(stop)
        self._version = self._list(tell)
        broke_at = ""
        while not stop.is_set():
            try:
                self._watch(tell, stop)
            except GoneError as error:
                LOG.info("%s; all pods are listed again", error)
                self._version = self._list(tell)
            except RefusedByServerError:
                raise
            except UnreachableError:
                if broke_at == self._version:
                    raise
                broke_at = self._version

    def _watch(self, tell: Tell, stop: threading.Event) -> None:
        for kind, found in self.api.watch(PODS, self._version, self.watch_seconds):
            self._version = str(_metadata(found).get("resourceVersion") or self._version)
            if kind in ("ADDED", "MODIFIED"):
                self._take(found, None, tell)
            elif kind == "DELETED":
                self._end(found, tell)
            self._hear(tell)
            self._seen_at = self.now()
            if self._seen_at - self._written_at > REMEMBER_SECONDS:
                self._remember()
            if stop.is_set():
                return

    def look(self, tell: Tell) -> None:
        """See ``job_source.Follower``."""
        for one in self._reflectors():
            try:
                one.list()
            except UnreachableError as error:
                LOG.info("%s are not read: %s", one.kind.name, error)
        self._list(tell)

    def now(self) -> float:
        """Give the instant by the server's clock: what ends unseen ends by the clock that tells all other times."""
        ahead = self.api.clock_ahead_seconds
        return self.clock() + (ahead if abs(ahead) > CLOCK_SLACK_SECONDS else 0.0)

    def _reflectors(self) -> tuple[Reflector, ...]:
        if not self.reflectors:
            self.reflectors = tuple(Reflector(self.api, kind, self.book, self.watch_seconds) for kind in self.kinds)
        return self.reflectors

    def _begin_reflecting(self, stop: threading.Event) -> None:
        """Start a thread for each kind beside pods; they go on through outages, and end with the process."""
        if self.reflectors:
            return
        for one in self._reflectors():
            threading.Thread(target=one.run, args=(stop,), name=one.kind.name, daemon=True).start()

    def _list(self, tell: Tell) -> str:
        self._restore()
        self._owners.clear()
        try:
            version, there = self._list_pages(tell)
        except GoneError:
            version, there = self._list_pages(tell)  # it changed between two pages; twice in a row it is an outage
        for uid in [uid for uid in self._known if uid not in there]:
            gone = self._known.pop(uid)
            if gone.is_open:
                tell(_ended(gone.records, self._seen_at))
        self._hear(tell)
        self._seen_at = self.now()
        self._remember()
        return version

    def _list_pages(self, tell: Tell) -> tuple[str, set[str]]:
        """Tell of all pods, holding one page of them at a time; gives the version, and which there are."""
        there: set[str] = set()
        version = ""
        for page in self.api.pages(PODS):
            news: list[Record] = []
            for pod in page.items:
                there.add(str(_metadata(pod).get("uid")))
                self._take(pod, None, news.extend, is_listed=True)
                if len(news) >= MOST_AT_ONCE:
                    tell(news)
                    news = []
            tell(news)
            version = page.version
        return version, there

    def _hear(self, tell: Tell) -> None:
        """Tell what changed beside pods: of the pods that it is told with, of work that waits, of nodes."""
        changed = self.book.take_changes()
        if not changed:
            return
        news: list[Record] = []
        for known in self._known.values():
            if known.own and known.is_meant(changed):
                self._tell_of(known, news.extend)
        owners = {known.owner_uid for known in self._known.values()}
        for kind, name in changed:
            if kind == "owner" and name not in owners:
                news += self._waits(name)
            elif kind == "node":
                news += self._node_event(name)
        if news:
            tell(news)

    def _tell_of(self, known: _Known, tell: Tell) -> None:
        """Tell of a pod if anything is new. One that has claims alone is told when one is known to be of a GPU."""
        records = completed(known.own, self.book, known.group, known.claims)
        is_held = any(isinstance(one, Allocation) for one in records)
        if records != known.records and (is_held or not known.claims):
            known.records = records
            tell(list(records))

    def _waits(self, owner_uid: str) -> list[Record]:
        queued = self.book.queued(owner_uid, None)
        job = None if queued is None else waiting_job(owner_uid, queued, self.cluster)
        if job is None or self._jobs.get(owner_uid) == job:
            return []
        if len(self._jobs) >= MOST_OWNERS:
            self._jobs.clear()
        self._jobs[owner_uid] = job
        return [job]

    def _node_event(self, name: str) -> list[Record]:
        """Give an event where a node stopped being ready or is so again; none where it is seen first, and is."""
        facts = self.book.node(name)
        if facts is None or facts.is_ready is None or self._nodes.get(name, True) == facts.is_ready:
            return []
        self._nodes[name] = facts.is_ready
        at = self.now() if facts.changed_at is None else facts.changed_at
        return [Event(self.cluster, name, READY if facts.is_ready else NOT_READY, at, detail=facts.reason or None)]

    def _end(self, pod: Object, tell: Tell) -> None:
        self._take(pod, self.now(), tell)
        if self._known.pop(str(_metadata(pod).get("uid")), None) is not None:
            self._remember()

    def _take(self, pod: Object, deleted_at: float | None, tell: Tell, *, is_listed: bool = False) -> None:
        uid, owner = str(_metadata(pod).get("uid")), self._owner(pod)
        own = tuple(records_of(pod, owner, self.reading, deleted_at=deleted_at))
        if not own:
            return
        before = self._known.get(uid)
        known = _Known(
            () if before is None else before.records, own, owner.uid, _node_of(own), group_of(pod), claims_of(pod)
        )
        was_open = known.is_open
        self._known[uid] = known
        self._tell_of(known, tell)
        if not is_listed and known.is_open != was_open:
            self._remember()

    def _owner(self, pod: Object) -> Owner:
        return owner_of(pod, self._look, self.reading.series_kinds)

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
                self._known.setdefault(uid, _Known(_read(stored)))
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


def _node_of(records: tuple[Record, ...]) -> str | None:
    return next((one.node_list for one in records if isinstance(one, Attempt)), None)


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
