"""One error tree. Every message says what failed, on what, and what to do next."""

from __future__ import annotations


class TrueloadError(Exception):
    """Root of all errors that trueload raises on purpose. ``exit_code`` is what the command line returns."""

    exit_code = 1


class BadUseError(TrueloadError):
    """The command, option, setting or request is wrong; nothing was done."""

    exit_code = 2


class SettingsError(BadUseError):
    """A setting is unknown or its value cannot be used."""


class PluginError(TrueloadError):
    """A plug-in module has no constant of its kind, or a wrong one. Raised at start, never later."""


class BadInputError(TrueloadError):
    """A file or message could not be read.

    ``file`` and ``place`` (line, column name, byte) say where, ``detail`` what was found and expected.
    """

    def __init__(self, file: str, place: str | None, detail: str) -> None:
        """Build the one-line message from file, place and detail."""
        self.file = file
        self.place = place
        self.detail = detail
        super().__init__(f"{file}: {detail}" if place is None else f"{file}, {place}: {detail}")


class StoreError(TrueloadError):
    """The store cannot be opened, read or written."""


class StoreBusyError(StoreError):
    """Another process owns the database file."""


class OverloadedError(StoreError):
    """The store takes nothing more just now (too much waits, or the disk is nearly full); reading goes on."""


class UnreachableError(TrueloadError):
    """A server did not answer. Data waiting in a spool are safe; the caller may try again."""


class RefusedError(TrueloadError):
    """A server answered that it will not do this (no or wrong token, wrong role, bad request)."""


class NotFoundError(TrueloadError):
    """The thing asked for (a job, a week, a family) is not in the store."""
