"""Every GPU for a family or a job: the answer of a store, and the command that shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import trueload
from analysis.gpu_tables import gpu_options_text
from analysis.tables import show
from tests.analysis.worlds import World, allocation, attempt, job, sample
from warehouse.contract.errors import BadUseError, NotFoundError
from warehouse.contract.model import Device

V100, A100 = "Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-40GB"
GIB = 2.0**30


def fill(world: World) -> None:
    """Fill in three runs of two hours on a V100 and three of one hour on an A100, all of one sweep."""
    records: list[Any] = []
    samples: list[dict[str, Any]] = []
    for number in range(1, 7):
        gpu, hours, memory = (V100, 2, 16) if number <= 3 else (A100, 1, 40)
        device, seconds = f"GPU-{number}", 3600.0 * hours
        records += [
            Device(device, "c", "n0", 1_793_577_600.0, gpu_model=gpu, memory_bytes=memory * 2**30),
            job(number, name=f"unet_lr{number}", user="ada", command="python train.py"),
            attempt(number, end=seconds, submit_at=1_793_577_600.0 - 600),
            allocation(number, device, end=seconds, gpu_model=gpu),
        ]
        busy = {"driver_util_ratio": 0.9, "memory_used_bytes": 8 * GIB, "process_count": 1}
        samples += [sample(60.0 * at, device, number, **busy) for at in range(60 * hours)]
    world.fill(records, samples)


@pytest.fixture
def answer(world: World) -> dict[str, Any]:
    fill(world)
    (family,) = world.ask("families")["families"]
    return world.ask("gpu_options", id=family["family_id"])


def test_a_family_is_compared_with_every_gpu_of_the_catalogue(answer: dict[str, Any]) -> None:
    assert answer["gpu"] == {"name": V100, "ids": ["v100-sxm2-16"], "wait_seconds": 600.0}
    assert answer["memory_bytes"] == 8 * GIB
    assert answer["busy_ratio"] == pytest.approx(0.9)
    names = {one["name"] for one in answer["options"]}
    assert {A100, "h100-sxm-80", "t4"} <= names
    assert "a100-sxm4-40" not in names  # the site's own name stands for it
    assert {one["name"]: one["reason"] for one in answer["not_estimable"]}["b100"].startswith("the catalogue lacks")


def test_each_option_says_its_ratios_and_where_they_come_from(answer: dict[str, Any]) -> None:
    (measured,) = [one for one in answer["options"] if one["name"] == A100]
    assert measured["estimator"] == "measured"
    assert measured["time_ratio"]["likely"] == pytest.approx(0.5)
    assert measured["speed_ratio"]["likely"] == pytest.approx(2.0)
    assert measured["at_site"]
    assert measured["fits"]
    assert measured["energy_ratio"]["likely"] == pytest.approx(0.5 * 400 / 300)
    ranks = [(one["cost_ratio"] or {"likely": 99.0})["likely"] for one in answer["options"]]
    assert ranks == sorted(ranks)
    small = next(one for one in answer["options"] if one["name"] == "p4")
    assert small["fits"] is False  # 8 GiB, a tenth of which stays free


def test_advice_and_options_say_the_same(world: World, answer: dict[str, Any]) -> None:
    advised = [one for one in world.ask("recommend")["recommendations"] if one["remedy"] == "choose_gpu"]
    (measured,) = [one for one in answer["options"] if one["name"] == A100]
    if measured["cost_ratio"]["high"] < 1:
        assert [one["subject"] for one in advised] == [answer["subject"]]
    else:
        assert advised == []


def test_what_is_not_there_is_said(world: World) -> None:
    fill(world)
    with pytest.raises(NotFoundError, match="no family or job 'f-none'"):
        world.ask("gpu_options", id="f-none")
    with pytest.raises(BadUseError, match="id: name a family"):
        world.ask("gpu_options")


def test_a_job_alone_is_compared_too(world: World) -> None:
    fill(world)
    found = world.ask("gpu_options", id="c/1#0")
    assert found["subject"] == {"kind": "job", "id": "c/1#0"}
    assert next(one for one in found["options"] if one["name"] == A100)["estimator"] == "transfer"


def test_the_table_says_low_likely_and_high(answer: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    show(gpu_options_text(answer))
    shown = capsys.readouterr().out
    assert f"on {V100}: 90% of its working time busy, 8.0 GiB in use at most" in shown
    assert "0.47 0.50 0.53" in shown


def test_a_name_and_a_family_at_once_are_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(trueload.cli, ["gpus", "a100", "--family", "f", "--data", str(tmp_path)])
    assert isinstance(result.exception, BadUseError)
