"""Charts as inline SVG: the right lengths, gaps as gaps, words for who cannot see them, and no markup of users."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from dashboards.report import svg
from dashboards.report.svg import Line, Range, Share

NS = "{http://www.w3.org/2000/svg}"


def _read(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314 - our own text


def test_a_bar_gives_each_part_its_share_of_the_width() -> None:
    drawn = _read(svg.stacked_bar([Share("Used", 30.0, "#0072B2"), Share("Gaps", 10.0, "#F2C777")], "of it", 400.0))
    assert [(rect.get("x"), rect.get("width")) for rect in drawn.iter(f"{NS}rect")] == [
        ("0.0", "300.0"),
        ("300.0", "100.0"),
    ]
    assert [text.text for text in drawn.iter(f"{NS}text")] == ["75%", "25%"]


def test_a_narrow_part_has_no_label_but_a_title() -> None:
    drawn = _read(svg.stacked_bar([Share("Used", 99.0, "#0072B2"), Share("Down", 1.0, "#3F4650")], "of it", 400.0))
    assert [text.text for text in drawn.iter(f"{NS}text")] == ["99%"]
    assert [title.text for title in drawn.iter(f"{NS}title")] == ["of it", "Used: 99.0%", "Down: 1.0%"]


def test_a_bar_of_nothing_is_not_drawn() -> None:
    assert svg.stacked_bar([Share("Used", 0.0, "#0072B2")], "of it") == ""


def test_a_line_is_broken_where_a_value_is_absent() -> None:
    text = svg.trend([Line("used", [0.5, 0.6, None, 0.7, 0.8], "#0072B2")], list("abcde"), "trend", unit="")
    assert len(list(_read(text).iter(f"{NS}polyline"))) == 2


def test_a_trend_without_values_is_not_drawn() -> None:
    assert svg.trend([Line("used", [None, None], "#0072B2")], ["a", "b"], "trend", unit="") == ""


def test_a_trend_of_zeros_lies_on_its_axis() -> None:
    drawn = _read(svg.trend([Line("used", [0.0, 0.0], "#0072B2")], ["a", "b"], "trend", unit=""))
    line = next(drawn.iter(f"{NS}polyline")).get("points")
    assert line == "56.0,146.0 628.0,146.0"


def test_a_sparkline_ends_in_a_dot() -> None:
    drawn = _read(svg.sparkline([1.0, None, 2.0], "#0072B2", "weeks", 90.0, 20.0))
    dots = list(drawn.iter(f"{NS}circle"))
    assert (dots[-1].get("cx"), dots[-1].get("cy")) == ("88.0", "2.0")


def test_a_range_spans_low_to_high_and_marks_the_likely_value() -> None:
    drawn = _read(svg.range_bar(Range(10.0, 20.0, 40.0), 100.0, "#0072B2", "saving", width=104.0))
    band, mark = drawn.iter(f"{NS}rect")
    assert (band.get("x"), band.get("width"), mark.get("x")) == ("12.0", "30.0", "20.5")


def test_a_mere_bound_has_no_mark() -> None:
    drawn = _read(svg.range_bar(Range(0.0, None, 40.0), 100.0, "#0072B2", "saving"))
    assert len(list(drawn.iter(f"{NS}rect"))) == 1


def test_text_of_users_is_no_markup() -> None:
    text = svg.stacked_bar([Share("</title><script>x</script>", 1.0, "#0072B2")], "\"' onload='x", 400.0)
    assert "<script>" not in text
    assert _read(text).get("aria-label") == "\"' onload='x"
