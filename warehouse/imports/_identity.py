"""What makes a foreign record the same record: a hash of its content, and where it has no id, its occurrence."""

from __future__ import annotations

from hashlib import blake2b


def content_hash(content: str) -> int:
    """Give a hash of 63 bits that is the same in every process and on every machine."""
    digest = blake2b(content.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


class Occurrences:
    """Names records without an id: content hash and occurrence number within the file.

    Identical rows of a file are different records, and the same file read again gives the same names.
    """

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}

    def name(self, content: str) -> str:
        """Give the name of the next record with this content, such as ``1f3a…-0``, then ``1f3a…-1``."""
        key = content_hash(content)
        number = self._seen.get(key, 0)
        self._seen[key] = number + 1
        return f"{key:016x}-{number}"
