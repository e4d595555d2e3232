"""The GPU catalogue: its figures are those of the sources, a file of a site lies over it, a name means one card."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from rich.console import Console

import trueload
from analysis.gpu_catalogue import FACTS, Catalogue, Confidence, Gpu
from analysis.gpu_commands import gpus_document
from analysis.gpu_file import read_catalogue
from analysis.gpu_names import find
from analysis.gpu_tables import gpus_table
from warehouse.contract.documents import GpusDocument
from warehouse.contract.errors import NotFoundError, SettingsError

GIB = 1024**3
COLUMNS = {
    "architecture": ("architecture", 0),
    "chip": ("chip", 0),
    "compute_capability": ("compute_capability", 0),
    "sm_count": ("sms", 1),
    "fp32_cores_per_sm": ("fp32_cores_per_sm", 1),
    "boost_clock_hertz": ("boost_clock_mhz", 1e6),
    "memory_bytes": ("memory_gb", GIB),
    "memory_bytes_per_second": ("memory_bandwidth_gb_s", 1e9),
    "l2_bytes": ("l2_mb", 1024**2),
    "fp64_flops_per_second": ("fp64_tflops", 1e12),
    "fp32_flops_per_second": ("fp32_tflops", 1e12),
    "tf32_tensor_flops_per_second": ("tf32_tensor_dense_tflops", 1e12),
    "fp16_flops_per_second": ("fp16_nontensor_tflops", 1e12),
    "fp16_tensor_flops_per_second": ("fp16_tensor_dense_tflops", 1e12),
    "bf16_tensor_flops_per_second": ("bf16_tensor_dense_tflops", 1e12),
    "fp8_tensor_flops_per_second": ("fp8_tensor_dense_tflops", 1e12),
    "int8_ops_per_second": ("int8_dense_tops", 1e12),
    "board_power_watts": ("tdp_w", 1),
    "nvlink_bytes_per_second": ("nvlink_bidir_gb_s", 1e9),
    "mig_max_instances": ("mig_max_instances", 1),
}
"""Each fact with the column of the table of sources and its unit there; 0 for text."""


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return read_catalogue()


@pytest.fixture(scope="module")
def tables(data_root: Path) -> Path:
    folder = data_root / "gpu_specs"
    if not folder.is_dir():
        pytest.skip(f"needs the tables of GPU figures: no folder {folder}")
    return folder


def rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        yield from csv.DictReader(stream)


def gpu(catalogue: Catalogue, gpu_id: str) -> Gpu:
    return next(one for one in catalogue.gpus if one.id == gpu_id)


def site(tmp_path: Path, text: str) -> Catalogue:
    path = tmp_path / "site.toml"
    path.write_text(text, encoding="utf-8")
    return read_catalogue(str(path))


def gpus(tmp_path: Path, *arguments: str, settings: str = "") -> Result:
    path = tmp_path / "trueload.toml"
    path.write_text(settings, encoding="utf-8")
    return CliRunner().invoke(trueload.cli, ["--config", str(path), "gpus", *arguments])


# ------------------------------------------------------------------------------------------------- what the figures say


def test_a100_as_its_data_sheet_has_it(catalogue: Catalogue) -> None:
    a100 = gpu(catalogue, "a100-sxm4-80")
    assert (a100.sm_count, a100.memory_bytes, a100.memory_bytes_per_second) == (108, 80 * GIB, 2.039e12)
    assert (a100.fp32_flops_per_second, a100.fp16_tensor_flops_per_second) == (19.5e12, 312e12)
    assert (a100.board_power_watts, a100.mig_max_instances, a100.gpm_supported) == (400.0, 7, False)
    assert a100.fp8_tensor_flops_per_second is None
    assert a100.origins["fp32_flops_per_second"].source == "A100DS"
    assert a100.origins["fp32_flops_per_second"].confidence is Confidence.VENDOR


def test_fp32_is_two_operations_per_core_and_clock(catalogue: Catalogue) -> None:
    """108 SMs of 64 cores at 1.41 GHz: 19.49 TFLOP/s. H20 and AMD's packed arithmetic are known to differ."""
    differing = []
    for one in catalogue.gpus:
        if one.sm_count and one.fp32_cores_per_sm and one.boost_clock_hertz and one.fp32_flops_per_second:
            computed = 2 * one.sm_count * one.fp32_cores_per_sm * one.boost_clock_hertz
            if not math.isclose(computed, one.fp32_flops_per_second, rel_tol=0.03):
                differing.append(one.id)
    assert differing == ["h20-96", "mi300x", "mi325x"]


def test_the_generations_from_pascal_to_blackwell_are_there(catalogue: Catalogue) -> None:
    found = {one.architecture for one in catalogue.gpus}
    assert found >= {"Pascal", "Volta", "Turing", "Ampere", "Ada", "Hopper", "Blackwell"}
    assert len(catalogue.gpus) >= 30


def test_each_figure_says_where_it_was_read(catalogue: Catalogue) -> None:
    for one in catalogue.gpus:
        known = {key for key in FACTS if getattr(one, key) not in {None, ()}}
        assert set(one.origins) == known, one.id
    assert all(price.source and (price.date or price.date_basis) for price in catalogue.prices)


@pytest.mark.data
def test_each_figure_is_that_of_the_table_of_sources(catalogue: Catalogue, tables: Path) -> None:
    listed = {row["gpu_id"]: row for row in rows(tables / "specs.csv")}
    assert {one.id for one in catalogue.gpus} == set(listed)
    for one in catalogue.gpus:
        row = listed[one.id]
        for key, (column, unit) in COLUMNS.items():
            value, place = getattr(one, key), (one.id, key)
            if not row[column] or row[f"{column}_src"].endswith(":memory-unverified"):
                assert value is None, place
            elif unit == 0:
                assert value == row[column], place
            else:
                assert value == pytest.approx(float(row[column]) * unit, rel=1e-9), place
                assert one.origins[key].confidence.value in row[f"{column}_src"], place
        assert list(one.nvml_names) == [name for name in row["nvml_product_names"].split("|") if name]
        gpm = None if "unverified" in row["gpm_supported_src"] else {"yes": True, "no": False}.get(row["gpm_supported"])
        assert one.gpm_supported is gpm, one.id


@pytest.mark.data
def test_each_mig_profile_is_that_of_the_table_of_sources(catalogue: Catalogue, tables: Path) -> None:
    listed = {
        (gpu_id, row["profile"]): row
        for row in rows(tables / "mig_profiles.csv")
        for gpu_id in row["gpu_ids"].split("|")
    }
    found = {(gpu_id, one.profile): one for one in catalogue.mig_profiles for gpu_id in one.gpus}
    assert set(found) == set(listed)
    for place, one in found.items():
        row = listed[place]
        assert one.max_instances == int(row["max_instances"]), place
        assert one.sm_count in {None, int(row["sms"] or -1)}, place
        assert (one.sm_count is None) == (not row["sms"] or "doubtful" in row["sms_src"]), place
        for value, text in ((one.memory_ratio, row["memory_fraction"]), (one.sm_ratio, row["sm_fraction"])):
            above, _, below = text.partition("/")
            assert value is None if not text else value == pytest.approx(float(above) / float(below or 1)), place


@pytest.mark.data
def test_each_price_stands_in_the_table_of_sources(catalogue: Catalogue, tables: Path) -> None:
    listed = {
        (row["gpu_id"], float(row["usd_per_gpu_hour"]), row["provider"], row["date"])
        for row in rows(tables / "prices.csv")
        if row["usd_per_gpu_hour"] and row["confidence"] != "memory-unverified" and row["source"] != "DEPLOYBASE"
    }
    found = {(one.gpu, one.per_gpu_hour, one.provider, one.date or "") for one in catalogue.prices}
    assert found == listed
    assert {one.currency for one in catalogue.prices} == {"USD"}


# --------------------------------------------------------------------------------------------------- what a name means


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("NVIDIA A100-SXM4-80GB", ["a100-sxm4-80"]),
        ("NVIDIA A100 80GB PCIe", ["a100-pcie-80"]),
        ("NVIDIA H100 80GB HBM3", ["h100-sxm-80"]),
        ("NVIDIA-H100-80GB-HBM3-SHARED", ["h100-sxm-80"]),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", ["h100-sxm-80"]),
        ("NVIDIA GH200 480GB", ["gh200-96"]),
        ("gpu:a100:4", ["a100-sxm4-40", "a100-pcie-40", "a100-sxm4-80", "a100-pcie-80"]),
        ("A100 80 GB", ["a100-sxm4-80", "a100-pcie-80"]),
        ("8x H100 SXM", ["h100-sxm-80"]),
        ("rtx2080ti", ["rtx-2080-ti"]),
        ("RTX A6000", ["rtx-a6000"]),
        ("RTX 6000 Ada", ["rtx-6000-ada"]),
        ("A10", ["a10"]),
        ("A10G", ["a10g"]),
    ],
)
def test_a_name_means(name: str, meant: list[str], catalogue: Catalogue) -> None:
    assert [one.id for one in find(catalogue, name)] == meant


@pytest.mark.parametrize(
    "name", ["", "()", "nvidia", "gpu", "TITAN V", "RTX 2080", "RTX 3090 Ti", "A100 96GB", "GRID A100-10C", "H100" * 99]
)
def test_a_name_of_another_card_means_none(name: str, catalogue: Catalogue) -> None:
    assert find(catalogue, name) == ()


def test_each_gpu_is_found_by_its_id_and_by_what_its_driver_prints(catalogue: Catalogue) -> None:
    wrong = [
        name for one in catalogue.gpus for name in (one.id, *one.nvml_names) if find(catalogue, name.upper()) != (one,)
    ]
    assert wrong == []


@given(name=st.text(max_size=300))
def test_any_text_is_a_name(name: str) -> None:
    assert isinstance(find(read_catalogue(), name), tuple)


# --------------------------------------------------------------------------------------------------- the file of a site


def test_prices_of_a_site_replace_the_examples_of_their_gpu_alone(tmp_path: Path, catalogue: Catalogue) -> None:
    text = '[[prices]]\ncurrency = "EUR"\ndate = "2026-11-01"\nrows = [{ gpu = "a100-sxm4-80", per_gpu_hour = 1 }]'
    own = site(tmp_path, text)
    (price,) = own.prices_of(gpu(own, "a100-sxm4-80"))
    assert (price.per_gpu_hour, price.currency, price.date) == (1.0, "EUR", "2026-11-01")
    assert price.source == str(tmp_path / "site.toml")
    assert own.prices_of(gpu(own, "t4")) == catalogue.prices_of(gpu(catalogue, "t4")) != ()


def test_a_site_sets_single_facts_of_a_known_gpu(tmp_path: Path, catalogue: Catalogue) -> None:
    own = gpu(site(tmp_path, "[gpu.a100-sxm4-80]\nboard_power_watts = 330\n"), "a100-sxm4-80")
    assert (own.board_power_watts, own.origins["board_power_watts"].confidence) == (330.0, Confidence.SITE)
    assert own.fp32_flops_per_second == gpu(catalogue, "a100-sxm4-80").fp32_flops_per_second


def test_the_example_of_the_page_is_read(tmp_path: Path, repository: Path) -> None:
    page = (repository / "docs" / "gpus.md").read_text(encoding="utf-8")
    own = site(tmp_path, page.split("```toml\n")[1].split("```")[0])
    added = gpu(own, "our-a100-96")
    assert find(own, "NVIDIA A100-SXM4-96GB") == (added,)
    assert (added.memory_bytes, added.sm_count) == (96 * GIB, None)
    assert [(one.profile, one.sm_ratio, one.sm_count) for one in own.mig_profiles_of(added)] == [("1g.12gb", 1 / 7, 14)]


def test_mig_profiles_of_a_site_replace_those_of_their_gpu_alone(tmp_path: Path) -> None:
    own = site(tmp_path, '[[mig]]\ngpus = ["a100-sxm4-40"]\nprofiles = [{ profile = "7g.40gb", max_instances = 1 }]\n')
    assert [one.profile for one in own.mig_profiles_of(gpu(own, "a100-sxm4-40"))] == ["7g.40gb"]
    assert len(own.mig_profiles_of(gpu(own, "a100-pcie-40"))) == 7


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[gpu.t4]\nsm_cuont = 40", "gpu.t4: unknown key 'sm_cuont'; the nearest is sm_count"),
        ("[gpu.t4]\nsm_count = 40.5", "gpu.t4, sm_count: 40.5 must be a whole number, 0 or more"),
        ("[gpu.t4]\nsm_count = true", "gpu.t4, sm_count: True must be a whole number"),
        ("[gpu.t4]\nboard_power_watts = nan", "gpu.t4, board_power_watts: nan must be a number, 0 or more"),
        (f"[gpu.t4]\nboard_power_watts = {10**400}", "gpu.t4, board_power_watts: 1000"),
        ("[gpu.t4]\nboard_power_watts = inf", "gpu.t4, board_power_watts: inf must be a number, 0 or more"),
        ("[gpu.t4]\nboard_power_watts = [70, 'x', 'sure']", "gpu.t4, board_power_watts: [70, 'x', 'sure'] must be"),
        ("[gpu.t5]\nsm_count = 40", "gpu.t5: a new GPU needs name, model, vendor, form_factor"),
        ("[gpu]\nt4 = 3", "gpu.t4: 3 must be a table"),
        ("[gpus.t4]\nsm_count = 40", "unknown key 'gpus'; the nearest is gpu"),
        ("prices = 3", "prices: 3 must be a list of tables"),
        ("[[prices]]\ncurrency = 'EUR'", "[[prices]] 1: rows is missing"),
        ("[[prices]]\nrows = [{ gpu = 't4', per_gpu_hour = 1 }]", "[[prices]] 1, t4: currency is missing"),
        (
            "[[prices]]\ncurrency = 'EUR'\nrows = [{ gpu = 't4', per_gpu_hour = -1 }]",
            "[[prices]] 1, t4, per_gpu_hour: -1 must be a number, 0 or more",
        ),
        (
            "[[prices]]\ncurrency = 'EUR'\nrows = [{ gpu = 'a100', per_gpu_hour = 1 }]",
            "prices: unknown GPU 'a100'; the nearest is a10",
        ),
        (
            "[[mig]]\ngpus = ['a30']\nprofiles = [{ profile = '1g.6gb', max_instances = 4, sm_ratio = '5/4' }]",
            "[[mig]] 1, 1g.6gb, sm_ratio: '5/4' must be a share of the card",
        ),
        ("[[mig]]\ngpus = ['a30']\nsource = 'x'\nprofiles = []", "[[mig]] 1: needs source and confidence"),
        ("gpu = [", "is no TOML"),
    ],
)
def test_an_error_names_file_gpu_key_and_what_is_right(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        site(tmp_path, text)
    assert str(tmp_path / "site.toml") in str(caught.value)
    assert "setting gpus.file" in str(caught.value)
    assert said in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"none\.toml \(setting gpus\.file\): cannot be read"):
        read_catalogue(str(tmp_path / "none.toml"))


# --------------------------------------------------------------------------------------------------------- the command


def test_the_document_keeps_its_type(tmp_path: Path) -> None:
    document: Mapping[str, Any] = json.loads(gpus(tmp_path, "--json").stdout)
    TypeAdapter(GpusDocument).validate_python(document)
    assert len(document["gpus"]) == 53
    (a30,) = json.loads(gpus(tmp_path, "A30", "--json").stdout)["gpus"]
    assert set(a30["facts"]) == set(FACTS)
    assert a30["facts"]["sm_count"]["value"] == 56
    assert a30["facts"]["fp8_tensor_flops_per_second"] is None
    assert a30["mig_profiles"][0]["profile"] == "1g.6gb"


def test_the_list_fits_eighty_columns(catalogue: Catalogue) -> None:
    def drawn(width: int) -> list[str]:
        console = Console(width=width, file=io.StringIO(), record=True)
        console.print(gpus_table(gpus_document(catalogue, catalogue.gpus, None)))
        return [line.rstrip() for line in console.export_text().splitlines()]

    assert drawn(80) == drawn(200)


def test_one_gpu_is_shown_with_its_sources(tmp_path: Path) -> None:
    lines = [line.split() for line in gpus(tmp_path, "NVIDIA A100-SXM4-80GB").stdout.splitlines()]
    assert ["FP32", "19.5", "TFLOP/s", "A100DS", "vendor"] in lines
    assert ["board", "power", "400", "W", "A100DS", "vendor"] in lines
    assert ["A100DS", "NVIDIA", "A100", "data", "sheet,", "May", "2022"] in lines
    assert ["FP8,", "tensor", "—", "not", "supported,", "or", "not", "stated"] in lines


def test_an_unknown_name_says_the_nearest_and_cannot_steer_a_terminal(tmp_path: Path) -> None:
    result = gpus(tmp_path, "titan v\x1b[31m")
    assert isinstance(result.exception, NotFoundError)
    assert "the nearest is titan-rtx" in str(result.exception)
    assert "\x1b" not in str(result.exception)


def test_the_setting_names_the_file_whose_text_cannot_steer_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text('[gpu.t4]\nname = "[red]x[/] \\u001b[31m"\n', encoding="utf-8")
    result = gpus(tmp_path, "t4", settings=f'[gpus]\nfile = "{tmp_path / "site.toml"}"\n')
    assert "[red]x[/] \N{REPLACEMENT CHARACTER}[31m (t4)" in result.stdout
