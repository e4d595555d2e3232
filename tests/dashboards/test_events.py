"""Events are told in words, and what is trouble is settled in one place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from collector.watch import KINDS as WATCHED
from dashboards import events


@pytest.mark.parametrize(("kind", "is_trouble"), [("xid", True), ("ecc_corrected", False), ("driver_changed", False)])
def test_what_is_trouble(kind: str, is_trouble: bool) -> None:
    assert events.is_trouble({"kind": kind}) is is_trouble


def test_a_kind_of_another_release_is_told_as_it_stands() -> None:
    assert events.words({"kind": "new_kind"}) == "new_kind"
    assert not events.is_trouble({"kind": "new_kind"})
    assert events.words({}) is None


def test_every_kind_that_the_agent_tells_has_words(repository: Path) -> None:
    assert set(WATCHED.values()) <= set(events.KINDS)
    source = "".join(path.read_text(encoding="utf-8") for path in (repository / "collector").glob("*.py"))
    told = set(re.findall(r'(?:_event|tell|count_event)\(\s*"([a-z_]+)"', source))
    assert told
    assert told <= set(events.KINDS)
