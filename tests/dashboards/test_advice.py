"""What is advised alike for many subjects is one piece of advice."""

from __future__ import annotations

from typing import Any

from dashboards.advice import alike, subject_words, without_alternatives

HOUR = 3600.0


def _item(title: str, job: str, likely: float, remedy: str = "release") -> dict[str, Any]:
    saving = {"low": 0.0, "likely": likely * HOUR, "high": 2 * likely * HOUR}
    return {"title": title, "remedy": remedy, "subject": {"kind": "job", "id": job}, "saving_gpu_seconds": saving}


def test_the_same_advice_for_several_subjects_stands_once_in_the_place_of_its_best() -> None:
    items = [_item("notebook", "a", 9), _item("other", "b", 8), _item("notebook", "c", 7), _item("notebook", "d", 6)]
    first, second = alike(items)
    assert first.title == "notebook (the first of 3 alike)"
    assert [subject_words(item) for item in (first.first, *first.others)] == ["job a", "job c", "job d"]
    assert (second.title, second.others) == ("other", [])


def test_savings_are_not_added_up() -> None:
    (only,) = alike([_item("notebook", "a", 9), _item("notebook", "b", 7)])
    assert only.saving == "9.00 GPU-h (0.00 to 18.0)"


def test_another_remedy_for_the_same_title_is_other_advice() -> None:
    assert len(alike([_item("notebook", "a", 9), _item("notebook", "a", 9, "share")])) == 2


def test_what_is_to_be_done_instead_of_something_better_is_left_out() -> None:
    first = {"recommendation_id": "a", "excludes": ["b"]}
    instead = {"recommendation_id": "b", "excludes": ["a"]}
    third = {"recommendation_id": "c", "excludes": ["b"]}
    assert without_alternatives([first, instead, third]) == [first, third]


def test_a_subject_without_id_has_no_words() -> None:
    assert subject_words({}) is None
