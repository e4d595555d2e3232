"""How everybody outside the server process reaches the data: the same answers, near or far.

One process owns the database file. A command that finds the data directory owned by a server asks there, else it
opens the store itself; the person at the keyboard sees no difference.
"""

from __future__ import annotations

import copy
import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable
from urllib.parse import quote

import urllib3

from warehouse import access
from warehouse.contract import wire
from warehouse.contract.errors import (
    BadUseError,
    NotFoundError,
    OverloadedError,
    RefusedError,
    StoreError,
    TrueloadError,
    UnreachableError,
)
from warehouse.importer import ImportedTables, PastAttempt
from warehouse.viewer import BEHALF, Viewer, as_header

if TYPE_CHECKING:
    from pathlib import Path

    from warehouse.contract.benchmark import Benchmark
    from warehouse.contract.settings import AnySetting, Settings
    from warehouse.contract.wire import Table
    from warehouse.sight import Sight
    from warehouse.store import Store

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 120.0
"""How long a client waits for a connection and for an answer."""

MESSAGE_RECORDS = 20_000
"""How many records of a foreign file travel in one message."""

UPKEEP_SECONDS = 4 * 3600.0
"""How long it waits for a backup or a check, which read everything."""

Document: TypeAlias = dict[str, object]
Parameters: TypeAlias = Mapping[str, str]
Answer: TypeAlias = "Callable[[Sight, Settings, Parameters], Document]"
"""A question that the data can be asked: ``waste``, ``families``, ``recommend``, ``job``, ``weekly`` and so on."""


@runtime_checkable
class Remembering(Protocol):
    """An answer that remembers: what it knows already costs nothing."""

    def __call__(self, store: Sight, settings: Settings, parameters: Parameters, /) -> Document:
        """Answer."""
        ...

    def at_hand(self, store: Sight, settings: Settings, parameters: Parameters) -> Document | None:
        """Give the answer if it is known; None: it has to be worked out."""
        ...


@dataclass(frozen=True, slots=True)
class RecordId:
    """What a foreign record is about, and a hash of its content."""

    record_key: str
    content_hash: int


class Client(Protocol):
    """What pages, commands and reports may do with the data."""

    def ask(self, question: str, parameters: Parameters) -> Document:
        """Give the document that answers a question.

        Raises:
            BadUseError: no such question, or a parameter that cannot be used.
            NotFoundError: the thing asked for is not there.
            UnreachableError, RefusedError, StoreError: the data cannot be reached.

        """
        ...

    def on_behalf_of(self, name: str, accounts: Sequence[str] = ()) -> Client:
        """Give a client that answers as a person may see it, who answers for some accounts too; for operators."""
        ...

    def which_are_new(self, format_name: str, records: Sequence[RecordId]) -> list[bool]:
        """Say for each record of a foreign file whether its content was never loaded before."""
        ...

    def load(self, format_name: str, records: Sequence[RecordId], tables: Mapping[str, Table]) -> None:
        """Load the rows of new records and remember the records, all or nothing."""
        ...

    def load_tables(self, format_name: str, given: ImportedTables) -> int:
        """Load those of many records that are new, all or nothing, and give how many they were."""
        ...

    def past_attempts(self, cluster: str, scheduler_job_ids: Sequence[str]) -> tuple[PastAttempt, ...]:
        """Give the attempts already known of some of a scheduler's job ids, in order of start."""
        ...

    def close(self) -> None:
        """Let go of the store or the connection."""
        ...


@dataclass(frozen=True, slots=True)
class Composition:
    """What the front door hands to every command: how to reach the data, and the settings.

    ``open_client(data, create)`` raises StoreError when the directory holds no store and ``create`` is false.
    ``ask_engine(data, engine, question, parameters)`` answers from the lake alone (``warehouse.engines``).
    ``benchmarks`` are those of all rooms, by name.
    """

    open_client: Callable[[Path, bool], Client]
    settings: Callable[[], Settings]
    registry: Callable[[], tuple[AnySetting, ...]]
    answers: Callable[[], Mapping[str, Answer]]
    ask_engine: Callable[[Path, str, str, Parameters], Document]
    benchmarks: Callable[[], Mapping[str, Benchmark]]


class LocalClient:
    """Answers from a store that this process owns."""

    def __init__(self, store: Store, answers: Mapping[str, Answer], settings: Settings) -> None:
        """Take over an open store."""
        self._store = store
        self._answers = answers
        self._settings = settings
        self._seen: Sight | None = None

    def ask(self, question: str, parameters: Parameters) -> Document:
        """See ``Client.ask``."""
        if question not in self._answers:
            raise BadUseError(f"no question {question!r}; there are {', '.join(self._answers)}")
        return self._answers[question](self._seen or self._store, self._settings, parameters)

    def on_behalf_of(self, name: str, accounts: Sequence[str] = ()) -> LocalClient:
        """See ``Client.on_behalf_of``; it shares this one's store."""
        found = LocalClient(self._store, self._answers, self._settings)
        found._seen = self._store.seen_by(Viewer(name, tuple(accounts)))
        return found

    def which_are_new(self, format_name: str, records: Sequence[RecordId]) -> list[bool]:
        """See ``Client.which_are_new``."""
        from warehouse import ingest

        return ingest.which_are_new(self._store, format_name, records)

    def load(self, format_name: str, records: Sequence[RecordId], tables: Mapping[str, Table]) -> None:
        """See ``Client.load``."""
        from warehouse import ingest

        ingest.load_import(self._store, format_name, records, tables)

    def load_tables(self, format_name: str, given: ImportedTables) -> int:
        """See ``Client.load_tables``."""
        from warehouse import ingest

        return ingest.load_tables(self._store, format_name, given)

    def past_attempts(self, cluster: str, scheduler_job_ids: Sequence[str]) -> tuple[PastAttempt, ...]:
        """See ``Client.past_attempts``."""
        from warehouse import ingest

        return ingest.past_attempts(self._store, cluster, scheduler_job_ids)

    def manage_tokens(self, action: str, asked: Mapping[str, object]) -> Document:
        """Do something with credentials, for operators (``warehouse.token_desk``)."""
        from warehouse import token_desk
        from warehouse.credentials import Credentials

        return token_desk.act(Credentials(self._store), action, asked)

    def mail(self, action: str, asked: Mapping[str, object]) -> Document:
        """Claim a mail, say what became of it, list them (``warehouse.outbox``); for operators."""
        from warehouse import outbox

        return outbox.act(self._store, action, asked)

    def advice(self, action: str, asked: Mapping[str, object]) -> Document:
        """Keep advice, say what became of it, list it (``warehouse.advice_desk``); for operators."""
        from warehouse import advice_desk

        return advice_desk.act(self._store, action, asked)

    def back_up(self, target: Path) -> Document:
        """Copy the store into a new folder (``warehouse.backup``)."""
        from warehouse import backup

        return backup.write_backup(self._store, target)

    def verify(self) -> Document:
        """Read and count everything (``warehouse.backup``)."""
        from warehouse import backup

        return backup.verify(self._store)

    def purge(self, asked: Mapping[str, object]) -> Document:
        """Delete somebody's data for good (``warehouse.purge``)."""
        from warehouse import purge

        whom, dry_run = purge.read_asked(asked)
        return purge.purge(self._store, whom, dry_run=dry_run, files_at_once=True)

    def sql(self, statement: str) -> Document:
        """Run one SELECT over the documented tables (``warehouse.sql``)."""
        from warehouse import server_settings, sql

        rows, seconds = self._settings[server_settings.SQL_ROWS], self._settings[server_settings.SQL_SECONDS]
        return sql.ask(self._store, statement, most_rows=rows, most_seconds=seconds).document()

    def close(self) -> None:
        """Close the store."""
        self._store.close()


class HttpClient:
    """Answers from a running server."""

    def __init__(self, url: str, token: str, fingerprint: str | None = None) -> None:
        """Connect lazily; nothing is sent before the first question.

        ``fingerprint`` is the SHA-256 of the server's certificate, for one that is known by nothing else.
        """
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"}
        pinned: dict[str, Any] = (
            {} if fingerprint is None else {"cert_reqs": "CERT_NONE", "assert_fingerprint": fingerprint}
        )
        self._pool = urllib3.PoolManager(retries=False, **pinned)
        self._behalf: dict[str, str] = {}

    def ask(self, question: str, parameters: Parameters) -> Document:
        """See ``Client.ask``."""
        return self._request(
            "GET", f"/v1/answers/{quote(question, safe='')}", fields=dict(parameters), headers=self._behalf
        )

    def on_behalf_of(self, name: str, accounts: Sequence[str] = ()) -> HttpClient:
        """See ``Client.on_behalf_of``; it shares this one's connections."""
        found = copy.copy(self)
        found._behalf = {BEHALF: as_header(Viewer(name, tuple(accounts)))}  # noqa: SLF001 - its own kind
        return found

    def which_are_new(self, format_name: str, records: Sequence[RecordId]) -> list[bool]:
        """See ``Client.which_are_new``."""
        answer = self._post(f"/v1/imports/{quote(format_name, safe='')}/new", format_name, records, {})
        new = answer.get("new")
        if not isinstance(new, list) or len(new) != len(records):
            raise UnreachableError(f"{self._url}: not a trueload server of this version")
        return [bool(item) for item in new]

    def load(self, format_name: str, records: Sequence[RecordId], tables: Mapping[str, Table]) -> None:
        """See ``Client.load``."""
        self._post(f"/v1/imports/{quote(format_name, safe='')}", format_name, records, tables)

    def load_tables(self, format_name: str, given: ImportedTables) -> int:
        """See ``Client.load_tables``; in messages of a size that a server takes, each all or nothing."""
        from warehouse.arrow import to_wire

        kept = 0
        for at in range(0, given.records.num_rows, MESSAGE_RECORDS):
            part = given.records.slice(at, MESSAGE_RECORDS).to_pylist()
            records = [RecordId(row["record_key"], row["content_hash"]) for row in part]
            is_new = self.which_are_new(format_name, records)
            new = [record for record, wanted in zip(records, is_new, strict=True) if wanted]
            if new:
                tables = {name: table.slice(at, MESSAGE_RECORDS).filter(is_new) for name, table in given.tables.items()}
                self.load(format_name, new, {name: to_wire(table) for name, table in tables.items()})
            kept += len(new)
        return kept

    def past_attempts(self, cluster: str, scheduler_job_ids: Sequence[str]) -> tuple[PastAttempt, ...]:
        """See ``Client.past_attempts``."""
        body = json.dumps({"cluster": cluster, "scheduler_job_ids": list(scheduler_job_ids)}).encode()
        answer = self._request("POST", "/v1/past_attempts", body=body)
        rows = answer.get("attempts")
        return tuple(PastAttempt(**row) for row in rows) if isinstance(rows, list) else ()

    def manage_tokens(self, action: str, asked: Mapping[str, object]) -> Document:
        """See ``LocalClient.manage_tokens``."""
        return self._request("POST", f"/v1/credentials/{quote(action, safe='')}", body=json.dumps(asked).encode())

    def mail(self, action: str, asked: Mapping[str, object]) -> Document:
        """See ``LocalClient.mail``."""
        return self._request("POST", f"/v1/mail/{quote(action, safe='')}", body=json.dumps(asked).encode())

    def advice(self, action: str, asked: Mapping[str, object]) -> Document:
        """See ``LocalClient.advice``."""
        return self._request("POST", f"/v1/advice/{quote(action, safe='')}", body=json.dumps(asked).encode())

    def back_up(self, target: Path) -> Document:
        """See ``LocalClient.back_up``; the folder is on the server's machine."""
        return self._request(
            "POST", "/v1/backup", body=json.dumps({"to": str(target)}).encode(), seconds=UPKEEP_SECONDS
        )

    def verify(self) -> Document:
        """See ``LocalClient.verify``."""
        return self._request("POST", "/v1/verify", body=b"{}", seconds=UPKEEP_SECONDS)

    def purge(self, asked: Mapping[str, object]) -> Document:
        """See ``LocalClient.purge``."""
        return self._request("POST", "/v1/purge", body=json.dumps(asked).encode(), seconds=UPKEEP_SECONDS)

    def sql(self, statement: str) -> Document:
        """See ``LocalClient.sql``; refused where the site has not switched it on."""
        return self._request("POST", "/v1/sql", body=json.dumps({"sql": statement}).encode())

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()

    def _post(self, path: str, format_name: str, records: Sequence[RecordId], tables: Mapping[str, Table]) -> Document:
        keys = wire.Table(
            len(records),
            {
                "record_key": [record.record_key for record in records],
                "content_hash": [record.content_hash for record in records],
            },
        )
        batch = wire.Batch(f"import:{format_name}", uuid.uuid4().hex, 0, time.time(), {**tables, "import_record": keys})
        return self._request("POST", path, body=wire.encode(batch, level=1))

    def _request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        fields: dict[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        seconds: float = ANSWER_SECONDS,
    ) -> Document:
        timeout = urllib3.Timeout(connect=CONNECT_SECONDS, read=seconds)
        try:
            answer = self._pool.request(
                method,
                self._url + path,
                headers={**self._headers, **(headers or {})},
                body=body,
                fields=fields,
                timeout=timeout,
            )
        except urllib3.exceptions.HTTPError as cause:
            raise UnreachableError(f"{self._url}: the server does not answer ({cause}); is it running?") from cause
        try:
            content = json.loads(answer.data)
        except ValueError as cause:
            raise UnreachableError(f"{self._url}: answered {answer.status} with no JSON") from cause
        if answer.status == 200 and isinstance(content, dict):  # noqa: PLR2004 - HTTP's OK
            return content
        raise _as_error(answer.status, content)


_ERRORS: dict[int, type[TrueloadError]] = {
    400: BadUseError,
    401: RefusedError,
    403: RefusedError,
    404: NotFoundError,
    429: OverloadedError,
    503: StoreError,
}


def _as_error(status: int, content: object) -> TrueloadError:
    """Turn a server's refusal into the error that the store itself would have raised."""
    message = None
    if isinstance(content, dict):
        message = content.get("message") or content.get("detail")
    kind = _ERRORS.get(status, TrueloadError)
    return kind(str(message or f"the server answered {status}"))


def find_server(data: Path) -> HttpClient | None:
    """Give a client for the live server that owns a data directory, or None."""
    address = access.published(data)
    return None if address is None else HttpClient(address.url, address.token, address.fingerprint)


def client_of(url: str, token_file: Path) -> HttpClient:
    """Give a client for the server at an address, with the token that a file holds.

    Its certificate is checked against the system's authorities, or those in the file that SSL_CERT_FILE names.

    Raises:
        BadUseError: the file cannot be read, or holds no token.

    """
    try:
        token = token_file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as cause:
        raise BadUseError(
            f"{token_file}: the token cannot be read ({cause}); `trueload token new` writes one"
        ) from cause
    if not token:
        raise BadUseError(f"{token_file}: holds no token; `trueload token new` writes one")
    return HttpClient(url, token)


def open_client(
    data: Path, answers: Mapping[str, Answer], settings: Settings, *, create: bool = False
) -> LocalClient | HttpClient:
    """Reach the data of a directory: through its server if one runs, else by opening the store here.

    Raises:
        StoreBusyError: another process owns the store and serves nothing.
        StoreError: there is no store and ``create`` is false.

    """
    server = find_server(data)
    if server is not None:
        return server
    from warehouse.store import open_store

    return LocalClient(open_store(data, create=create), answers, settings)
