"""The benchmark of pages measures what it says, on a small size."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis import pipeline
from analysis.benchmark import BenchRequest
from analysis.benchmarks import pages
from warehouse.contract.settings import Settings


def request(folder: Path) -> BenchRequest:
    """Give the request of a short run."""
    return BenchRequest(
        folder, full=False, open_client=lambda *_given: None, settings=Settings(), answers=lambda: pipeline.ANSWERS
    )


@pytest.mark.slow
@pytest.mark.slow
def test_pages_are_answered_without_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "SMALL", 4)
    monkeypatch.setattr(pages, "SHORT_SECONDS", 2.0)
    result = pages.run(request(tmp_path))
    assert result.figures["rows_by_hour"] == 4 * pages.DAYS * 23
    assert result.figures["wrong"] == {}
    assert all(result.figures["first_seconds"][question] > 0 for question in pages.QUESTIONS)  # type: ignore[index]
