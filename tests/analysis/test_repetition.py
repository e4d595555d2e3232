"""Which jobs are the same work repeated."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from analysis.account import GpuSeconds
from analysis.evidence import AttemptEvidence
from analysis.repetition import FamilyReport, families_document, find_families
from warehouse.contract.documents import FamiliesDocument
from warehouse.contract.model import AttemptState
from warehouse.contract.settings import Settings

HOUR = 3600.0


def job(number: int, name: str | None = "unet", user: str | None = "ada", **more: Any) -> AttemptEvidence:
    """One finished job of one GPU-hour on one GPU, of which nothing is known but accounting."""
    seconds = more.pop("gpu_seconds", GpuSeconds(allocated=HOUR, unknown=HOUR, failed=0.0))
    facts: dict[str, Any] = {
        "attempt_key": f"c/{number}#0:1",
        "job_key": f"c/{number}#0",
        "scheduler_job_id": str(number),
        "cluster": "c",
        "state": AttemptState.COMPLETED,
        "start_at": 0.0,
        "end_at": HOUR,
        "gpu_count": 1.0,
        "node_count": 1,
        "gpu_seconds": seconds,
        "name": name,
        "user": user,
    }
    return AttemptEvidence(**(facts | more))


def find(*jobs: AttemptEvidence) -> FamilyReport:
    return find_families(jobs, Settings())


def groups(report: FamilyReport) -> list[list[str]]:
    return sorted([key.split("/")[1].split("#")[0] for key in family.members] for family in report.families)


def test_a_sweep_is_one_family_and_says_what_varies() -> None:
    report = find(job(1, "unet_lr0.1_seed1"), job(2, "unet_lr0.01_seed1"), job(3, "unet_lr0.01_seed2"))
    (family,) = report.families
    assert family.members == ("c/1#0", "c/2#0", "c/3#0")
    assert family.varies == ("lr in the name", "seed in the name")
    assert family.reason == "same user ada, names like “unet_lr#_seed#”"
    assert family.label == "ada: unet_lr#_seed#"
    assert family.gpu_seconds.allocated == 3 * HOUR
    assert report.ungrouped == ()


def test_the_same_name_of_two_users_is_not_one_family() -> None:
    assert find(job(1, user="ada"), job(2, user="bob")).families == ()


def test_the_same_name_on_two_clusters_is_not_one_family() -> None:
    assert find(job(1), job(2, cluster="d")).families == ()


def test_different_work_of_one_user_is_apart() -> None:
    report = find(job(1, "train_unet"), job(2, "train_unet"), job(3, "train_bert"), job(4, "train_bert_large"))
    assert groups(report) == [["1", "2"], ["3", "4"]]


def test_an_account_stands_in_for_an_unknown_user() -> None:
    jobs = [job(1, user=None, account="bio"), job(2, user=None, account="bio"), job(3, user=None, account="phys")]
    report = find(*jobs)
    assert groups(report) == [["1", "2"]]
    assert report.families[0].reason == "same account bio, all named “unet”"


@pytest.mark.parametrize("name", ["bash", "interactive", "test", "jupyter"])
def test_sessions_are_never_a_family(name: str) -> None:
    report = find(job(1, name), job(2, name))
    assert report.families == ()
    assert report.share_of_gpu_seconds["interactive_or_other"] == 1.0


def test_a_job_that_the_scheduler_calls_interactive_is_never_in_a_family() -> None:
    assert find(job(1, interactive=True), job(2, interactive=True)).families == ()


def test_all_tasks_of_an_array_are_one_family_whatever_they_are_called() -> None:
    names = ("step", "dock", "fold", "score")
    report = find(*(job(number, name, array_job_id="70") for number, name in enumerate(names)))
    assert groups(report) == [["0", "1", "2", "3"]]
    assert "array task" in report.families[0].varies


def test_attempts_of_one_job_are_no_repeat() -> None:
    report = find(job(1), job(1, attempt_key="c/1#0:2", start_at=HOUR))
    assert report.families == ()
    assert report.ungrouped == ("c/1#0",)


def test_the_parts_of_a_heterogeneous_job_are_no_repeat() -> None:
    parts = (job(1, het_job_id="1"), job(2, het_job_id="1"))
    assert find(*parts).families == ()
    assert groups(find(*parts, job(3))) == [["1", "2", "3"]]


def test_without_names_the_working_directory_tells() -> None:
    jobs = [job(number, None, work_dir=f"/home/ada/dock/seed_{number}") for number in (1, 2)]
    report = find(*jobs, job(3, None, work_dir="/home/ada/fold"))
    assert groups(report) == [["1", "2"]]
    assert report.families[0].reason == "same user ada, same working directory (/home/ada/dock)"


def test_a_generic_name_is_told_apart_by_its_program() -> None:
    jobs = [job(number, "train", command=f"python {script}.py --lr {number}") for number, script in enumerate("ssbb")]
    assert groups(find(*jobs)) == [["0", "1"], ["2", "3"]]


def test_without_names_and_programs_the_request_tells() -> None:
    report = find(job(1, None), job(2, None), job(3, None, gpu_count=8.0))
    assert groups(report) == [["1", "2"]]
    assert "same request (1 GPU, 1 node" in report.families[0].reason


def test_jobs_of_which_nothing_is_known_are_in_no_family() -> None:
    report = find(job(1, None, None), job(2, None, None))
    assert report.ungrouped == ("c/1#0", "c/2#0")
    assert report.share_of_gpu_seconds["interactive_or_other"] == 1.0


def test_a_family_keeps_its_id_when_its_members_change() -> None:
    this_week = find(job(1, "unet_seed1"), job(2, "unet_seed2"))
    next_week = find(job(8, "unet_seed8"), job(9, "unet_big"), job(10, "bert"))
    assert this_week.families[0].family_id == next_week.families[0].family_id == "f-50fa09777f125f99"


@given(st.permutations([job(1, "unet_1"), job(2, "unet_2"), job(3, "bert"), job(4, "bert"), job(5, "bash")]))
def test_the_order_of_the_attempts_does_not_matter(jobs: list[AttemptEvidence]) -> None:
    assert find(*jobs) == find(*sorted(jobs, key=lambda one: one.job_key))


def test_the_share_table_counts_every_gpu_second_once() -> None:
    report = find(job(1), job(2), job(3, "bert"), job(4, "moe", gpu_count=8.0), job(5, "bash"))
    assert report.share_of_gpu_seconds == {
        "repetitive_single_gpu": 0.4,
        "isolated_single_gpu": 0.2,
        "multi_gpu": 0.2,
        "interactive_or_other": 0.2,
    }


def test_without_gpu_time_the_shares_are_unknown() -> None:
    assert set(find().share_of_gpu_seconds.values()) == {None}


@given(st.lists(st.sampled_from(["unet_1", "unet_2", "bert", "bash", "", "train"]), max_size=12))
def test_every_job_is_in_exactly_one_place(called: list[str]) -> None:
    jobs = [job(number, name) for number, name in enumerate(called)]
    report = find(*jobs)
    placed = [key for family in report.families for key in family.members] + list(report.ungrouped)
    assert sorted(placed) == sorted(one.job_key for one in jobs)
    assert all(len(family.members) >= 2 for family in report.families)
    if jobs:
        assert sum(share or 0.0 for share in report.share_of_gpu_seconds.values()) == pytest.approx(1.0)


def test_the_largest_family_stands_first() -> None:
    report = find(job(1, "bert"), job(2, "bert"), job(3), job(4), job(5))
    assert [len(family.members) for family in report.families] == [3, 2]


def test_a_name_of_ten_thousand_characters_gives_a_short_label() -> None:
    report = find(job(1, "x" * 10_000), job(2, "x" * 10_000))
    assert len(report.families[0].label) < 120
    assert len(report.families[0].reason) < 160


def test_the_document_has_the_keys_of_the_contract() -> None:
    document = families_document(find(job(1), job(2), job(3, "bert")))
    TypeAdapter(FamiliesDocument).validate_python(document)
    families = document["families"]
    assert isinstance(families, list)
    assert families[0]["members"] == ["c/1#0", "c/2#0"]
    assert families[0]["attempts"] == 2
    assert families[0]["used_ratio"] is None
    assert families[0]["coverage_ratio"] == 0.0
    assert families[0]["gpu_seconds"]["used"] is None
    assert document["ungrouped"] == ["c/3#0"]


def test_a_reason_says_what_was_submitted_together_and_how_long_runs_are() -> None:
    # Three within a minute of each other, a fourth an hour later; five runs of 1 to 1.4 h.
    submits: list[dict[str, Any]] = [{"submit_at": at} for at in (0.0, 50.0, 100.0, 3700.0)]
    (family,) = find(*(job(at, **submit) for at, submit in enumerate(submits))).families
    assert "3 of 4 submitted together" in family.reason
    lengths: list[dict[str, Any]] = [{"start_at": 0.0, "end_at": hours * 3600.0} for hours in (1.0, 1.1, 1.2, 1.3, 1.4)]
    (family,) = find(*(job(at, **length) for at, length in enumerate(lengths))).families
    assert family.reason.endswith("runs of 1 to 1.4 h")


def test_a_reason_is_silent_where_submits_or_alike_lengths_are_not_known() -> None:
    (family,) = find(job(1, submit_at=0.0), job(2)).families
    assert "together" not in family.reason
    lengths: list[dict[str, Any]] = [{"start_at": 0.0, "end_at": hours * 3600.0} for hours in (1.0, 1.1, 1.2, 3.0, 9.0)]
    (family,) = find(*(job(at, **length) for at, length in enumerate(lengths))).families
    assert "runs of" not in family.reason
