"""The chart, rendered once for all tests of it."""

from __future__ import annotations

import pytest

from tests.deploy import chart


@pytest.fixture(scope="session")
def all_ci() -> dict[str, chart.Rendered]:
    """Give what each file of ci/ makes, by its name."""
    return {path.name.removesuffix("-values.yaml"): chart.rendered(chart.ci_values(path)) for path in chart.ci_files()}


@pytest.fixture(scope="session")
def everything(all_ci: dict[str, chart.Rendered]) -> chart.Rendered:
    """Give what comes out with all that can be on at once."""
    return all_ci["everything"]
