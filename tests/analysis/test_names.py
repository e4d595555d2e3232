"""What is read out of a job's name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.names import is_interactive, pattern, stem, take_apart, vocabulary
from warehouse.contract.settings import Settings

KNOWN = vocabulary(Settings())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("unet_lr0.01_seed3_fold2", ("unet",)),
        ("resnet50-lr1e-4", ("resnet",)),
        ("lr_0.1_resnet", ("resnet",)),
        ("230207_spatial_E_6_v_60", ("spatial", "e")),
        ("cleanup_2023-02-08_11-32-20_00e3de", ("cleanup",)),
        ("dock 6f1c2d3e-aaaa-bbbb-cccc-0123456789ab", ("dock",)),
        ("32tmds_lat_wt.sh", ("tmds", "lat", "wt")),
        ("e2esc-1", ("e#esc",)),
        ("10000struc_ds4.5krep0.9", ("struc", "ds#krep")),
        ("seed3", ()),
        ("", ()),
    ],
)
def test_numbers_dates_hashes_and_parameters_are_masked(name: str, words: tuple[str, ...]) -> None:
    assert take_apart(name, KNOWN).words == words


def test_masked_parts_are_kept_as_axes() -> None:
    assert take_apart("unet_lr0.01_rep_4_x7q", KNOWN).axes == (("lr", "0.01"), ("rep", "4"), ("number", "7"))


def test_a_small_learning_rate_keeps_its_exponent() -> None:
    assert take_apart("unet_lr1e-4", KNOWN).axes != take_apart("unet_lr1e-3", KNOWN).axes


@pytest.mark.parametrize(
    ("name", "leading"),
    [
        ("ga_bolus", ("ga",)),
        ("train_unet_big", ("train", "unet")),
        ("run_train_bert", ("run", "train", "bert")),
        ("a_unet", ("a", "unet")),
        ("train", ("train",)),
        ("wrap", ()),
        ("name00002626", ()),
    ],
)
def test_the_stem_ends_with_the_first_word_that_tells(name: str, leading: tuple[str, ...]) -> None:
    assert stem(take_apart(name, KNOWN), KNOWN) == leading


@pytest.mark.parametrize(
    "name",
    ["bash", "interactive", "test", "test.sh", "test_2", "TEST", "gpu-test", "jupyter-lab", "sys/dashboard/jupyter"],
)
def test_sessions_and_trials_are_interactive(name: str) -> None:
    assert is_interactive(take_apart(name, KNOWN), KNOWN)


@pytest.mark.parametrize("name", ["ErrorTest", "unet_test", "x2ct_test_alex.sh", "train", "run", "job", ""])
def test_work_with_test_in_its_name_is_not_interactive(name: str) -> None:
    assert not is_interactive(take_apart(name, KNOWN), KNOWN)


@pytest.mark.parametrize(
    ("names", "common"),
    [
        (["Unet_lr0.1_seed12", "Unet_lr0.01_seed3"], "Unet_lr#_seed#"),
        (["5HTA1_BE_rep_1", "5HTA1_PR_rep_2"], "#HTA#_…"),
        (["beta2", "beta2"], "beta2"),
        (["dock", "fold"], ""),
    ],
)
def test_a_pattern_keeps_what_names_have_in_common_as_a_person_wrote_it(names: list[str], common: str) -> None:
    assert pattern(names) == common


@given(st.text(max_size=200))
def test_any_text_can_be_taken_apart(name: str) -> None:
    parts = take_apart(name, KNOWN)
    assert all(parts.words)
    assert set(stem(parts, KNOWN)) <= set(parts.words)


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_names_that_differ_only_in_a_number_have_the_same_words(one: int, other: int) -> None:
    assert take_apart(f"dock_{one}_of", KNOWN).words == take_apart(f"dock_{other}_of", KNOWN).words
