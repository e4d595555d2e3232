"""Kinds of objects beside pods, each listed and watched on a thread of its own.

What is refused, or not there in this cluster, costs its own kind: it is said once and asked for again later.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from collector.jobs._kube_api import NOT_FOUND, GoneError, KubeApi, Listed, RefusedByServerError
from collector.jobs._kube_facts import Book
from warehouse.contract.errors import UnreachableError

LOG: Final = logging.getLogger("trueload.jobs")
REFUSED_SECONDS: Final = 600.0
"""So long after a refusal a kind is asked for again: rights are given, and operators installed, by people."""

LONGEST_WAIT_SECONDS: Final = 60.0
_DRA: Final = ("v1", "v1beta2", "v1beta1")


class See(Protocol):
    """Takes one object."""

    def __call__(self, found: Mapping[str, Any], *, is_gone: bool = False) -> None:
        """Take an object that is there, or was until now."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object: where it lies, newest version first, and who takes it."""

    name: str
    paths: tuple[str, ...]
    see: Callable[[Book], See]


KINDS: Final = (
    Kind("nodes", ("/api/v1/nodes",), lambda book: book.see_node),
    Kind(
        "resourceslices",
        tuple(f"/apis/resource.k8s.io/{version}/resourceslices" for version in _DRA),
        lambda book: book.see_slice,
    ),
    Kind(
        "resourceclaims",
        tuple(f"/apis/resource.k8s.io/{version}/resourceclaims" for version in _DRA),
        lambda book: book.see_claim,
    ),
    Kind(
        "workloads",
        tuple(f"/apis/kueue.x-k8s.io/{version}/workloads" for version in ("v1beta2", "v1beta1")),
        lambda book: book.see_workload,
    ),
    Kind("podgroups", ("/apis/scheduling.volcano.sh/v1beta1/podgroups",), lambda book: book.see_pod_group),
)


@dataclass(slots=True)
class Reflector:
    """Keeps one kind up to date in a book."""

    api: KubeApi
    kind: Kind
    book: Book
    watch_seconds: float
    refused: str = ""
    """Why the server will not tell; empty while it does."""

    bad_objects: int = 0
    _there: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """The metadata of what is there, so that a new list tells what is gone."""

    def run(self, stop: threading.Event) -> None:
        """List and watch until told to stop."""
        failures = 0
        while not stop.is_set():
            try:
                path, version = self.list()
                failures = 0
                self._watch(path, version, stop)
            except RefusedByServerError as error:
                self._refuse(error)
                stop.wait(REFUSED_SECONDS)
            except UnreachableError:  # the follower of pods says it
                failures += 1
                stop.wait(min(LONGEST_WAIT_SECONDS, 2.0 ** min(failures, 10)))

    def list(self) -> tuple[str, str]:
        """Take all that is there; gives where it lies and from which version to watch.

        Raises:
            RefusedByServerError: the cluster has no such kind, or the account may not list it.
            UnreachableError: no answer.

        """
        path, listed = self._find()
        seen = {str(_metadata(one).get("uid", "")) for one in listed.items}
        for uid in [uid for uid in self._there if uid not in seen]:
            self._see({"metadata": self._there[uid]}, is_gone=True)
        for one in listed.items:
            self._see(one, is_gone=False)
        self.refused = ""
        return path, listed.version

    def _find(self) -> tuple[str, Listed]:
        for path in self.kind.paths[:-1]:
            try:
                return path, self.api.list_all(path)
            except RefusedByServerError as error:
                if error.status != NOT_FOUND:
                    raise
        return self.kind.paths[-1], self.api.list_all(self.kind.paths[-1])

    def _watch(self, path: str, version: str, stop: threading.Event) -> None:
        broke = False
        while not stop.is_set():
            try:
                for kind, found in self.api.watch(path, version, self.watch_seconds):
                    version, broke = str(_metadata(found).get("resourceVersion") or version), False
                    if kind in ("ADDED", "MODIFIED", "DELETED"):
                        self._see(found, is_gone=kind == "DELETED")
                    if stop.is_set():
                        return
            except (GoneError, RefusedByServerError):
                return
            except UnreachableError:
                if broke:
                    raise
                broke = True

    def _see(self, found: Mapping[str, Any], *, is_gone: bool) -> None:
        told = _metadata(found)
        uid = str(told.get("uid", ""))
        if is_gone:
            self._there.pop(uid, None)
        else:
            self._there[uid] = {name: told.get(name) for name in ("uid", "name", "namespace")}
        try:
            self.kind.see(self.book)(found, is_gone=is_gone)
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            self.bad_objects += 1
            if self.bad_objects == 1:
                LOG.warning("%s %s cannot be read: %r", self.kind.name, told.get("name"), error)

    def _refuse(self, error: RefusedByServerError) -> None:
        if not self.refused:
            level = logging.DEBUG if error.status == NOT_FOUND else logging.WARNING
            LOG.log(level, "%s are not read: %s", self.kind.name, error)
        self.refused = str(error)


def _metadata(found: Mapping[str, Any]) -> Mapping[str, Any]:
    told = found.get("metadata")
    return told if isinstance(told, Mapping) else {}
