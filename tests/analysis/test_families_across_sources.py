"""The same work is one family whatever it came in by: arrays, resubmissions, requeues, other formats, pods."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import trueload
from warehouse.client import LocalClient
from warehouse.contract.settings import Settings
from warehouse.importer import ImportOptions
from warehouse.loading import importers, load_files
from warehouse.store import open_store

T0 = 1_790_000_000
SACCT_COLUMNS = (
    "JobID|JobIDRaw|JobName|User|Account|Partition|State|Submit|Start|End|AllocTRES|SubmitLine|Cluster|DBIndex"
)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[LocalClient]:
    store = open_store(tmp_path / "data", create=True)
    yield LocalClient(store, trueload.answers(), Settings())
    store.close()


def load(client: LocalClient, folder: Path, format_name: str, text: str) -> None:
    path = folder / f"{format_name}.txt"
    path.write_text(text, encoding="utf-8")
    report = load_files(client, importers()[format_name], [path], ImportOptions("c", "UTC"))
    assert (report.rejected, report.errors) == ({}, [])


def families(client: LocalClient) -> list[list[str]]:
    found: Any = client.ask("families", {})["families"]
    return sorted(sorted(family["members"]) for family in found)


def sacct_row(shown: str, raw: int, start: int, index: int, state: str = "COMPLETED", name: str = "train-lr0.1") -> str:
    at = T0 + 4000 * start
    tres = "cpu=4,gres/gpu:a100=1,gres/gpu=1"
    return f"{shown}|{raw}|{name}|alice|ml|gpu|{state}|{at - 5}|{at}|{at + 3600}|{tres}|sbatch train.sh|c|{index}"


def test_an_array_its_resubmission_and_a_requeue_are_one_family(client: LocalClient, tmp_path: Path) -> None:
    rows = [
        SACCT_COLUMNS,
        sacct_row("10_1", 11, 0, 1),
        sacct_row("10_2", 12, 1, 2),
        sacct_row("10_3", 10, 2, 3),  # the last task of an array has the array's own id
        sacct_row("20", 20, 3, 4, name="train-lr0.2"),  # submitted again by hand
        sacct_row("21", 21, 4, 5, "REQUEUED"),
        sacct_row("21", 21, 5, 6).replace(f"|{T0 + 4000 * 5 - 5}|", f"|{T0 + 4000 * 4 - 5}|"),
        sacct_row("30", 30, 6, 7, name="evaluate"),
    ]
    load(client, tmp_path, "sacct", "\n".join(rows) + "\n")
    assert families(client) == [[f"c/{raw}#0" for raw in (10, 11, 12, 20, 21)]]


def test_the_same_work_in_another_format_joins_the_family(client: LocalClient, tmp_path: Path) -> None:
    rows = [SACCT_COLUMNS, sacct_row("10", 10, 0, 1), sacct_row("11", 11, 1, 2)]
    load(client, tmp_path, "sacct", "\n".join(rows) + "\n")
    header = "job_id,name,user,account,gpu_model,gpu_count,command,start_at,end_at"
    more = [
        f"{number},train-lr0.{number},alice,ml,a100,1,sbatch train.sh,{T0 + 9000 * number},{T0 + 9000 * number + 60}"
        for number in (7, 8)
    ]
    load(client, tmp_path, "jobs_csv", "\n".join([header, *more]) + "\n")
    assert families(client) == [["c/10#0", "c/11#0", "c/7#0", "c/8#0"]]


def test_pods_that_one_owner_made_are_one_family(client: LocalClient, tmp_path: Path) -> None:
    lines: list[str] = []
    for number, pod in enumerate(("sweep-a1", "sweep-b2", "sweep-c3", "other-1")):
        at = T0 + 600 * number
        maker = "sweep" if pod.startswith("sweep") else "other"
        named = f'namespace="team",pod="{pod}"'
        lines.append(f'kube_pod_info{{{named},uid="u{number}",created_by_name="{maker}"}} 1 {at}000')
        labels = f'gpu="0",UUID="GPU-{number}",Hostname="n1",{named}'
        lines += [f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} 20 {at + step}000" for step in range(0, 600, 30)]
    load(client, tmp_path, "prometheus", "\n".join(lines) + "\n")
    assert families(client) == [["c/team/sweep-a1#0", "c/team/sweep-b2#0", "c/team/sweep-c3#0"]]


def test_equal_names_of_two_people_or_two_teams_are_no_family(client: LocalClient, tmp_path: Path) -> None:
    header = "job_id,name,user,account,gpu_count,start_at,end_at\n"
    users = enumerate("abab")
    rows = "".join(f"{number},train,{user},ml,1,{T0 + number},{T0 + number + 60}\n" for number, user in users)
    load(client, tmp_path, "jobs_csv", header + rows)
    assert families(client) == [["c/0#0", "c/2#0"], ["c/1#0", "c/3#0"]]
