"""Settings: defaults, file, environment, and errors that name the nearest known key."""

from __future__ import annotations

from pathlib import Path

import pytest

from warehouse.contract.errors import SettingsError
from warehouse.contract.settings import AnySetting, Setting, Settings, load

IDLE = Setting("waste", "idle_stretch_seconds", 300.0, "seconds", "reason", 0, 86400)
NAME = Setting("cluster", "name", "cluster", "name", "reason")
EXCLUDED = Setting("advice", "excluded_users", ("root",), "login names", "reason")
STRICT = Setting(section="agent", key="strict", default=False, unit="yes or no", reason="reason")
KNOWN: tuple[AnySetting, ...] = (IDLE, NAME, EXCLUDED, STRICT)


def settings_file(tmp_path: Path, text: str) -> Path:
    """Write a settings file."""
    path = tmp_path / "trueload.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_without_file_and_environment_every_value_is_the_default() -> None:
    settings = load(KNOWN, None, {})
    assert (settings[IDLE], settings[NAME], settings.origin(IDLE)) == (300.0, "cluster", "default")


def test_the_environment_wins_over_the_file_and_both_are_named_as_origin(tmp_path: Path) -> None:
    path = settings_file(tmp_path, '[waste]\nidle_stretch_seconds = 60\n[cluster]\nname = "a"\n')
    settings = load(KNOWN, path, {"TRUELOAD_CLUSTER__NAME": "b"})
    assert (settings[IDLE], settings[NAME]) == (60.0, "b")
    assert (settings.origin(IDLE), settings.origin(NAME)) == (str(path), "TRUELOAD_CLUSTER__NAME")


def test_lists_and_booleans_are_read_from_text() -> None:
    settings = load(KNOWN, None, {"TRUELOAD_ADVICE__EXCLUDED_USERS": "a, b,", "TRUELOAD_AGENT__STRICT": "yes"})
    assert (settings[EXCLUDED], settings[STRICT]) == (("a", "b"), True)


def test_an_unknown_key_names_the_nearest_known_one(tmp_path: Path) -> None:
    path = settings_file(tmp_path, "[waste]\nidle_strech_seconds = 60\n")
    with pytest.raises(SettingsError, match=r"idle_strech_seconds; the nearest is waste\.idle_stretch_"):
        load(KNOWN, path, {})


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"TRUELOAD_WASTE__IDLE_STRETCH_SECONDS": "long"}, "must be a float in seconds"),
        ({"TRUELOAD_WASTE__IDLE_STRETCH_SECONDS": "-1"}, "outside 0 to 86400"),
        ({"TRUELOAD_WASTE__IDLE_STRETCH_SECONDS": "nan"}, "outside"),
        ({"TRUELOAD_AGENT__STRICT": "perhaps"}, "must be a bool"),
        ({"TRUELOAD_WASTE": "1"}, "unknown setting waste"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused(environment: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        load(KNOWN, None, environment)


@pytest.mark.parametrize(
    "text", ["not toml at all", "name = 1\n", '[cluster]\nname = ["x"]\n', "[cluster]\nname = 5\n"]
)
def test_a_file_that_cannot_be_used_is_refused_by_name(tmp_path: Path, text: str) -> None:
    path = settings_file(tmp_path, text)
    with pytest.raises(SettingsError, match=r"trueload\.toml"):
        load(KNOWN, path, {})


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        load(KNOWN, tmp_path / "none.toml", {})


def test_names_of_files_and_tests_in_the_environment_are_no_settings() -> None:
    names = ("TRUELOAD_DATA", "TRUELOAD_CONFIG", "TRUELOAD_TRACER_LOG")
    assert load(KNOWN, None, dict.fromkeys(names, "/x")) == Settings()


def test_a_section_that_is_named_as_a_reserved_prefix_can_be_set_all_the_same() -> None:
    scan = Setting("tracer", "scan_seconds", 30.0, "seconds", "reason", 1, 3600)
    told = load([scan], None, {scan.variable: "7", "TRUELOAD_TRACER_FLUSH_SECONDS": "2"})
    assert told[scan] == 7.0
