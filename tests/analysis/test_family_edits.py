"""What people change of families: done to those of other weeks too, written down, taken back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from analysis import family_edits
from analysis.account import GpuSeconds
from analysis.commands import families_command
from analysis.evidence import AttemptEvidence
from analysis.family_edits import MERGE, RENAME, SPLIT, UNDO, add_edit, fingerprint, history, in_force
from analysis.repetition import FamilyReport, find_families
from tests.analysis.worlds import World, allocation, attempt
from tests.analysis.worlds import job as stored_job
from warehouse.client import Composition
from warehouse.contract.errors import BadUseError, SettingsError
from warehouse.contract.model import AttemptState
from warehouse.contract.settings import Settings


def job(number: int, name: str, **more: Any) -> AttemptEvidence:
    facts: dict[str, Any] = {
        "attempt_key": f"c/{number}#0:1",
        "job_key": f"c/{number}#0",
        "scheduler_job_id": str(number),
        "cluster": "c",
        "state": AttemptState.COMPLETED,
        "start_at": 0.0,
        "end_at": 3600.0,
        "gpu_count": 1.0,
        "node_count": 1,
        "gpu_seconds": GpuSeconds(3600.0, 0.0, 0.0, 1800.0, 1800.0),
        "name": name,
        "user": "ada",
        "partition": "small" if number % 2 else "large",
    }
    return AttemptEvidence(**(facts | more))


UNET = [job(number, f"unet_lr0.{number}") for number in range(4)]
BERT = [job(number, f"bert_{number}") for number in range(10, 13)]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings({"families.edits_file": str(tmp_path / "families.jsonl")})


def found(settings: Settings, *jobs: AttemptEvidence) -> FamilyReport:
    return find_families(jobs or (*UNET, *BERT), settings)


def sizes(report: FamilyReport) -> list[int]:
    return sorted(len(family.members) for family in report.families)


def ids(settings: Settings) -> tuple[str, str]:
    of = find_families([*UNET, *BERT], Settings()).family_of()
    return of[UNET[0].job_key], of[BERT[0].job_key]


def test_a_family_is_renamed_and_says_by_whom(settings: Settings) -> None:
    unet, _ = ids(settings)
    edit = add_edit(settings, RENAME, unet, "Segmentation sweep")
    (family,) = (one for one in found(settings).families if one.family_id == unet)
    assert family.label == "Segmentation sweep"
    assert family.reason.endswith(f"; renamed ({edit.who})")


def test_a_merged_family_is_part_of_the_other(settings: Settings) -> None:
    unet, bert = ids(settings)
    add_edit(settings, MERGE, bert, unet)
    (family,) = found(settings).families
    assert (family.family_id, len(family.members)) == (unet, 7)
    assert family.gpu_seconds.allocated == 7 * 3600


def test_a_split_parts_by_column_or_parameter_and_ids_last(settings: Settings) -> None:
    unet, _ = ids(settings)
    add_edit(settings, SPLIT, unet, "partition")
    this_week = found(settings, *UNET)
    next_week = found(settings, *(job(number, f"unet_lr0.{number}") for number in range(20, 26)))
    assert sizes(this_week) == [2, 2]
    assert {one.family_id for one in this_week.families} == {one.family_id for one in next_week.families}
    add_edit(settings, SPLIT, unet, "lr")
    assert found(settings, *UNET).families == ()


def test_parts_can_be_merged_and_renamed(settings: Settings) -> None:
    unet, bert = ids(settings)
    add_edit(settings, SPLIT, unet, "partition")
    add_edit(settings, MERGE, family_edits.part_id(unet, "partition", "small"), bert)
    add_edit(settings, RENAME, family_edits.part_id(unet, "partition", "large"), "large ones")
    told = {one.family_id: (one.label, len(one.members)) for one in found(settings).families}
    assert told[family_edits.part_id(unet, "partition", "large")] == ("large ones", 2)
    assert told[bert][1] == 5


def test_no_job_is_lost_or_doubled(settings: Settings) -> None:
    unet, bert = ids(settings)
    add_edit(settings, SPLIT, unet, "partition")
    add_edit(settings, MERGE, bert, family_edits.part_id(unet, "partition", "large"))
    report = found(settings)
    placed = [member for family in report.families for member in family.members] + list(report.ungrouped)
    assert sorted(placed) == sorted(one.job_key for one in (*UNET, *BERT))


def test_what_was_taken_back_is_not_done_and_stays_written(settings: Settings) -> None:
    unet, bert = ids(settings)
    add_edit(settings, MERGE, bert, unet, "one project")
    before = fingerprint(settings)
    add_edit(settings, UNDO, "", "1")
    assert sizes(found(settings)) == [3, 4]
    assert [edit.do for edit in history(settings[family_edits.EDITS_FILE])] == [MERGE, UNDO]
    assert fingerprint(settings) != before


def test_merges_go_in_no_circle(settings: Settings) -> None:
    unet, bert = ids(settings)
    add_edit(settings, MERGE, bert, unet)
    with pytest.raises(BadUseError, match="part of it"):
        add_edit(settings, MERGE, unet, bert)
    with pytest.raises(BadUseError, match="part of it"):
        add_edit(settings, MERGE, unet, unet)
    path = Path(settings[family_edits.EDITS_FILE])
    line = json.loads(path.read_text(encoding="utf-8"))
    path.write_text("\n".join(json.dumps(line | {"family_id": a, "value": b}) for a, b in ((unet, bert), (bert, unet))))
    assert len(found(settings).family_of()) == 7


@pytest.mark.parametrize(("do", "value"), [(RENAME, ""), (RENAME, "x" * 201), (SPLIT, " "), (UNDO, "1"), (UNDO, "x")])
def test_a_change_that_makes_no_sense_is_refused_and_not_written(settings: Settings, do: str, value: str) -> None:
    with pytest.raises(BadUseError):
        add_edit(settings, do, "f-1", value)
    assert not Path(settings[family_edits.EDITS_FILE]).exists()


def test_without_a_file_nothing_can_be_changed() -> None:
    with pytest.raises(BadUseError, match=r"families\.edits_file"):
        add_edit(Settings(), RENAME, "f-1", "x")
    assert not in_force([])


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"do": "rename"}', '{"do":"x","family_id":"f","value":"v","who":"a","at":"b"}']
)
def test_a_damaged_line_is_named(settings: Settings, line: str) -> None:
    Path(settings[family_edits.EDITS_FILE]).write_text(line + "\n", encoding="utf-8")
    with pytest.raises(SettingsError, match="line 1"):
        found(settings)


def test_the_commands_write_and_show(settings: Settings) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError

    composition = Composition(never, lambda: settings, never, never, never, never)
    runner = CliRunner()
    for words in (
        ["rename", "f-1", "Sweep", "--why", "clear"],
        ["split", "f-1", "--by", "lr"],
        ["merge", "f-2", "f-1"],
    ):
        done = runner.invoke(families_command, words, obj=composition)
        assert (done.exit_code, "written down" in done.output) == (0, True), done.output
    assert runner.invoke(families_command, ["undo", "1"], obj=composition).exit_code == 0
    shown = json.loads(runner.invoke(families_command, ["edits", "--json"], obj=composition).output)
    assert [(one["number"], one["do"], one["why"]) for one in shown["edits"]] == [
        (1, "rename", "clear"),
        (2, "split", ""),
        (3, "merge", ""),
        (4, "undo", ""),
    ]
    assert "clear" in runner.invoke(families_command, ["edits"], obj=composition).output


def test_an_answer_follows_a_change_at_once(world: World, settings: Settings) -> None:
    sweep = [(stored_job(at, user="ada", name=f"unet_{at}"), attempt(at), allocation(at, f"GPU-{at}")) for at in (1, 2)]
    world.fill(record for own in sweep for record in own).settings = settings
    (family,) = world.ask("families")["families"]
    add_edit(settings, RENAME, family["family_id"], "Segmentation sweep")
    assert [one["label"] for one in world.ask("families")["families"]] == ["Segmentation sweep"]
