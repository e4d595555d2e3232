"""Logs of nvidia-smi: hand-worked lines, and the captures of real cards."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from warehouse.client import Client
from warehouse.importer import ImportOptions, PastAttempt
from warehouse.imports._smi_fields import LogClock
from warehouse.imports.nvidia_smi import IMPORTER, LogReader, Reading
from warehouse.loading import ImportReport, load_files

Make = Callable[[], Any]
OPTIONS = ImportOptions("c", "UTC")
HEADER = "timestamp, uuid, utilization.gpu [%], memory.used [MiB], power.draw [W]\n"
NOON = 1_790_000_000 - 1_790_000_000 % 86_400 + 43_200
"""Noon of 2026-09-21, UTC."""


def line(second: float, values: str = "50 %, 1024 MiB, 100.00 W", uuid: str = "GPU-a", day: str = "2026/09/21") -> str:
    minute, rest = divmod(second, 60)
    return f"{day} 12:{int(minute):02}:{rest:06.3f}, {uuid}, {values}\n"


def load(client: Any, folder: Path, text: str | bytes, options: ImportOptions = OPTIONS) -> ImportReport:
    path = folder / "log.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_files(client, IMPORTER, [path], options)


def samples(client: Any) -> list[dict[str, Any]]:
    return sorted(client.table("device_sample"), key=lambda row: (row["device_uuid"], row["sampled_at"]))


def test_units_become_base_units_and_a_reading_speaks_until_the_next(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    load(client, tmp_path, HEADER + line(0) + line(10) + line(20))
    first, _, last = samples(client)
    assert (first["sampled_at"], first["cadence_seconds"], last["cadence_seconds"]) == (NOON, 10.0, 10.0)
    assert (first["driver_util_ratio"], first["memory_used_bytes"], first["power_watts"]) == (0.5, 2**30, 100.0)


@pytest.mark.parametrize(
    "blank", ["[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "", "nan", "[GPU is lost]", "ERR!"]
)
def test_u09_what_the_driver_does_not_say_is_absent_and_never_zero(
    memory_client: Make, tmp_path: Path, blank: str
) -> None:
    client = memory_client()
    report = load(client, tmp_path, HEADER + line(0, f"{blank}, 1024 MiB, 100 W"))
    (row,) = samples(client)
    assert row.get("driver_util_ratio") is None
    assert row["memory_used_bytes"] == 2**30
    assert (report.kept, report.altered) == (1, {})


def test_values_without_units_are_in_those_of_the_program(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    load(client, tmp_path, HEADER + line(0, "50, 1024, 100.00"))
    (row,) = samples(client)
    assert (row["driver_util_ratio"], row["memory_used_bytes"]) == (0.5, 2**30)


@pytest.mark.parametrize(
    ("values", "column", "reason"),
    [
        ("120 %, 1 MiB, 1 W", "utilization.gpu", "impossible value, left out"),
        ("-1 %, 1 MiB, 1 W", "utilization.gpu", "impossible value, left out"),
        ("5 %, 1 W, 1 W", "memory.used", "unit not understood, left out"),
        ("5 %, 1 MiB, 9223372036854775794 W", "power.draw", "blank, left out"),
        ("5 %, 1 MiB, =1+1", "power.draw", "not a number, left out"),
        ("5 %, 1 MiB, 1e999 W", "power.draw", "blank, left out"),
    ],
)
def test_a_value_that_cannot_be_true_is_left_out_and_counted(
    memory_client: Make, tmp_path: Path, values: str, column: str, reason: str
) -> None:
    client = memory_client()
    report = load(client, tmp_path, HEADER + line(0, values))
    assert {key: tally.count for key, tally in report.altered.items()} == {(column, reason): 1}
    assert (report.kept, len(samples(client))) == (1, 1)


def test_a_log_saved_by_a_spreadsheet_with_decimal_commas_reads_the_same(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    text = "timestamp;uuid;utilization.gpu [%];power.draw [W]\n2026/09/21 12:00:00,500;GPU-a;50 %;100,25 W\n"
    load(client, tmp_path, text)
    (row,) = samples(client)
    assert (row["sampled_at"], row["driver_util_ratio"], row["power_watts"]) == (NOON + 0.5, 0.5, 100.25)


def test_a_restarted_loop_has_a_header_of_its_own_and_leaves_a_gap(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    other = "timestamp, power.draw [W], uuid\n2026/09/21 13:00:00.000, 80.00 W, GPU-a\n"
    report = load(client, tmp_path, HEADER + line(0) + line(10) + other)
    cadences = [row["cadence_seconds"] for row in samples(client)]
    assert cadences == [10.0, 10.0, 10.0]
    assert (report.read, samples(client)[2]["power_watts"]) == (3, 80.0)


def test_two_files_that_overlap_count_each_reading_once(store_client: Client, tmp_path: Path) -> None:
    load(store_client, tmp_path, HEADER + line(0) + line(10))
    report = load(store_client, tmp_path, HEADER + line(10) + line(20))
    count = store_client._store.read("SELECT count(*) AS n FROM device_sample")  # type: ignore[attr-defined]
    assert (report.kept, report.unchanged, count["n"][0].as_py()) == (1, 1, 3)


def test_a_repeated_hour_goes_on_where_the_clock_was_put_back(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    times = ["02:30:00", "02:50:00", "02:10:00", "03:10:00"]
    rows = "".join(f"2026/10/25 {time}.000, GPU-a, 1 %, 1 MiB, 1 W\n" for time in times)
    load(client, tmp_path, HEADER + rows, ImportOptions("c", "Europe/Berlin"))
    steps = [row["sampled_at"] for row in samples(client)]
    assert [after - before for before, after in pairwise(steps)] == [1200.0, 1200.0, 3600.0]


def test_a_missing_hour_is_read_with_the_offset_before_the_change(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    text = HEADER + "2026/03/29 02:30:00.000, GPU-a, 1 %, 1 MiB, 1 W\n"
    load(client, tmp_path, text, ImportOptions("c", "Europe/Berlin"))
    assert samples(client)[0]["sampled_at"] == 1_774_747_800.0  # 01:30 UTC


DMON = """\
#Date       Time        gpu    pwr  gtemp     sm     fb   pclk
#YYYYMMDD   HH:MM:SS    Idx      W      C      %     MB    MHz
 20260921   12:00:00      0     80     40     99   1024   1410
 20260921   12:00:00      1     30      -      0      0    210
#Date       Time        gpu    pwr  gtemp     sm     fb   pclk
#YYYYMMDD   HH:MM:SS    Idx      W      C      %     MB    MHz
 20260921   12:00:01      0     81     40     98   1024   1410
"""


def test_dmon_with_times_is_read_by_index_on_a_named_node(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    report = load(client, tmp_path, DMON, ImportOptions("c", "UTC", node="gpu1"))
    rows = samples(client)
    assert [row["device_uuid"] for row in rows] == ["gpu1/gpu0", "gpu1/gpu0", "gpu1/gpu1"]
    assert (rows[0]["driver_util_ratio"], rows[0]["memory_used_bytes"], rows[0]["sm_clock_hertz"]) == (
        0.99,
        2**30,
        1.41e9,
    )
    assert rows[2].get("temperature_celsius") is None
    assert (report.read, report.kept) == (3, 3)


def test_u15_cards_by_index_alone_are_never_mixed_with_those_of_another_node(
    memory_client: Make, tmp_path: Path
) -> None:
    report = load(memory_client(), tmp_path, DMON)
    assert {reason: tally.count for reason, tally in report.rejected.items()} == {"no node": 3}
    assert "--node" in report.text()


def test_lines_without_a_time_become_means_of_one_job(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    report = load(client, tmp_path, "64, 0 %, 1 MiB\n\n70, 100 %, 4096 MiB\nrubbish\n")
    (summary,) = client.table("attempt_summary")
    assert (summary["driver_util_ratio"], summary["gpu_memory_peak_bytes"]) == (0.5, 2**32)
    assert (report.read, report.kept, list(report.rejected)) == (3, 2, ["too few fields"])
    assert client.table("allocation") == []
    assert load(client, tmp_path, "64, 0 %, 1 MiB\n\n70, 100 %, 4096 MiB\nrubbish\n").unchanged == 2


def test_rows_of_processes_are_no_readings_of_a_device(memory_client: Make, tmp_path: Path) -> None:
    text = "timestamp, gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n2026/09/21 12:00:00, GPU-a, 7, x, 5 MiB\n"
    report = load(memory_client(), tmp_path, text)
    assert {reason: tally.count for reason, tally in report.rejected.items()} == {"row of a process": 1}


def test_bad_rows_cost_only_themselves(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    rows = [
        line(0).encode(),
        b"2026/09/21 12:0",
        b"\xff\xfe\0, GPU-a, 1 %, 1 MiB, 1 W",
        b"2026/02/30 12:00:00.000, GPU-a, 1 %, 1 MiB, 1 W",
        b"2026/09/21 12:00:05.000, GPU-a, 1 %, 1 MiB, 1 W, 7",
        b"2026/09/21 12:00:06.000, " + b"x" * 5000 + b", 1 %, 1 MiB, 1 W",
        b"2026/09/21 12:00:07.000, , 1 %, 1 MiB, 1 W",
        line(10).encode(),
    ]
    report = load(client, tmp_path, HEADER.encode() + b"\r\n".join(row.rstrip() for row in rows))
    assert {reason: tally.count for reason, tally in report.rejected.items()} == {
        "too few fields": 1,
        "bad time": 2,
        "too many fields": 1,
        "field too long": 1,
        "no device": 1,
    }
    assert [row["sampled_at"] for row in samples(client)] == [NOON, NOON + 10]


def test_a_named_job_owns_the_readings_of_its_run(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    past = PastAttempt("c/77#0", "c/77#0:5", "completed", NOON - 100, NOON, NOON + 15)
    client.past_attempts = lambda _cluster, ids: (past,) if ids == ["77"] else ()
    text = HEADER + line(0) + line(10) + line(1800)
    report = load(client, tmp_path, text, ImportOptions("c", "UTC", job="77"))
    assert [row["attempt_key"] for row in samples(client)] == ["c/77#0:5", "c/77#0:5"]
    (held,) = client.table("allocation")
    assert (held["device_uuid"], held["start_at"], held["end_at"]) == ("GPU-a", NOON, NOON + 15)
    assert list(report.rejected) == ["job not in the store"]


def test_a_file_of_another_kind_is_refused(memory_client: Make, tmp_path: Path) -> None:
    report = load(memory_client(), tmp_path, "\n\n")
    assert report.exit_code == 1
    assert "expected the header of nvidia-smi" in str(report.errors[0])


def test_u15_a_card_is_its_uuid_whatever_its_index(memory_client: Make, tmp_path: Path) -> None:
    """Day 1: a at index 0, b at 1; day 2 swapped; day 3: c at index 0. Totals are by card."""
    client = memory_client()
    header = "timestamp, index, uuid, power.draw [W]\n"
    days = [
        ("21", 0, "GPU-a", 10),
        ("21", 1, "GPU-b", 20),
        ("22", 1, "GPU-a", 10),
        ("22", 0, "GPU-b", 20),
        ("23", 0, "GPU-c", 5),
    ]
    rows = "".join(f"2026/09/{day} 12:00:00.000, {index}, {uuid}, {watts} W\n" for day, index, uuid, watts in days)
    load(client, tmp_path, header + rows)
    assert [(row["device_uuid"], row["power_watts"]) for row in samples(client)] == [
        ("GPU-a", 10.0),
        ("GPU-a", 10.0),
        ("GPU-b", 20.0),
        ("GPU-b", 20.0),
        ("GPU-c", 5.0),
    ]
    assert sorted(row["device_uuid"] for row in client.table("device")) == ["GPU-a", "GPU-b", "GPU-c"]


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/Chicago"])
def test_times_are_local_to_the_zone_that_is_named(memory_client: Make, tmp_path: Path, zone: str) -> None:
    client = memory_client()
    load(client, tmp_path, HEADER + line(0), ImportOptions("c", zone))
    offset = {"UTC": 0, "Asia/Kolkata": 5.5, "America/Chicago": -5}[zone] * 3600
    assert samples(client)[0]["sampled_at"] == NOON - offset


# ------------------------------------------------------------------------------------------------------ real cards


def query_lines(path: Path) -> str:
    """Give the headers and rows of ``--query-gpu`` of a capture, idle and under load, as one log would hold them."""
    lines = gzip.decompress(path.read_bytes()).decode("utf-8", "replace").splitlines()
    heads = [at for at, text in enumerate(lines) if text.startswith("timestamp, driver_version")]
    return "\n".join(lines[at + more] for at in heads for more in (0, 1)) + "\n"


def dmon_lines(path: Path) -> str:
    lines = gzip.decompress(path.read_bytes()).decode("utf-8", "replace").splitlines()
    return "\n".join(text for text in lines if text.startswith("# gpu    pwr") or _is_dmon_row(text)) + "\n"


def _is_dmon_row(text: str) -> bool:
    return len(text.split()) == 12 and all(word == "-" or word.isdigit() for word in text.split())


REAL = {
    "linux-x86_64__nvidia-h200": (1.0, 32362 * 2**20, 627.4),
    "linux-x86_64__nvidia-h100-mig": (None, 11125 * 2**20, 433.78),
    "linux-x86_64__nvidia-geforce-rtx-2080-super": (0.08, 819 * 2**20, 111.5),
    "linux-x86_64__nvidia-geforce-rtx-4080-super": (0.07, 1474 * 2**20, 84.24),
    "windows-x86_64__nvidia-geforce-rtx-2080-super": (0.07, 1296 * 2**20, 97.43),
}


@pytest.mark.data
@pytest.mark.parametrize("name", REAL)
def test_captures_of_real_cards_give_what_they_say(
    memory_client: Make, tmp_path: Path, data_root: Path, name: str
) -> None:
    (path,) = (data_root / "nvidia_smi_captures" / "captures").glob(f"{name}__*.gz")
    client = memory_client()
    report = load(client, tmp_path, query_lines(path))
    assert (report.read, report.kept, report.altered) == (2, 2, {})
    loaded = samples(client)[-1]
    assert (loaded.get("driver_util_ratio"), loaded["memory_used_bytes"], loaded["power_watts"]) == pytest.approx(
        REAL[name]
    )


@pytest.mark.data
def test_u10_dmon_of_a_sliced_card_tells_no_utilization(data_root: Path) -> None:
    (path,) = (data_root / "nvidia_smi_captures" / "captures").glob("*h100-mig*.gz")
    reader = LogReader(LogClock("UTC"))
    found = [reader.take(number, text) for number, text in enumerate(dmon_lines(path).splitlines(), 1)]
    readings = [one for one in found if isinstance(one, Reading)]
    assert len(readings) == 10
    assert all("driver_util_ratio" not in one.measures.metrics for one in readings)
    assert readings[0].measures.metrics["power_watts"] == 70.0
