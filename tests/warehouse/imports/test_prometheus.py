"""Pages of metrics: hand-worked pages, and those of real exporters."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warehouse.client import Client
from warehouse.contract import wire
from warehouse.contract.model import Attempt, AttemptState, Job
from warehouse.importer import ImportOptions, PastAttempt
from warehouse.imports._prom_text import point
from warehouse.imports._values import BadRowError
from warehouse.imports.prometheus import IMPORTER
from warehouse.loading import ImportReport, load_files

Make = Callable[[], Any]
OPTIONS = ImportOptions("c", "UTC")
T0 = 1_790_000_000


def load(client: Any, folder: Path, text: str, options: ImportOptions = OPTIONS) -> ImportReport:
    path = folder / "page.prom"
    path.write_text(text, encoding="utf-8")
    return load_files(client, IMPORTER, [path], options)


def samples(client: Any) -> list[dict[str, Any]]:
    return sorted(
        client.table("device_sample"),
        key=lambda row: (row["device_uuid"], row["sampled_at"], row["attempt_key"] or ""),
    )


def util(value: float, second: int, uuid: str = "GPU-a", labels: str = "", name: str = "DCGM_FI_DEV_GPU_UTIL") -> str:
    return f'{name}{{gpu="0",UUID="{uuid}",Hostname="n1"{labels}}} {value} {(T0 + second) * 1000}\n'


POD = ',namespace="team",pod="train-0",container="main"'


def test_values_of_one_instant_are_one_reading_in_base_units(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    text = util(50, 0) + util(1024, 0, name="DCGM_FI_DEV_FB_USED") + util(0.25, 0, name="DCGM_FI_PROF_SM_ACTIVE")
    report = load(client, tmp_path, text + util(60, 30))
    first, last = samples(client)
    assert (first["driver_util_ratio"], first["memory_used_bytes"], first["sm_active_ratio"]) == (0.5, 2**30, 0.25)
    assert (first["sampled_at"], first["cadence_seconds"], last["driver_util_ratio"]) == (T0, 30.0, 0.6)
    assert (first["source"], first["node"], first["attempt_key"]) == ("prometheus:dcgm", "n1", None)
    assert (report.read, report.kept) == (4, 4)


BLANKS = [9223372036854775792, 9223372036854775794, 9.223372036854776e18, 2147483632, 140737488355328.0, "NaN", "+Inf"]


@pytest.mark.parametrize("blank", BLANKS)
def test_u09_a_blank_of_dcgm_is_absent_and_counted(memory_client: Make, tmp_path: Path, blank: object) -> None:
    client = memory_client()
    line = f'DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="GPU-a"}} {blank} {T0}000\n'
    report = load(client, tmp_path, line + util(7, 0, name="DCGM_FI_DEV_POWER_USAGE"))
    (row,) = samples(client)
    assert (row.get("driver_util_ratio"), row["power_watts"]) == (None, 7.0)
    assert list(report.altered) == [("DCGM_FI_DEV_GPU_UTIL", "blank, left out")]


def test_u14_energy_is_the_difference_of_its_counter_and_never_negative(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    energy = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
    values = [1000, 1500, 200, 700]
    report = load(client, tmp_path, "".join(util(value, 10 * at, name=energy) for at, value in enumerate(values)))
    assert [row.get("energy_joules") for row in samples(client)] == [0.5, None, 0.5, None]
    assert list(report.altered) == [(energy, "counter began anew, step left out")]


def test_a_pod_holds_the_device_it_is_seen_on(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    load(client, tmp_path, "".join(util(50, 30 * at, labels=POD) for at in range(4)))
    (job,), (attempt,), (held,) = client.table("job"), client.table("attempt"), client.table("allocation")
    assert (job["job_key"], job["namespace"], job["name"]) == ("c/team/train-0#0", "team", "train-0")
    assert (attempt["start_at"], attempt["end_at"]) == (T0, T0 + 120)
    assert (held["device_uuid"], held["start_at"], held["end_at"], held["gpu_count"]) == ("GPU-a", T0, T0 + 120, 1.0)
    assert {row["attempt_key"] for row in samples(client)} == {attempt["attempt_key"]}
    assert {row["attribution"] for row in samples(client)} == {"scheduler"}


@pytest.mark.parametrize(
    ("labels", "job"),
    [
        (
            ',pod="dcgm-exporter-x1",namespace="gpu",exported_pod="train-0",exported_namespace="team"',
            "c/team/train-0#0",
        ),
        (',pod="dcgm-exporter-x1",namespace="gpu",container="exporter"', None),
        (',pod="mon-7",namespace="gpu",container="nvidia-dcgm-exporter"', None),
        (',pod="",namespace="",container=""', None),
        (',pod="train-0",namespace="team"', "c/team/train-0#0"),
    ],
)
def test_u03_the_monitors_own_pod_is_never_the_workload(
    memory_client: Make, tmp_path: Path, labels: str, job: str | None
) -> None:
    client = memory_client()
    load(client, tmp_path, util(50, 0, labels=labels))
    assert [row["job_key"] for row in client.table("job")] == ([] if job is None else [job])


def test_u03_a_target_that_exports_labels_keeps_its_own_under_the_plain_names(
    memory_client: Make, tmp_path: Path
) -> None:
    client = memory_client()
    own = ',pod="mon-7",namespace="gpu",job="m",instance="10.0.0.1:9400"'
    theirs = f'{own},exported_pod="train-0",exported_namespace="team"'
    load(client, tmp_path, util(50, 0, labels=theirs) + util(0, 0, uuid="GPU-b", labels=own))
    assert [row["job_key"] for row in client.table("job")] == ["c/team/train-0#0"]


def test_u01_sharers_of_a_card_split_it_equally_and_the_card_counts_once(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    pods = [f',namespace="team",pod="p{number}"' for number in range(3)]
    load(client, tmp_path, "".join(util(71, 0, labels=pod) for pod in pods))
    rows = samples(client)
    assert [row["driver_util_ratio"] for row in rows] == [0.71] * 3
    assert sum(row["share_ratio"] for row in rows) == pytest.approx(1.0)
    assert {row["attribution"] for row in rows} == {"equal_split"}


def test_u10_slices_of_a_card_are_devices_of_their_own(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    labels = ',GPU_I_ID="7",GPU_I_PROFILE="1g.10gb"' + POD
    load(client, tmp_path, util(0.5, 0, labels=labels, name="DCGM_FI_PROF_GR_ENGINE_ACTIVE"))
    (row,), (held,) = samples(client), client.table("allocation")
    assert (row["device_uuid"], row.get("driver_util_ratio"), row["engine_active_ratio"]) == (
        "MIG-GPU-a/7/0",
        None,
        0.5,
    )
    assert held["share_ratio"] == pytest.approx(1 / 7)


def test_a_pod_that_comes_back_later_is_another_attempt_of_its_job(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    load(client, tmp_path, util(1, 0, labels=POD) + util(1, 30, labels=POD) + util(1, 7200, labels=POD))
    spans = sorted((row["start_at"] - T0, row["end_at"] - T0) for row in client.table("attempt"))
    assert spans == [(0, 60), (7200, 7230)]
    assert len(client.table("job")) == 1


def test_a_pods_uid_and_its_maker_come_from_kube_state_metrics(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    info = f'kube_pod_info{{namespace="team",pod="train-0",uid="u-1",created_by_name="train"}} 1 {T0}000\n'
    load(client, tmp_path, info + util(1, 0, labels=POD))
    assert client.table("attempt")[0]["attempt_key"] == "c/team/train-0#0:seen-u-1"
    assert client.table("job")[0]["name"] == "train"


SLURM_LABELS = 'user="alice",account="ml",slurmjobid="77",gpu="2",gpu_type="NVIDIA A100",instance="n1:9798"'
SLURM_PAGE = f"""\
slurm_job_utilization_gpu{{{SLURM_LABELS}}} 40 {T0}000
slurm_job_memory_usage_gpu{{{SLURM_LABELS}}} 1048576 {T0}000
"""


def test_slurm_job_exporter_names_job_user_and_account(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    load(client, tmp_path, SLURM_PAGE)
    (row,), (job,) = samples(client), client.table("job")
    assert (row["device_uuid"], row["driver_util_ratio"], row["memory_used_bytes"]) == ("n1/gpu2", 0.4, 2**20)
    assert (job["job_key"], job["user"], job["account"]) == ("c/77#0", "alice", "ml")


def test_slurm_job_exporter_with_dcgm_tells_sm_activity_under_the_name_of_utilization(
    memory_client: Make, tmp_path: Path
) -> None:
    client = memory_client()
    more = SLURM_PAGE.splitlines()[0].replace("utilization_gpu", "sm_occupancy_gpu")
    load(client, tmp_path, SLURM_PAGE + more + "\n")
    (row,) = samples(client)
    assert (row.get("driver_util_ratio"), row["sm_active_ratio"], row["sm_occupancy_ratio"]) == (None, 0.4, 0.4)


def test_a_job_of_accounting_keeps_its_attempt_and_its_bounds(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    past = PastAttempt("c/77#0", "c/77#0:9", "completed", T0 - 60, T0 - 50, T0 + 0.5)
    client.past_attempts = lambda _cluster, ids: (past,) if ids == ["77"] else ()
    load(client, tmp_path, SLURM_PAGE)
    assert (client.table("job"), client.table("attempt")) == ([], [])
    (held,) = client.table("allocation")
    assert (held["attempt_key"], held["end_at"]) == ("c/77#0:9", T0 + 0.5)


@pytest.mark.parametrize("uid", ["", ',pod_uid="u-2"'])
def test_a_pod_that_the_cluster_has_told_of_keeps_its_attempt(store_client: Client, tmp_path: Path, uid: str) -> None:
    """Two pods of one name, one after the other, as the collector of the cluster told them."""
    job = Job("c/j-1#0", "c", "j-1", "kubernetes", name="train")
    attempts = [
        Attempt(
            f"c/j-1#0:u-{number}", job.job_key, AttemptState.COMPLETED, "Succeeded", start, start + 1000, "kubernetes"
        )
        for number, start in ((1, T0 - 1100), (2, T0 - 50))
    ]
    named = [replace(attempt, other_id="team/train-0") for attempt in attempts]
    store_client.load("kubernetes", [], wire.from_records([job, *named]))
    load(store_client, tmp_path, util(50, 0, labels=POD + uid))
    store: Any = store_client
    owners = store._store.read("SELECT attempt_key FROM device_sample").to_pylist()
    assert owners == [{"attempt_key": "c/j-1#0:u-2"}]
    assert store._store.read("SELECT count(*) AS n FROM attempt").to_pylist() == [{"n": 2}]


def test_jobstats_tells_the_job_as_a_value(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    labels = 'minor_number="1",uuid="GPU-a",name="NVIDIA A100",instance="n1:9445"'
    load(
        client,
        tmp_path,
        f"nvidia_gpu_duty_cycle{{{labels}}} 98 {T0}000\nnvidia_gpu_power_usage_milliwatts{{{labels}}} 250000 {T0}000\n"
        f"nvidia_gpu_jobId{{{labels}}} 45916256 {T0}000\n",
    )
    (row,) = samples(client)
    assert (row["driver_util_ratio"], row["power_watts"]) == (0.98, 250.0)
    assert row["attempt_key"].startswith("c/45916256#0:")


def test_devices_without_a_uuid_are_found_by_node_and_index(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    dcgm = f'DCGM_FI_DEV_GPU_UTIL{{gpu="2",UUID="GPU-x",Hostname="n1"}} 40 {T0}000\n'
    load(client, tmp_path, SLURM_PAGE + dcgm)
    assert {row["device_uuid"] for row in samples(client)} == {"GPU-x"}


def test_the_page_that_comes_again_later_changes_nothing(store_client: Client, tmp_path: Path) -> None:
    page = 'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a"} 5\n'
    load(store_client, tmp_path, page)
    report = load(store_client, tmp_path, page)
    assert (report.kept, report.unchanged) == (0, 1)


def test_a_second_page_without_times_in_one_file_is_rejected_and_not_lost(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    page = 'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a"} 5\nother 1\n'
    report = load(client, tmp_path, page + page.replace("5", "7"))
    assert {reason: (tally.count, tally.line) for reason, tally in report.rejected.items()} == {"no time": (1, 3)}
    assert [row["driver_util_ratio"] for row in samples(client)] == [0.05]


def test_a_value_that_comes_twice_for_one_instant_is_rejected(memory_client: Make, tmp_path: Path) -> None:
    report = load(memory_client(), tmp_path, util(5, 0) + util(7, 0))
    assert list(report.rejected) == ["value comes twice"]


BAD_LINES = {
    "no node": 'DCGM_FI_DEV_GPU_UTIL{gpu="0"} 5',
    "not a sample": "}garbage 1",
    "bad value": 'DCGM_FI_DEV_GPU_UTIL{UUID="GPU-a"} five',
    "bad labels": 'DCGM_FI_DEV_GPU_UTIL{UUID="GPU-a} 5',
    "bad time": 'DCGM_FI_DEV_GPU_UTIL{UUID="GPU-a"} 5 -7',
    "field too long": 'DCGM_FI_DEV_GPU_UTIL{UUID="' + "x" * 5000 + '"} 5',
}


@pytest.mark.parametrize("reason", BAD_LINES)
def test_a_bad_line_costs_only_itself(memory_client: Make, tmp_path: Path, reason: str) -> None:
    client = memory_client()
    report = load(client, tmp_path, util(1, 0) + BAD_LINES[reason] + "\n" + util(2, 30))
    assert {key: (tally.count, tally.line) for key, tally in report.rejected.items()} == {reason: (1, 2)}
    assert (report.kept, len(samples(client))) == (2, 2)


def test_escapes_spaces_exemplars_and_seconds_are_read() -> None:
    found = point(r'm{ a = "x\"y\\z\n{}," , b="=1+1",} 1.5e3 1790000000.5 # {trace="1"} 1')
    assert found.labels == {"a": 'x"y\\z\n{},', "b": "=1+1"}
    assert (found.name, found.value, found.at) == ("m", 1500.0, 1790000000.5)


@given(st.text(max_size=80))
def test_any_line_is_a_sample_or_says_why_it_is_none(text: str) -> None:
    with suppress(BadRowError):
        assert point(text).name in text


# -------------------------------------------------------------------------------------------------- real exporters


@pytest.mark.data
def test_pages_of_real_exporters_give_every_sample_of_theirs(memory_client: Make, data_root: Path) -> None:
    folder = data_root / "nvidia_smi_captures"
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    metrics = {
        "nvidia_smi_utilization_gpu_ratio": "driver_util_ratio",
        "nvidia_smi_memory_used_bytes": "memory_used_bytes",
        "nvidia_smi_power_draw_watts": "power_watts",
    }
    for name, told in expected.items():
        client = memory_client()
        report = load_files(client, IMPORTER, [folder / "exposition" / name], OPTIONS)
        assert (report.read, report.kept, report.rejected) == (told["samples"], told["samples"], {}), name
        for series, column in metrics.items():
            found = [row[column] for row in samples(client) if row.get(column) is not None]
            assert found == pytest.approx([float(value) for value in told[series]]), (name, series)


@pytest.mark.data
def test_the_blank_of_dcgm_exporters_own_sample_is_missing(memory_client: Make, data_root: Path) -> None:
    client = memory_client()
    report = load_files(client, IMPORTER, [data_root / "dcgm_docs" / "readme_sample.prom"], OPTIONS)
    (row,) = samples(client)
    assert (report.read, report.kept) == (3, 3)
    assert (row["sm_clock_hertz"], row["memory_clock_hertz"]) == (139e6, 405e6)
    assert row.get("memory_temperature_celsius") is None
    assert list(report.altered) == [("DCGM_FI_DEV_MEMORY_TEMP", "blank, left out")]
