"""Whole files at an address: a folder of this machine, or an object store through fsspec.

One small set of operations, each of which happens wholly or not at all for those who read: an object store knows no
rename, so nothing here is moved; what is valid is said by one object that is replaced (``replace``).
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from warehouse.contract.errors import SettingsError, StoreError
from warehouse.lake import make_durable

if TYPE_CHECKING:
    from collections.abc import Iterator

CONNECT_TIMEOUT_SECONDS = 10
READ_TIMEOUT_SECONDS = 60
"""A store that is silent this long is given up for this round; the library has tried again several times by then."""


@dataclass(frozen=True, slots=True)
class Found:
    """A file that a listing told of; a listing may be late, in both directions."""

    path: str
    file_bytes: int


class Files(Protocol):
    """Files below an address, by paths relative to it. All raise OSError, naming address and path."""

    address: str

    def read(self, path: str) -> bytes:
        """Give a file's content; FileNotFoundError where there is none."""

    def size(self, path: str) -> int | None:
        """Give a file's length in bytes, asked of the file itself; None: it is not there."""

    def put(self, path: str, source: Path) -> None:
        """Copy a local file there, whole."""

    def replace(self, path: str, content: bytes) -> None:
        """Put content there so that others read the old or the new one at any moment."""

    def create(self, path: str, content: bytes) -> bool:
        """Put content there if nothing is there yet; say whether it was."""

    def listed(self) -> list[Found]:
        """Give all files below the address, as far as the listing knows."""

    def delete(self, path: str) -> None:
        """Remove a file; fine where it is gone already."""

    def for_engines(self, path: str) -> str:
        """Give what DuckDB and Spark call the file."""

    def register(self, connection: Any) -> None:
        """Have a DuckDB connection read files of this address."""


class LocalFiles:
    """A folder of this machine: written beside, fsynced, renamed."""

    def __init__(self, root: Path) -> None:
        """Take a folder, which need not exist yet."""
        self._root = root
        self.address = str(root)

    def read(self, path: str) -> bytes:
        """See ``Files``."""
        return (self._root / path).read_bytes()

    def size(self, path: str) -> int | None:
        """See ``Files``."""
        try:
            return (self._root / path).stat().st_size
        except FileNotFoundError:
            return None

    def put(self, path: str, source: Path) -> None:
        """See ``Files``."""
        self._write(path, source)

    def replace(self, path: str, content: bytes) -> None:
        """See ``Files``."""
        self._write(path, content)

    def create(self, path: str, content: bytes) -> bool:
        """See ``Files``."""
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with target.open("xb") as file:
                file.write(content)
        except FileExistsError:
            return False
        make_durable(target)
        make_durable(target.parent)
        return True

    def listed(self) -> list[Found]:
        """See ``Files``."""
        files = (file for file in self._root.rglob("*") if file.is_file())
        return [Found(file.relative_to(self._root).as_posix(), file.stat().st_size) for file in files]

    def delete(self, path: str) -> None:
        """See ``Files``; folders that it leaves empty go, too."""
        file = self._root / path
        file.unlink(missing_ok=True)
        with suppress(OSError):  # the first that holds something ends it
            for folder in file.relative_to(self._root).parents[:-1]:
                (self._root / folder).rmdir()

    def for_engines(self, path: str) -> str:
        """See ``Files``."""
        return str(self._root.resolve() / path)

    def register(self, connection: Any) -> None:
        """See ``Files``: DuckDB reads them by itself."""

    def _write(self, path: str, content: Path | bytes) -> None:
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(f"{target.name}.tmp")
        with fresh.open("wb") as file:
            if isinstance(content, bytes):
                file.write(content)
            else:
                with content.open("rb") as source:
                    while block := source.read(1024**2):
                        file.write(block)
        make_durable(fresh)
        fresh.replace(target)
        make_durable(target.parent)


class ObjectFiles:
    """An object store: an object appears when its upload has ended, and a put over it replaces it."""

    def __init__(self, address: str, system: Any, root: str) -> None:
        """Take an fsspec file system and the prefix in it; use ``open_files``."""
        self.address = address
        self._system = system
        self._root = root.rstrip("/")

    def read(self, path: str) -> bytes:
        """See ``Files``."""
        with self._telling("read", path):
            return bytes(self._system.cat_file(self._at(path)))

    def size(self, path: str) -> int | None:
        """See ``Files``."""
        try:
            with self._telling("asked for", path):
                return int(self._system.info(self._at(path), refresh=True)["size"])
        except FileNotFoundError:
            return None

    def put(self, path: str, source: Path) -> None:
        """See ``Files``."""
        with self._telling("written", path):
            self._system.put_file(str(source), self._at(path))

    def replace(self, path: str, content: bytes) -> None:
        """See ``Files``."""
        with self._telling("written", path):
            self._system.pipe_file(self._at(path), content)

    def create(self, path: str, content: bytes) -> bool:
        """See ``Files``."""
        try:
            with self._telling("created", path):
                self._system.pipe_file(self._at(path), content, mode="create")
        except FileExistsError:
            return False
        return True

    def listed(self) -> list[Found]:
        """See ``Files``."""
        try:
            with self._telling("listed", ""):
                found = self._system.find(self._root, detail=True)
        except FileNotFoundError:
            return []
        start = len(self._root) + 1
        return [Found(name[start:], int(entry["size"])) for name, entry in found.items()]

    def delete(self, path: str) -> None:
        """See ``Files``."""
        with suppress(FileNotFoundError), self._telling("deleted", path):
            self._system.rm_file(self._at(path))

    def for_engines(self, path: str) -> str:
        """See ``Files``."""
        return f"{self.address}/{path}"

    def register(self, connection: Any) -> None:
        """See ``Files``."""
        connection.register_filesystem(self._system)

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}"

    @contextmanager
    def _telling(self, done: str, path: str) -> Iterator[None]:
        """Tell of any error as OSError: each store's library has its own, and no common one."""
        try:
            yield
        except (FileNotFoundError, FileExistsError):
            raise
        except Exception as cause:
            raise OSError(f"{self.address}/{path}: could not be {done} ({type(cause).__name__}: {cause})") from cause


def open_files(address: str, *, endpoint_url: str = "", region: str = "") -> Files:
    """Open a path, ``file://``, ``s3://BUCKET/PREFIX`` or another address that fsspec knows.

    Credentials come from where the store's own tools look for them (for S3 the variables AWS_…, ~/.aws, the role of the
    machine), never from the address.

    Raises:
        SettingsError: the address carries a name or password, or nobody knows its kind.
        StoreError: the package that reads it is not installed.

    """
    parts = urlsplit(address)
    if parts.username is not None or parts.query:
        raise SettingsError(
            "the lake's address holds a name, password or query; credentials come from the environment or ~/.aws"
        )
    if parts.scheme in ("", "file"):
        return LocalFiles(Path(parts.path if parts.scheme else address))
    try:
        import fsspec

        system, root = fsspec.core.url_to_fs(address, **_options(parts.scheme, endpoint_url, region))
    except ImportError as cause:
        raise StoreError(f"{address}: needs another package: pip install 'trueload[s3]' ({cause})") from cause
    except ValueError as cause:
        raise SettingsError(f"{address}: no address of a kind that is known ({cause})") from cause
    return ObjectFiles(address.rstrip("/"), system, root)


def _options(scheme: str, endpoint_url: str, region: str) -> dict[str, Any]:
    if scheme != "s3":
        return {}
    options: dict[str, Any] = {
        "use_listings_cache": False,  # others write and delete, too
        "skip_instance_cache": True,
        "config_kwargs": {"connect_timeout": CONNECT_TIMEOUT_SECONDS, "read_timeout": READ_TIMEOUT_SECONDS},
    }
    if endpoint_url:
        options["endpoint_url"] = endpoint_url
    if region:
        options["client_kwargs"] = {"region_name": region}
    return options
