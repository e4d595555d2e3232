"""The file that says who is who, and pseudonyms."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from warehouse.contract.errors import SettingsError
from warehouse.contract.identity import Directory, login_of, pseudonym, read_directory, read_key

TEXT = """
[users.alice]
team = "vision"
[users.al]
same_as = "alice"
[users.carol]
cost_centre = "9"
[accounts."proj-*"]
cost_centre = "2"
[accounts.proj-a]
project = "A"
team = "language"
cost_centre = "1"
"""


def directory(folder: Path, text: str = TEXT) -> Directory:
    path = folder / "who.toml"
    path.write_text(text, encoding="utf-8")
    return read_directory(str(path))


@pytest.mark.parametrize(
    ("kind", "user", "account", "expected"),
    [
        ("team", "alice", "proj-a", "vision"),
        ("team", "bob", "proj-a", "language"),
        ("team", "bob", None, None),
        ("project", "alice", "proj-a", "A"),
        ("cost_centre", "alice", "proj-a", "1"),
        ("cost_centre", "alice", "proj-b", "2"),
        ("cost_centre", "carol", "ml", "9"),
        ("cost_centre", None, None, None),
    ],
)
def test_a_job_belongs_where_its_user_and_account_do(
    tmp_path: Path, kind: str, user: str | None, account: str | None, expected: str | None
) -> None:
    assert directory(tmp_path).group(kind, user, account) == expected


def test_logins_of_one_person_have_one_that_stands_for_them(tmp_path: Path) -> None:
    assert directory(tmp_path).aliases() == {"al": "alice"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[people.a]\nteam='x'", "unknown section [people]; there are users, accounts, leads"),
        ("[users.a]\nteem='x'", "users.a: unknown 'teem'; there are cost_centre, mail, project, same_as, team"),
        ("[users.a]\nteam=1", "users.a: expected texts"),
        ("[users]\na='x'", "users.a: expected texts"),
        ("users='x'", "[users] must hold tables"),
        ("[users.a]\nsame_as='b'\n[users.b]\nsame_as='c'", "users.a: same_as 'b', which is itself the same as another"),
        ("[", "cannot be read"),
    ],
)
def test_a_file_that_is_not_understood_says_where(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        directory(tmp_path, text)
    assert message in str(caught.value)
    assert str(tmp_path / "who.toml") in str(caught.value)


def test_no_file_is_an_empty_directory() -> None:
    assert read_directory("") == Directory()


def test_a_pseudonym_depends_on_secret_kind_and_name_alone() -> None:
    parts = (("k", "user", "a"), ("k", "user", "b"), ("k", "account", "a"), ("l", "user", "a"))
    names = [pseudonym(*part) for part in parts]
    assert len(set(names)) == 4
    assert names[0] == pseudonym("k", "user", "a")
    assert names[0].startswith("user-")


def test_exact_names_are_found_under_their_pseudonyms(tmp_path: Path) -> None:
    hidden = directory(tmp_path).pseudonymous("k")
    assert hidden.group("team", pseudonym("k", "user", "alice"), None) == "vision"
    assert hidden.group("cost_centre", None, pseudonym("k", "account", "proj-b")) is None


@pytest.mark.parametrize(("content", "message"), [(None, "cannot be read"), ("short", "16 or more letters and digits")])
def test_a_secret_that_is_none_is_refused(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(SettingsError, match=message):
        read_key(str(path))
    with pytest.raises(SettingsError, match="openssl rand -hex 32"):
        read_key("")


def test_a_number_is_the_login_that_the_machine_knows() -> None:
    assert login_of(str(os.getuid())) == pwd.getpwuid(os.getuid()).pw_name
    assert login_of("4294967294123") is None


def test_a_lead_answers_for_accounts_by_name_and_by_pattern(tmp_path: Path) -> None:
    known = directory(tmp_path, '[leads.carol]\naccounts = ["ml", "proj-*"]\n[users.carol]\nmail = "c@example.org"')
    assert known.led_by("carol", ["ml", "ml2", "proj-a", "bio"]) == ("ml", "proj-a")
    assert known.led_by("alice", ["ml"]) == ()
    assert (known.mail("carol"), known.mail("alice")) == ("c@example.org", None)


@pytest.mark.parametrize("text", ["[leads]\na = 1", "[leads.a]\naccounts = 1", "[leads.a]\nmail = 'x'", "leads = 1"])
def test_a_lead_without_accounts_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError, match="leads"):
        directory(tmp_path, text)
