"""Charts hold on a phone of 390 pixels as on a screen of 1280: names have lines of their own, legends have room."""

from __future__ import annotations

from dashboards import charts

ITEM = {"saving_gpu_seconds": {"low": 3600.0, "likely": None, "high": 7200.0}}
LEGEND_LINE_PIXELS = 19
"""What Plotly gives a name of a legend in its usual size."""


def test_each_saving_has_its_title_on_a_line_above_its_bar() -> None:
    figure = charts.savings([ITEM, ITEM], ["release: <b>", "share " * 40])
    names = figure.layout.annotations
    assert [(name.y, name.x, name.xref, name.xanchor) for name in names] == [
        (0, 0, "paper", "left"),
        (1, 0, "paper", "left"),
    ]
    assert names[0].text == "release: &lt;b&gt;"
    assert len(names[1].text) == 60
    assert figure.layout.yaxis.showticklabels is False
    assert list(figure.data[0].x) == [1.0, 1.0]


def test_the_legend_of_shares_has_room_for_a_line_each() -> None:
    shares = [("repeated, on one GPU", 0.5), ("not repeated", 0.3), ("several", 0.1), ("other", 0.1)]
    figure = charts.share_by_kind(shares)
    assert figure.layout.height / 2 > len(shares) * LEGEND_LINE_PIXELS  # Plotly scrolls what needs more than half
