"""Text of users is text: what they wrote is shown as they wrote it, and never read as markup."""

from __future__ import annotations

import re
import unicodedata

_MARKS = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$:^=&])")
_FEW_MARKS = re.compile(r"[\\`*_\[\]<>#|~$&]|:(?=\w+:)")
_ADDRESS = re.compile(r"https?:|www|[\w.+-]+(?=@)", re.IGNORECASE)
_JOINER = "\u2060"
_JOINERS = "\u200c\u200d"
_LONGEST = 120
_ELLIPSIS = "…"


def plain(value: str | None, longest: int = _LONGEST) -> str:
    """Give text on one line: control and direction marks become ``�``, and it is cut at ``longest`` characters."""
    if value is None:
        return "—"
    shown = "".join(" " if char in "\n\r\t" else "\ufffd" if _is_trick(char) else char for char in value[: longest + 1])
    return shown if len(shown) <= longest else shown[: longest - 1] + _ELLIPSIS


def markdown(value: str | None, longest: int = _LONGEST) -> str:
    """Give text that Markdown, TeX, emoji and colour directives of Streamlit leave as it is.

    Addresses stay text too: GitHub's dialect would make links of them even where every mark is escaped, so an
    invisible joiner parts what it looks for.
    """
    return _MARKS.sub(r"\\\1", _ADDRESS.sub(f"\\g<0>{_JOINER}", plain(value, longest)))


def markdown_file(value: str, longest: int = _LONGEST) -> str:
    """Give text that Markdown in a file leaves as it is, GitHub's dialect included, and that stays readable as text."""
    return _FEW_MARKS.sub(r"\\\g<0>", _ADDRESS.sub(f"\\g<0>{_JOINER}", plain(value, longest)))


def unlinked(value: str) -> str:
    """Give text in which no mail program finds an address to make a link of: who can name a job cannot plant one."""
    return _ADDRESS.sub(f"\\g<0>{_JOINER}", value)


def _is_trick(char: str) -> bool:
    """Say whether a character could hide or turn round what stands beside it: controls and direction marks.

    The joiners that some scripts and emoji are written with stay.
    """
    return char not in _JOINERS and unicodedata.category(char) in {"Cc", "Cf", "Cs"}
