"""jobstats' summaries: by themselves, and in the column AdminComment of a file of sacct."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from warehouse.importer import ImportOptions
from warehouse.imports._jobstats_summary import summary
from warehouse.imports._values import BadRowError
from warehouse.imports.jobstats import IMPORTER
from warehouse.loading import ImportReport, importers, load_files

Make = Callable[[], Any]
OPTIONS = ImportOptions("c", "UTC")
T0 = 1_790_000_000
NODE = {"cpus": 8, "total_time": 7200.0, "used_memory": 1, "total_memory": 2}


def packed(nodes: dict[str, Any], elapsed: float = 3600) -> str:
    document = {"gpus": 2, "nodes": nodes, "total_time": elapsed}
    return "JS1:" + base64.b64encode(gzip.compress(json.dumps(document).encode())).decode()


TWO = packed({"n1": NODE | {"gpu_utilization": {"0": 90, "1": 0}, "gpu_used_memory": {"0": 2**34, "1": 2**29}}})
HEADER = "JobIDRaw|Start|End|State|User|AdminComment\n"


def load(client: Any, folder: Path, text: str, format_name: str = "jobstats") -> ImportReport:
    path = folder / "jobs.txt"
    path.write_text(text, encoding="utf-8")
    return load_files(client, importers()[format_name], [path], OPTIONS)


def test_a_summary_gives_mean_and_peak_over_its_gpus(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    load(client, tmp_path, f"{HEADER}7|{T0}|{T0 + 3600}|COMPLETED|alice|{TWO}\n")
    (row,), (held,) = client.table("attempt_summary"), client.table("allocation")
    assert (row["driver_util_ratio"], row["gpu_memory_peak_bytes"], row["cpu_load_count"]) == (0.45, 2**34, 2.0)
    assert (row["coverage_ratio"], row["coverage_assumed"]) == (1.0, True)
    assert (held["gpu_count"], held["node"], client.gpu_seconds) == (2.0, "n1", 7200)


def test_a_gpu_without_a_mean_is_not_covered(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    text = packed({"n1": NODE | {"gpu_utilization": {"0": 90}, "gpu_total_memory": {"0": 1, "1": 1}}})
    load(client, tmp_path, f"{HEADER}7|{T0}|{T0 + 3600}|COMPLETED|alice|{text}\n")
    (row,) = client.table("attempt_summary")
    assert (row["driver_util_ratio"], row["coverage_ratio"]) == (0.9, 0.5)


SACCT = f"""\
JobID|JobIDRaw|State|Start|End|AllocTRES|Cluster|DBIndex|AdminComment
7|7|COMPLETED|{T0}|{T0 + 3600}|gres/gpu=2|c|11|{TWO}
8|8|COMPLETED|{T0}|{T0 + 60}|gres/gpu=1|c|12|JS1:Short
9|9|COMPLETED|{T0}|{T0 + 60}|gres/gpu=1|c|13|JS1:rubbish
"""


def test_sacct_reads_the_same_column(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    report = load(client, tmp_path, SACCT, "sacct")
    (row,) = client.table("attempt_summary")
    assert (row["attempt_key"], row["source"], row["driver_util_ratio"]) == ("c/7#0:11", "jobstats", 0.45)
    assert (report.kept, list(report.altered)) == (3, [("AdminComment", "damaged summary, left out")])


def test_a_summary_joins_the_attempt_of_accounting(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    load(client, tmp_path, SACCT.replace(TWO, ""), "sacct")
    load(client, tmp_path, f"JobIDRaw|Cluster|AdminComment\n7|c|{TWO}\n7.batch|c|\n")
    (row,) = client.table("attempt_summary")
    assert row["attempt_key"] == "c/7#0:11"
    assert len(client.table("job")) == 3


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (f"7|||COMPLETED|a|{TWO}", "job not in the store"),
        (f"7|{T0}|{T0 - 1}|COMPLETED|a|{TWO}", "ends before it starts"),
        (f"7|{T0}|{T0 + 1}|COMPLETED|a|JS1:AAAA", "damaged summary"),
        (f"7|{T0}|{T0 + 1}|COMPLETED|a|{TWO[:-20]}", "damaged summary"),
        (f"7|{T0}|{T0 + 1}|COMPLETED|a|" + packed({"n": {"gpu_utilization": {"0": 101}}}), "impossible value"),
        ("x|||COMPLETED|a|", "bad job id"),
        ("7|a|b", "too few fields"),
    ],
)
def test_a_bad_row_costs_only_itself(memory_client: Make, tmp_path: Path, row: str, reason: str) -> None:
    report = load(memory_client(), tmp_path, f"{HEADER}{row}\n8|{T0}|{T0 + 60}|COMPLETED|a|JS1:None\n")
    assert (report.kept, list(report.rejected)) == (1, [reason])


def test_a_bomb_is_not_unpacked() -> None:
    bomb = base64.b64encode(gzip.compress(b" " * 64 * 1024**2)).decode()
    with pytest.raises(BadRowError, match="more than 16777216 bytes"):
        summary(f"JS1:{bomb}")


def test_comments_of_people_are_no_summaries() -> None:
    assert summary("please do not kill") is None


def test_a_file_without_the_column_is_refused(memory_client: Make, tmp_path: Path) -> None:
    (error,) = load(memory_client(), tmp_path, "JobID|State\n1|COMPLETED\n").errors
    assert "expected a header with JobIDRaw (or JobID) and AdminComment" in str(error)
    assert IMPORTER.example.startswith("JobIDRaw|Cluster|")
