"""The weekly report: the same words every time, small, and safe whatever users call their jobs."""

from __future__ import annotations

import copy
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from dashboards.report.digest import Limits
from dashboards.report.weekly import digest, render
from warehouse.contract.errors import BadUseError

LIMITS = Limits(rows=10, findings=3)
MAIL_LIMIT_BYTES = 90_000
HOSTILE = '<script>alert("x")</script> **bold** [x](http://evil.example) $x$ :smile: & <b>'


class _Reader(HTMLParser):
    """Collects tags, addresses and text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.handlers: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in {"href", "src", "action"}]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def _read(html: str) -> _Reader:
    reader = _Reader()
    reader.feed(html)
    return reader


@pytest.fixture
def document(documents: dict[str, Any]) -> dict[str, Any]:
    week: dict[str, Any] = documents["weekly"]
    return week


def test_the_markdown_is_as_it_was(document: dict[str, Any], repository: Path) -> None:
    golden = repository / "tests" / "golden" / "weekly.md"
    assert render(document, "md", LIMITS) == golden.read_text(encoding="utf-8")


def test_the_json_is_the_document(document: dict[str, Any]) -> None:
    assert json.loads(render(document, "json", LIMITS)) == document


def test_an_unknown_format_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(BadUseError, match="html, md, txt and json"):
        render(document, "docx", LIMITS)


def test_the_html_holds_no_script_no_address_and_no_style_sheet(document: dict[str, Any]) -> None:
    page = _read(render(document, "html", LIMITS))
    assert not {"script", "link", "style", "img", "iframe", "object", "form", "a"} & set(page.tags)
    assert (page.addresses, page.handlers) == ([], [])
    assert "svg" in page.tags


def test_what_users_wrote_is_shown_as_they_wrote_it(document: dict[str, Any]) -> None:
    page = _read(render(document, "html", LIMITS))
    assert any(HOSTILE in words for words in page.text)


def test_markdown_of_users_makes_no_markup(document: dict[str, Any]) -> None:
    html = MarkdownIt("gfm-like", {"linkify": False}).render(render(document, "md", LIMITS))
    page = _read(html)
    assert page.addresses == []
    assert "script" not in page.tags
    assert not any("bold" in words and "**" not in words for words in page.text)


def test_the_headline_tells_held_used_and_the_change(document: dict[str, Any]) -> None:
    said = digest(document, LIMITS).headline
    assert said.startswith("560.0 GPU-h were allocated; of the time that is known, 80\u202f% was used (+5.9 points")
    assert said.endswith("110.0 GPU-h were held idle.")


def test_accounting_alone_is_said_and_never_shown_as_zero(document: dict[str, Any]) -> None:
    seconds = document["fleet"]["gpu_seconds"]
    seconds.update(used=None, held_idle=None, no_process=None, with_process=None, gaps=None)
    found = digest(document, LIMITS)
    assert "not known: accounting alone" in found.headline
    assert {figure.word: figure.hours for figure in found.figures}["Used"] == "—"


def test_three_findings_are_shown_and_the_others_counted(document: dict[str, Any]) -> None:
    release, share = document["recommendations"]["recommendations"]
    others = [release | {"title": f"Release the GPUs of job {number}"} for number in range(6)]
    document["recommendations"]["recommendations"] = [release, release, *others, share]
    found = digest(document, LIMITS)
    assert (len(found.findings), found.findings_left_out) == (3, 5)
    assert found.findings[0].title.endswith("(the first of 2 alike)")


def test_a_week_of_which_the_data_hold_an_eighth_is_not_compared_with(document: dict[str, Any]) -> None:
    document["waste"]["previous_gpu_seconds"]["capacity"] /= 8
    found = digest(document, LIMITS)
    assert {figure.change for figure in found.figures} == {"—"}
    assert "last week" not in found.headline
    assert found.groups[0].lines[0].cells[0] == "60.0"


def test_a_week_without_anything_is_still_a_report() -> None:
    empty: dict[str, object] = {
        "week": "2026-W44",
        "zone": "UTC",
        "since": "2026-10-26T00:00:00Z",
        "until": "2026-11-02T00:00:00Z",
    }
    html = render(empty, "html", LIMITS)
    assert "No GPU was allocated" in html
    assert "Nothing is advised" in html


def test_three_thousand_users_stay_below_what_mail_programs_cut(document: dict[str, Any]) -> None:
    for key, items in document["waste"].items():
        if key.startswith("by_"):
            document["waste"][key] = [copy.deepcopy(items[0]) | {"key": f"{HOSTILE} {index}"} for index in range(3000)]
    family = document["families"]["families"][0]
    family["members"] = [f"demo/{index}#0" for index in range(3000)]
    document["families"]["families"] = [family] * 500
    document["recommendations"]["recommendations"] *= 500
    html = render(document, "html", LIMITS)
    assert len(html.encode()) < MAIL_LIMIT_BYTES
    assert "and 2990 more" in html


def test_every_number_of_the_html_stands_in_the_markdown(document: dict[str, Any]) -> None:
    number = re.compile(r"\d+\.\d+\u202f?%?")
    words = re.sub(r"<svg.*?</svg>", "", render(document, "html", LIMITS), flags=re.DOTALL)
    html = set(number.findall(" ".join(_read(words).text)))
    assert len(html) > 20
    assert html - set(number.findall(render(document, "md", LIMITS))) == set()


def test_a_week_in_which_nobody_traced_has_no_such_table(document: dict[str, Any]) -> None:
    assert "What kernels truly did" in render(document, "html", LIMITS)
    document["tracer"]["rows"] = []
    assert "What kernels truly did" not in render(document, "html", LIMITS)


def test_rows_that_the_document_leaves_out_are_told(document: dict[str, Any]) -> None:
    document["tracer"]["rows_left_out"] = 12
    assert "The JSON leaves out 12 of them." in render(document, "md", LIMITS)
