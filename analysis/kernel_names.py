"""What a kernel is called, from its mangled name: short enough for a table, and safe with whatever stands there.

A name comes out of a user's process. A full demangler may be sent into exponential work by one: each substitution may
double what stands before, so that 190 letters stand for eight million, written out. It also gives up on names that are
cut, as the tracer's are at 1,024 bytes. So this reads only as far as it goes in a straight line: a qualified name, and
of the template arguments those that are literals, builtin types and names; an ellipsis stands for the rest. The grammar
is that of the Itanium C++ ABI, section 5.1 (https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling).
"""

from __future__ import annotations

from typing import Final

LONGEST: Final = 200
"""Letters of a title: two lines of a table; names made of template arguments go on for a thousand."""

DEEPEST: Final = 4
"""Template arguments within template arguments that are read; what lies deeper tells no kernels apart."""

REST: Final = "…"
_BUILTIN: Final = {
    "v": "void",
    "b": "bool",
    "c": "char",
    "a": "signed char",
    "h": "unsigned char",
    "s": "short",
    "t": "unsigned short",
    "i": "int",
    "j": "unsigned int",
    "l": "long",
    "m": "unsigned long",
    "x": "long long",
    "y": "unsigned long long",
    "f": "float",
    "d": "double",
}
_TRUTH: Final = {"0": "false", "1": "true"}


def kernel_title(name: str) -> str:
    """Give what to call a kernel; a name that is not mangled, or not understood, is given as it is, cut."""
    title = _Reader(name).title() if name.startswith("_Z") else None
    shown = title or name
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + REST


class _Reader:
    """Reads a mangled name once, from left to right, until it meets what it does not read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = len("_Z")
        self._depth = 0
        self._is_lost = False

    def title(self) -> str | None:
        """Give the qualified name with its plain template arguments; None where there is none in front."""
        if not self._eat("N"):
            return self._component()
        while self._peek() in ("K", "V", "r", "R", "O"):
            self._at += 1
        return "::".join(["std", *self._components()] if self._eat("St") else self._components()) or None

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _eat(self, word: str) -> bool:
        found = self._text.startswith(word, self._at)
        self._at += len(word) if found else 0
        return found

    def _components(self) -> list[str]:
        found: list[str] = []
        while not self._is_lost and (part := self._component()) is not None:
            found.append(part)
        return found

    def _component(self) -> str | None:
        name = self._source_name()
        return None if name is None else name + self._arguments()

    def _source_name(self) -> str | None:
        """Read ``<length><name>``; a namespace without a name is called what compilers call it."""
        begin = self._at
        while self._peek().isdecimal() and self._peek().isascii() and self._at - begin < len("1024"):
            self._at += 1
        length = int(self._text[begin : self._at] or 0)
        name = self._text[self._at : self._at + length]
        if not length or len(name) < length:
            self._at = begin
            return None
        self._at += length
        return "(anonymous namespace)" if name.startswith("_GLOBAL__N_") else name

    def _arguments(self) -> str:
        """Read ``I ... E``: what is plain; at the first that is not, an ellipsis stands for all that follow."""
        if not self._eat("I"):
            return ""
        found: list[str] = []
        self._depth += 1
        while not self._is_lost and not self._eat("E"):
            argument = self._argument() if self._depth <= DEEPEST else None
            self._is_lost |= argument is None
            found += [REST] if argument is None else [argument]
        self._depth -= 1
        return f"<{', '.join(found)}>"

    def _argument(self) -> str | None:
        if self._eat("L"):
            return self._literal()
        if self._eat("N"):
            return self._nested()
        builtin = _BUILTIN.get(self._peek())
        if builtin is not None:
            self._at += 1
            return builtin
        return self._component()

    def _nested(self) -> str | None:
        """Read ``N ... E``; its last name is enough, and in front there may be a reference to a namespace."""
        if self._eat("S"):
            while self._peek() and self._peek() in "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ":
                self._at += 1
            self._eat("_") or self._eat("t")
        names = self._components()
        return names[-1] if names and (self._is_lost or self._eat("E")) else None

    def _literal(self) -> str | None:
        kind = self._peek()
        end = self._text.find("E", self._at)
        value = self._text[self._at + 1 : end] if end > 0 else ""
        digits = value.removeprefix("n")
        if kind not in _BUILTIN or not (digits.isascii() and digits.isdecimal()):
            return None
        self._at = end + 1
        return _TRUTH.get(value, value) if kind == "b" else value.replace("n", "-")
