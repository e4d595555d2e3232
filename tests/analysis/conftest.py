"""A small store for the tests of analyses. How to fill it stands in ``worlds.py``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.analysis.worlds import World
from warehouse.store import Store, open_store


@pytest.fixture(scope="session")
def shared_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Open one store for all tests of analyses: opening takes longer than most of them."""
    store = open_store(tmp_path_factory.mktemp("store"), create=True)
    yield store
    store.close()


@pytest.fixture
def world(shared_store: Store) -> World:
    """Give an empty store."""
    return World(shared_store).fill([])
