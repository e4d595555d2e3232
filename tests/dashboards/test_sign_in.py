"""Who may see what, by login and groups; what browsers asked for before; and that nothing is public by default."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashboards import serving, sign_in
from dashboards.person import ALONE, Person, person_of
from dashboards.sign_in import Targets
from warehouse.contract.errors import BadUseError
from warehouse.contract.identity import Directory
from warehouse.contract.settings import Settings

LEADS = Directory(leads={"carol": ("ml",), "group:bio": ("bio*",)})
SITE = Settings({"sign_in.operators": ("ann",), "sign_in.operator_groups": ("ops",)})


def settled(login: str, *groups: str) -> Person:
    return person_of(login, groups, LEADS, SITE, lambda: ["ml", "bio-1", "bio-2", "chem"])


@pytest.mark.parametrize(
    ("login", "groups", "expected", "role"),
    [
        ("ann", (), Person("ann", everything=True), "operator"),
        ("dora", ("ops",), Person("dora", everything=True), "operator"),
        ("carol", (), Person("carol", ("ml",)), "lead"),
        ("carol", ("bio",), Person("carol", ("bio-1", "bio-2", "ml")), "lead"),
        ("dora", ("bio",), Person("dora", ("bio-1", "bio-2")), "lead"),
        ("ben", ("other",), Person("ben"), "user"),
        ("ops", (), Person("ops"), "user"),  # a login is no group
        ("bio", (), Person("bio"), "user"),
        ("group:bio", (), Person("group:bio"), "user"),  # nor is one that is spelled as a group
    ],
)
def test_what_a_person_may_see(login: str, groups: tuple[str, ...], expected: Person, role: str) -> None:
    assert settled(login, *groups) == expected
    assert expected.role == role


def test_the_accounts_of_the_store_are_asked_for_leads_alone() -> None:
    def never() -> list[str]:
        raise AssertionError

    assert person_of("ben", (), LEADS, SITE, never) == Person("ben")
    assert person_of("ann", (), LEADS, SITE, never).everything


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "gpu.example.org", ""])  # noqa: S104 - refused
def test_without_a_sign_in_the_pages_are_for_this_machine(host: str) -> None:
    with pytest.raises(BadUseError, match="others could see everything"):
        serving.check(host, Settings())
    for here in ("127.0.0.1", "localhost", "::1"):
        serving.check(here, Settings())


@pytest.mark.parametrize("mode", ["oidc", "proxy"])
def test_a_sign_in_without_its_file_does_not_start(mode: str) -> None:
    with pytest.raises(BadUseError, match=f"sign_in.mode {mode} needs it"):
        serving.check("127.0.0.1", Settings({"sign_in.mode": mode}))


def test_what_the_pages_are_told_holds_paths_and_no_secrets(tmp_path: Path) -> None:
    source = serving.Source(None, "https://gpu.example.org", tmp_path / "token")
    told = serving.environment(source, SITE)
    assert told["TRUELOAD_PAGES_SERVER"] == "https://gpu.example.org"
    assert told["TRUELOAD_PAGES_TOKEN"] == str(tmp_path / "token")
    assert told["TRUELOAD_SIGN_IN__OPERATORS"] == "ann"
    assert "TRUELOAD_DATA" not in told


def test_a_page_is_remembered_for_its_browser_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("dashboards.sign_in.time.monotonic", lambda: now[0])
    targets = Targets()
    targets.remember("b1", ("job", {"id": "7"}))
    targets.remember("b2", ("waste", {}))
    targets.remember(None, ("job", {"id": "8"}))
    assert targets.take("b1") == ("job", {"id": "7"})
    assert targets.take("b1") is None
    assert targets.take(None) is None
    now[0] = sign_in.REMEMBER_SECONDS + 1
    assert targets.take("b2") is None


def test_browsers_beyond_the_bound_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_in, "MOST_REMEMBERED", 2)
    targets = Targets()
    for name in ("b1", "b2", "b3"):
        targets.remember(name, ("job", {}))
    assert [targets.take(name) is not None for name in ("b1", "b2", "b3")] == [True, True, False]


def test_who_is_alone_sees_everything() -> None:
    assert (ALONE.everything, ALONE.name) == (True, "")
