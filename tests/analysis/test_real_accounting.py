"""The account on accounting of real sites, against figures counted by others (the README of each source)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis.pipeline import ANSWERS
from warehouse.client import LocalClient
from warehouse.contract.settings import Settings
from warehouse.importer import ImportOptions
from warehouse.loading import importers, load_files
from warehouse.store import open_store

HOUR = 3600.0
pytestmark = pytest.mark.data


@pytest.fixture
def client(tmp_path: Path) -> Iterator[LocalClient]:
    """Give an empty store of its own."""
    client = LocalClient(open_store(tmp_path, create=True), ANSWERS, Settings())
    yield client
    client.close()


def load(client: LocalClient, format_name: str, path: Path) -> dict[str, Any]:
    """Import a file and give the account of all that is in it."""
    load_files(client, importers()[format_name], [path], ImportOptions("cluster", "UTC"))
    return client.ask("waste", {})


def test_accounting_of_slurm_counts_every_attempt_and_says_nothing_of_use(client: LocalClient, data_root: Path) -> None:
    document = load(client, "sacct", data_root / "slurm-22.05" / "sacct_P_duplicates.txt")
    amounts = document["gpu_seconds"]
    assert (amounts["allocated"], amounts["unknown"]) == (960.0, 960.0)
    assert (amounts["used"], amounts["held_idle"], document["used_ratio"]) == (None, None, None)
    assert (document["coverage_ratio"], document["rung"]) == (0.0, None)


def test_means_of_a_real_site_give_its_published_figures(client: LocalClient, data_root: Path) -> None:
    document = load(client, "clustercockpit", data_root / "clustercockpit_nhr" / "jobs.csv")
    amounts = document["gpu_seconds"]
    assert document["jobs"] == 182
    assert amounts["allocated"] / HOUR == pytest.approx(2873.827, rel=1e-3)
    assert amounts["held_idle"] / HOUR == pytest.approx(770.242, rel=1e-3)
    assert document["used_ratio"] == pytest.approx(0.73198, rel=1e-3)
    assert [amounts[name] for name in ("no_process", "with_process", "gaps")] == [None, None, None]
    assert document["assumed_gpu_seconds"] == pytest.approx(amounts["allocated"])
