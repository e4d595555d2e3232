"""Teams, one person under several logins, pseudonyms: in the answers themselves, over a real store."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import trueload
from warehouse.client import LocalClient
from warehouse.contract.errors import SettingsError
from warehouse.contract.settings import Settings
from warehouse.importer import ImportOptions
from warehouse.loading import importers, load_files
from warehouse.store import open_store

COLUMNS = (
    "job_id,name,user,account,partition,gpu_count,start_at,end_at,state,driver_util_ratio,work_dir,comment,command"
)
SECRET = "0123456789abcdef" * 2
WHO = """
[users.alice]
team = "vision"
[users.alice-old]
same_as = "alice"
[accounts.ml]
team = "language"
project = "Perception"
cost_centre = "4711"
"""
Ask = Callable[..., Any]


def rows() -> str:
    """Nine jobs of an hour on one GPU: six of alice under two logins and the same name, three of bob."""
    lines = [COLUMNS]
    for number in range(9):
        user = "bob" if number >= 6 else ("alice", "alice-old")[number % 2]
        start = 1_790_000_000 + 4000 * number
        command = f"python /home/{user}/train.py --out /home/{user}/out --tag {user}-run"
        lines.append(
            f"{number},train-{user if number >= 6 else 'x'}-{number},{user},ml,gpu,1,{start},{start + 3600},completed,"
            f"0.2,/home/{user}/work,mail {user}@site,{command}"
        )
    return "\n".join(lines) + "\n"


@pytest.fixture
def ask(tmp_path: Path) -> Any:
    """Give a function that asks a question under some settings."""
    (tmp_path / "jobs.csv").write_text(rows(), encoding="utf-8")
    (tmp_path / "who.toml").write_text(WHO, encoding="utf-8")
    (tmp_path / "key").write_text(SECRET, encoding="utf-8")
    store = open_store(tmp_path / "data", create=True)
    loader = LocalClient(store, {}, Settings())
    load_files(loader, importers()["jobs_csv"], [tmp_path / "jobs.csv"], ImportOptions("c", "UTC"))

    def asked(question: str, settings: dict[str, object] | None = None, **parameters: str) -> Any:
        return LocalClient(store, trueload.answers(), Settings(settings or {})).ask(question, parameters)

    yield asked
    store.close()


@pytest.fixture
def who(tmp_path: Path) -> dict[str, object]:
    return {"identity.file": str(tmp_path / "who.toml"), "identity.pseudonym_key_file": str(tmp_path / "key")}


def hours(document: Any) -> dict[str | None, float]:
    return {row["key"]: row["gpu_seconds"]["allocated"] / 3600 for row in document["rows"]}


def test_waste_is_told_by_team_project_and_cost_centre(ask: Ask, who: dict[str, object]) -> None:
    assert hours(ask("waste", who, by="team")) == {"vision": 6, "language": 3}
    assert hours(ask("waste", who, by="project")) == {"Perception": 9}
    assert hours(ask("waste", who, by="cost_centre")) == {"4711": 9}
    assert hours(ask("waste", by="team")) == {None: 9}


def test_two_logins_of_one_person_are_one_user_and_one_family(ask: Ask, who: dict[str, object]) -> None:
    assert hours(ask("waste", by="user")) == {"alice": 3, "alice-old": 3, "bob": 3}
    assert hours(ask("waste", who, by="user")) == {"alice": 6, "bob": 3}
    sizes = sorted(len(family["members"]) for family in ask("families", who)["families"])
    assert sizes == [3, 6]


QUESTIONS = [
    ("waste", {"by": "user"}),
    ("waste", {"by": "account"}),
    ("waste", {"by": "job"}),
    ("jobs", {}),
    ("families", {}),
    ("recommend", {}),
    ("job", {"id": "c/1#0"}),
    ("weekly", {"week": "2026-W39"}),
    ("analyze", {}),
]


@pytest.mark.parametrize(("question", "parameters"), QUESTIONS, ids=str)
def test_an_answer_under_pseudonyms_names_nobody(
    ask: Ask, who: dict[str, object], question: str, parameters: dict[str, str]
) -> None:
    text = json.dumps(ask(question, who, pseudonyms="yes", **parameters))
    for word in ("alice", "bob", '"ml"', "account ml", "@site", "/home/alice"):
        assert word not in text, (word, text[max(0, text.find(word) - 80) :][:200])


def test_pseudonyms_change_no_figure_and_no_family(ask: Ask, who: dict[str, object]) -> None:
    plain, hidden = ask("waste", who, by="user"), ask("waste", who, by="user", pseudonyms="yes")
    assert sorted(hours(plain).values()) == sorted(hours(hidden).values())
    assert hours(ask("waste", who, by="team", pseudonyms="yes")) == {"vision": 6, "language": 3}
    members = [sorted(family["members"]) for family in ask("families", who)["families"]]
    assert [sorted(family["members"]) for family in ask("families", who, pseudonyms="yes")["families"]] == members


def test_pseudonyms_are_the_same_next_week_and_others_under_another_secret(
    ask: Ask, who: dict[str, object], tmp_path: Path
) -> None:
    first = hours(ask("waste", who, by="user", pseudonyms="yes"))
    assert hours(ask("waste", who, by="user", pseudonyms="yes")) == first
    (tmp_path / "key").write_text("f" * 32, encoding="utf-8")
    assert not first.keys() & hours(ask("waste", who, by="user", pseudonyms="yes")).keys()


def test_without_a_secret_there_are_no_pseudonyms(ask: Ask) -> None:
    with pytest.raises(SettingsError, match="pseudonyms need a secret"):
        ask("waste", by="user", pseudonyms="yes")
