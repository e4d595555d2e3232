"""The benchmark of size counts what it wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

import trueload
from analysis.benchmark import BenchRequest
from analysis.benchmarks import size
from analysis.benchmarks._fleet import Fleet
from warehouse.client import open_client
from warehouse.contract.settings import Settings


def request(data_root: Path) -> BenchRequest:
    settings = Settings()
    return BenchRequest(
        data_root,
        full=False,
        open_client=lambda data, create: open_client(data, trueload.answers(), settings, create=create),
        settings=settings,
    )


def test_size_counts_every_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size, "SMALL", Fleet(gpus=2, seconds=7200.0))
    figures = size.run(request(tmp_path)).figures
    assert figures["samples"] == 1440
