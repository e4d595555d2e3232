"""The benchmark of readers: what it asks has an answer, and a second of it finds nothing wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.benchmark import BenchRequest
from analysis.benchmarks import readers
from warehouse.contract.settings import Settings


def _none(_data: Path, _create: bool) -> object:
    return pytest.fail("it starts a server of its own")


@pytest.mark.slow
def test_readers_beside_batches_are_told_what_is_right(tmp_path: Path) -> None:
    request = BenchRequest(
        tmp_path,
        full=False,
        open_client=_none,
        settings=Settings(),
        seconds=1.0,
    )
    result = readers.run(request)
    # How long answers take depends on what else the machine does; docs/benchmarks.md has a run of a minute.
    assert [bar for bar in result.bars if "p95" not in bar.name and not bar.holds] == [], result.figures
    assert result.figures["answers"]
    assert result.figures["batches_due"] == 200


def test_an_answer_that_differs_is_seen_and_the_moving_end_of_the_store_is_not_one() -> None:
    assert readers._still(b'{"as_of":"then","rows":[1]}') == readers._still(b'{"as_of":"now","rows":[1]}')
    assert readers._still(b'{"as_of":"then","rows":[1]}') != readers._still(b'{"as_of":"then","rows":[]}')
