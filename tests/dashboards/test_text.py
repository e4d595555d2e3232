"""What users wrote is shown as they wrote it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from dashboards.text import markdown, plain

HOSTILE = [
    "<script>alert('x')</script>",
    "**bold** _it_ `code` ~~gone~~",
    "[x](javascript:alert(1)) ![y](http://evil.example/y.png)",
    "$x^2$ and $$y$$",
    ":smile: :material/home: :red[red]",
    "# heading",
    "1. list",
    "> quote | cell |",
    "a\\*b",
    "&lt;b&gt;",
]

ENTITIES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"'}


@pytest.mark.parametrize("text", HOSTILE)
def test_markdown_shows_the_text_itself(text: str) -> None:
    rendered = MarkdownIt("commonmark", {"html": True}).render(f"x {markdown(text)}")
    shown = re.sub(r"&(amp|lt|gt|quot);", lambda found: ENTITIES[found[1]], rendered)
    assert shown.replace("\u2060", "") == f"<p>x {text}</p>\n"


@pytest.mark.parametrize("mark", ["$", ":", "[", "<", "`", "*", "_"])
def test_what_only_streamlit_would_read_is_escaped_too(mark: str) -> None:
    assert markdown(f"a{mark}b") == f"a\\{mark}b"


@pytest.mark.parametrize("text", ["http://evil.example", "see www.evil.example", "mail me@evil.example"])
def test_an_address_makes_no_link(text: str) -> None:
    pattern = r"https?:\\?//|www\\?\.|\w@\w"
    assert re.search(pattern, text)
    assert re.search(pattern, markdown(text)) is None


def test_long_text_is_cut_and_says_so() -> None:
    shown = plain("x" * 10_000)
    assert (len(shown), shown[-1]) == (120, "…")


def test_control_and_direction_marks_are_made_visible() -> None:
    assert plain("a\u202egnp.exe\x00\x1b[31m") == "a\ufffdgnp.exe\ufffd\ufffd[31m"


def test_lines_become_one_line() -> None:
    assert plain("a\r\nb\tc") == "a  b c"


def test_nothing_is_a_dash() -> None:
    assert plain(None) == "—"


@given(st.text())
def test_plain_text_never_exceeds_its_length_and_holds_no_controls(text: str) -> None:
    shown = plain(text, 40)
    assert len(shown) <= 40
    assert not any(ord(char) < 32 for char in shown)
