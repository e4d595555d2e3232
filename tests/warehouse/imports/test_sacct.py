"""Slurm's accounting: real captures with figures counted by hand, and small cases for every rule."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warehouse.importer import Imported, ImportOptions
from warehouse.imports.sacct import IMPORTER
from warehouse.loading import ImportReport, load_files

Make = Callable[[], Any]
OPTIONS = ImportOptions("c", "UTC")
COLUMNS = "JobID|JobIDRaw|State|Submit|Start|End|AllocTRES|NodeList|DBIndex"
ONE_GPU = "cpu=1,gres/gpu=1,node=1"


def line(job: str, state: str, submit: object, start: object, end: object, db_index: object = "", **more: str) -> str:
    raw, tres, nodes = more.get("raw", job), more.get("tres", ONE_GPU), more.get("nodes", "n1")
    return f"{job}|{raw}|{state}|{submit}|{start}|{end}|{tres}|{nodes}|{db_index}"


def write(folder: Path, *lines: str, header: str = COLUMNS, name: str = "sacct.txt") -> Path:
    path = folder / name
    path.write_text("\n".join((header, *lines)) + "\n", encoding="utf-8")
    return path


def load(client: Any, *paths: Path, options: ImportOptions = OPTIONS) -> ImportReport:
    return load_files(client, IMPORTER, paths, options)


def only(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    (row,) = rows
    return row


@pytest.mark.data
def test_the_capture_with_duplicates_holds_960_gpu_seconds(memory_client: Make, data_root: Path) -> None:
    client = memory_client()
    report = load(client, data_root / "slurm-22.05" / "sacct_P_duplicates.txt")
    # GPUs x seconds, job by job in the order of the file; job 13 is a CPU job, steps hold nothing of their own.
    by_hand = (
        2 * 9  # 2
        + 2 * 7  # 3, on two nodes
        + 7 + 7 + 7  # array 1_0, 1_1, 1_2
        + 6 + 2 * 6  # heterogeneous 6+0, 6+1
        + 4  # 8 failed
        + 70  # 9 timeout
        + 11  # 10
        + 138  # 11 cancelled
        + 1 + 9  # 14 requeued, then completed
        + 2 * 9  # 15 node failed
        + 8 + 2 * 8  # heterogeneous 16+0, 16+1
        + 2 * 1 + 2 * 14  # 18 node failed, then completed
        + 23 + 22 + 22 + 23 + 23  # array 19_1 to 19_5
        + 2 * 28  # 25, on two nodes
        + 28 + 28 + 28 + 28 + 28 + 28 + 27 + 28 + 27 + 27  # array 24_0 to 24_9
        + 28 + 2 * 28  # heterogeneous 26+0, 26+1
        + 2 * 27  # 28
    )  # fmt: skip
    assert by_hand == 960
    assert client.gpu_seconds == 960
    assert (report.read, report.kept, report.rejected, report.errors) == (81, 81, {}, [])
    # 81 rows: 38 starts of 36 jobs, 43 steps; one job of the 36 holds no GPU.
    assert {name: len(client.table(name)) for name in ("job", "attempt", "allocation", "step")} == {
        "job": 36,
        "attempt": 38,
        "allocation": 37,
        "step": 43,
    }


@pytest.mark.data
@pytest.mark.parametrize(("name", "steps"), [("sacct_P.txt", 40), ("sacct_P_X.txt", 0)])
def test_the_captures_without_duplicates_lack_three_gpu_seconds_of_lost_runs(
    memory_client: Make, data_root: Path, name: str, steps: int
) -> None:
    client = memory_client()
    load(client, data_root / "slurm-22.05" / name)
    assert client.gpu_seconds == 960 - 1 - 2 * 1
    assert len(client.table("step")) == steps


@pytest.mark.data
def test_the_capture_tells_arrays_heterogeneous_jobs_and_requeues_apart(memory_client: Make, data_root: Path) -> None:
    client = memory_client()
    load(client, data_root / "slurm-22.05" / "sacct_P_duplicates.txt")
    jobs, attempts = client.rows["job"], client.rows["attempt"]
    last = jobs[("proto/19#0",)]
    assert (last["array_job_id"], last["array_task_index"]) == ("19", 5), "the last task bears the array's own id"
    part = jobs[("proto/27#0",)]
    assert (part["scheduler_job_id"], part["het_job_id"], part["het_offset"]) == ("27", "26", 1)
    assert [
        (key[0], row["state"], row["end_at"] - row["start_at"])
        for key, row in attempts.items()
        if row["job_key"] == "proto/18#0"
    ] == [("proto/18#0:26", "node_fail", 1), ("proto/18#0:31", "completed", 14)]
    assert attempts[("proto/11#0:15",)]["raw_state"] == "CANCELLED by 0"
    held = client.rows["allocation"][("proto/18#0:31:0",)]
    assert (held["gpu_count"], held["node"], held["gpu_model"], held["device_uuid"]) == (2, None, "a100", None)
    assert client.rows["allocation"][("proto/2#0:3:0",)]["node"] == "gpu1"
    assert jobs[("proto/2#0",)]["requested_memory_bytes"] == 4 * 1024**3
    assert jobs[("proto/2#0",)]["time_limit_seconds"] == 86400
    step = client.rows["step"][("proto/2#0:3", "batch")]
    assert step["cpu_seconds"] is not None


@pytest.mark.data
@pytest.mark.parametrize(
    "order", list(itertools.permutations(("sacct_P_duplicates.txt", "sacct_P.txt", "sacct_P_X.txt")))
)
def test_the_captures_give_the_same_store_in_any_order(
    memory_client: Make, data_root: Path, order: tuple[str, ...]
) -> None:
    client, reference = memory_client(), memory_client()
    load(reference, data_root / "slurm-22.05" / "sacct_P_duplicates.txt")
    load(client, *(data_root / "slurm-22.05" / name for name in order))
    assert client.rows == reference.rows


@pytest.mark.data
def test_the_capture_reversed_split_packed_and_twice_gives_the_same_store(
    memory_client: Make, data_root: Path, tmp_path: Path
) -> None:
    source = data_root / "slurm-22.05" / "sacct_P_duplicates.txt"
    header, *rows = source.read_text(encoding="utf-8").splitlines()
    reference, reversed_, split = memory_client(), memory_client(), memory_client()
    load(reference, source)
    load(reversed_, write(tmp_path, *reversed(rows), header=header))
    assert reversed_.rows == reference.rows
    first, second = rows[50:], rows[:50]
    packed = tmp_path / "part.gz"
    packed.write_bytes(gzip.compress("\n".join((header, *first)).encode()))
    parts = [packed, write(tmp_path, *second, header=header)]
    load(split, *parts)
    again = load(split, *parts, source)
    assert (again.kept, again.unchanged) == (0, 162)
    assert split.rows == reference.rows


@pytest.mark.data
@pytest.mark.parametrize("name", ["fake-line-break", "one-multiline", "multiple-multiline"])
def test_rows_over_several_lines_become_the_expected_records(data_root: Path, name: str) -> None:
    folder = data_root / "slurm_sacct_meta"

    def records(path: Path) -> list[tuple[str, str, object]]:
        found = [item for item in IMPORTER.read(path, OPTIONS) if isinstance(item, Imported)]
        return [(item.record_key, item.content, item.rows) for item in found]

    found = records(folder / f"sample-sacct-{name}.txt")
    assert found == records(folder / f"sample-sacct-{name}-expected.txt")
    assert len(found) == {"fake-line-break": 4, "one-multiline": 4, "multiple-multiline": 6}[name]


@pytest.mark.data
def test_a_multiline_capture_counts_gpus_over_all_nodes(memory_client: Make, data_root: Path) -> None:
    client = memory_client()
    load(client, data_root / "slurm_sacct_meta" / "sample-sacct-fake-line-break.txt")
    # 1024 GPUs for 22:03:16 and 256 GPUs for 1-00:15:56; the step's 2048 are not counted.
    assert client.gpu_seconds == 1024 * 79396 + 256 * 87356
    command = client.rows["job"][("cluster/201844#0",)]["command"]
    assert command == "sbatch --job-name job_name || \\n \\n "


@pytest.mark.data
def test_copies_of_one_row_are_one_record(memory_client: Make, data_root: Path) -> None:
    client = memory_client()
    path = data_root / "slurm_sacct_meta" / "sample-sacct-output.txt"
    assert len(path.read_text(encoding="utf-8").splitlines()) == 69
    assert len(set(path.read_text(encoding="utf-8").splitlines())) == 2
    report = load(client, path)
    assert (report.read, report.kept, report.unchanged) == (68, 1, 67)
    step = only(client.table("step"))
    assert step["attempt_key"] == "node/8084960#0:22863230"
    assert (step["step_id"], step["memory_peak_bytes"], step["cpu_seconds"]) == ("0", 77460 * 1024, 91.654)


def test_a_requeued_job_goes_on_and_an_id_that_comes_back_is_a_new_job(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    load(
        client,
        write(
            tmp_path,
            line("7", "REQUEUED", 100, 110, 200, 1),
            line("7", "COMPLETED", 200, 300, 400, 2),
            line("7", "COMPLETED", 900_000, 900_010, 900_020, 3),
        ),
    )
    assert [row["attempt_key"] for row in client.table("attempt")] == ["c/7#0:1", "c/7#0:2", "c/7#1:3"]
    assert [(row["job_key"], row["submit_at"]) for row in client.table("job")] == [("c/7#0", 100), ("c/7#1", 900_000)]
    assert client.gpu_seconds == 90 + 100 + 10


def test_a_lost_job_and_the_same_id_much_later_are_two_jobs(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    later = 200 + 3601
    load(
        client,
        write(
            tmp_path, line("7", "NODE_FAIL", 100, 110, 200, 1), line("7", "COMPLETED", later, later + 1, later + 2, 2)
        ),
    )
    assert [row["job_key"] for row in client.table("job")] == ["c/7#0", "c/7#1"]


def test_a_resized_job_stays_one_job(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    two = "gres/gpu=2,node=2"
    load(
        client,
        write(
            tmp_path,
            line("7", "RESIZING", 100, 110, 200, 1, tres=two),
            line("7", "COMPLETED", 100, 200, 300, 2),
        ),
    )
    assert [row["attempt_key"] for row in client.table("attempt")] == ["c/7#0:1", "c/7#0:2"]
    assert client.gpu_seconds == 2 * 90 + 100


LIVES = [
    line("7", "REQUEUED", 100, 110, 200, 1),
    line("7", "PREEMPTED", 201, 210, 300, 2),
    line("7", "COMPLETED", 300, 310, 400, 3),
    line("7.batch", "COMPLETED", 310, 310, 400, 3),
    line("7", "COMPLETED", 900_000, 900_010, 900_020, 4),
    line("8", "RUNNING", 100, 110, "Unknown", 5),
    line("8", "COMPLETED", 100, 110, 250, 5),
    line("9_1", "COMPLETED", 100, 110, 120, 6, raw="10"),
    line("9_2", "COMPLETED", 100, 110, 120, 7, raw="9"),
    line("9_[3-5]", "PENDING", 100, "Unknown", "Unknown", 8, raw="9"),
    line("11", "CANCELLED by 5", 100, 150, 150, 9, nodes="None assigned", tres=""),
]


@given(order=st.permutations(LIVES), has_db_index=st.booleans())
def test_keys_do_not_depend_on_the_order_of_rows(
    memory_client: Make, tmp_path_factory: pytest.TempPathFactory, order: list[str], has_db_index: bool
) -> None:
    folder = tmp_path_factory.mktemp("order")

    def stored(rows: Sequence[str]) -> object:
        rows = rows if has_db_index else [row.rpartition("|")[0] + "|" for row in rows]
        client = memory_client()
        load(client, write(folder, *rows))
        return client.rows

    assert stored(order) == stored(LIVES)


@given(order=st.permutations([row for row in LIVES if "|900010|" not in row]), cut=st.integers(0, 10))
def test_keys_do_not_depend_on_how_rows_are_spread_over_imports(
    memory_client: Make, tmp_path_factory: pytest.TempPathFactory, order: list[str], cut: int
) -> None:
    folder = tmp_path_factory.mktemp("spread")
    whole, parts = memory_client(), memory_client()
    load(whole, write(folder, *order))
    if order[:cut]:
        load(parts, write(folder, *order[:cut]))
    load(parts, write(folder, *order[cut:]))
    assert parts.rows["attempt"] == whole.rows["attempt"]
    assert parts.rows["allocation"] == whole.rows["allocation"]
    assert parts.rows["job"] == whole.rows["job"]


def test_an_id_that_comes_back_in_a_later_import_is_a_new_job(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    load(client, write(tmp_path, line("7", "COMPLETED", 100, 110, 200, 1)))
    load(client, write(tmp_path, line("7", "COMPLETED", 900_000, 900_010, 900_020, 2)))
    assert [row["attempt_key"] for row in client.table("attempt")] == ["c/7#0:1", "c/7#1:2"]


def test_a_file_without_dbindex_updates_what_a_file_with_it_brought(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    load(client, write(tmp_path, line("7", "RUNNING", 100, 110, "Unknown", 55)))
    load(client, write(tmp_path, line("7", "COMPLETED", 100, 110, 200)))
    assert only(client.table("attempt"))["attempt_key"] == "c/7#0:55"
    assert client.gpu_seconds == 90


def test_a_row_that_says_running_does_not_undo_a_known_end(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    load(client, write(tmp_path, line("7", "COMPLETED", 100, 110, 200, 1)))
    report = load(client, write(tmp_path, line("7", "RUNNING", 100, 110, "Unknown", 1)))
    assert report.kept == 1
    assert only(client.table("attempt"))["state"] == "completed"


def test_an_array_of_two_hundred_with_steps_and_a_heterogeneous_job_is_152_jobs(
    memory_client: Make, tmp_path: Path
) -> None:
    rows = []
    for task in range(1, 151):
        raw = str(5000 + task)
        end = "Unknown" if task > 147 else 160
        state = "RUNNING" if task > 147 else "COMPLETED"
        rows.append(line(f"2145_{task}", state, 100, 110, end, task, raw=raw))
        rows += [
            line(f"2145_{task}.{step}", state, 110, 110, end, task, raw=f"{raw}.{step}") for step in ("batch", "0")
        ]
    rows.append(line("2145_[151-200%2]", "PENDING", 100, "Unknown", "Unknown", 900, raw="2145", tres=""))
    rows += [
        line("93+0", "COMPLETED", 100, 110, 120, 901, raw="93"),
        line("93+1", "COMPLETED", 100, 110, 120, 902, raw="94"),
    ]
    client = memory_client()
    report = load(client, write(tmp_path, *rows))
    assert (report.read, report.kept) == (453, 453)
    assert len(client.table("job")) == 152
    assert {row["array_job_id"] for row in client.table("job")} == {"2145", None}
    assert client.gpu_seconds == 147 * 50 + 2 * 10


GPUS = {
    "cpu=4,gres/gpu:a100=2,gres/gpu=2,mem=4G": [(2, "a100")],
    "gres/gpu=3": [(3, None)],
    "gres/gpu:v100=1": [(1, "v100")],
    "gres/gpu=3,gres/gpu:a100=2,gres/gpu:v100=1": [(2, "a100"), (1, "v100")],
    "gres/gpu=4,gres/gpu:a100=3": [(3, "a100"), (1, None)],
    "gres/gpu:1g.10gb=1,gres/gpu=1": [(1, "1g.10gb")],
    "gres/gpu=0,gres/gpu:a100=0": [],
    "cpu=4,gres/shard=2,gres/gpumem=80G,gres/gpuutil=50": [],
    "": [],
}


@pytest.mark.parametrize("tres", GPUS)
def test_the_two_spellings_of_a_gpu_count_it_once(memory_client: Make, tmp_path: Path, tres: str) -> None:
    client = memory_client()
    load(client, write(tmp_path, line("7", "COMPLETED", 100, 110, 120, 1, tres=tres)))
    assert [(row["gpu_count"], row["gpu_model"]) for row in client.table("allocation")] == GPUS[tres]


@pytest.mark.parametrize(
    ("gres", "count", "model"),
    [
        ("gpu:2", 2, None),
        ("gpu", 1, None),
        ("gres:gpu:2(IDX:0-1)", 2, None),
        ("gpu:a100:2(IDX:0,3),craynetwork:1", 2, "a100"),
        ("gres/gpu:tesla:4", 4, "tesla"),
        ("7696487:8", 8, None),
    ],
)
def test_old_files_tell_gpus_by_allocgres(
    memory_client: Make, tmp_path: Path, gres: str, count: int, model: str | None
) -> None:
    client = memory_client()
    header = "JobID|State|Start|End|AllocGRES"
    load(client, write(tmp_path, f"7|COMPLETED|110|120|{gres}", header=header))
    held = only(client.table("allocation"))
    assert (held["gpu_count"], held["gpu_model"]) == (count, model)


@pytest.mark.parametrize("delimiter", ["|", "\x1f", "|#", ",", "\t", "^"])
@pytest.mark.parametrize("ending", ["", "trailing"])
def test_the_header_tells_the_delimiter_and_the_order(
    memory_client: Make, tmp_path: Path, delimiter: str, ending: str
) -> None:
    client = memory_client()
    cells = ["End", "AllocTRES", "Unheard", "JobName", "Start", "State", "JobID", "End"]
    row = ["120", "gres/gpu=2", "?", "a;b", "110", "FAILED", "7", "999"]
    last = delimiter if ending else ""
    path = tmp_path / "sacct.txt"
    path.write_text(delimiter.join(cells) + last + "\n" + delimiter.join(row) + last + "\n", encoding="utf-8")
    report = load(client, path)
    assert (report.kept, report.rejected, report.errors) == (1, {}, [])
    assert client.gpu_seconds == 20
    assert only(client.table("job"))["name"] == "a;b"


FREE = "JobID|JobName|User|State|Submit|Start|End|AllocTRES|Comment|SubmitLine|WorkDir|DBIndex"


def test_a_delimiter_in_name_and_command_is_put_back_where_only_one_way_fits(
    memory_client: Make, tmp_path: Path
) -> None:
    client = memory_client()
    row = "7|a|b|alice|COMPLETED|100|110|120|gres/gpu=1||sbatch -J a|b x.sh|/home/alice|1"
    report = load(client, write(tmp_path, row, header=FREE))
    assert report.rejected == {}
    job = only(client.table("job"))
    assert (job["name"], job["user"], job["command"]) == ("a|b", "alice", "sbatch -J a|b x.sh")
    assert client.gpu_seconds == 10


def test_a_delimiter_that_fits_in_two_ways_rejects_the_row_and_says_what_to_do(
    memory_client: Make, tmp_path: Path
) -> None:
    header = "JobID|State|Start|End|AllocTRES|Comment|AdminComment"
    report = load(memory_client(), write(tmp_path, "7|COMPLETED|110|120|gres/gpu=1|a|b|c", header=header))
    (tally,) = report.rejected.values()
    assert report.kept == 0
    assert "8 fields, the header has 7" in tally.detail
    assert "--delimiter=$'\\x1f'" in tally.detail


def test_a_row_cut_short_costs_only_itself(memory_client: Make, tmp_path: Path) -> None:
    whole = line("8", "COMPLETED", 100, 110, 120, 2)
    report = load(memory_client(), write(tmp_path, "7|7|COMPL", whole, "slurm_load: error", whole.replace("8", "9")))
    assert report.kept == 2
    assert {key: (tally.count, tally.line) for key, tally in report.rejected.items()} == {"too few fields": (2, 2)}


def test_line_ends_of_other_systems_are_no_part_of_the_last_column(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    path = write(tmp_path, line("7", "COMPLETED", 100, 110, 120, 1))
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert load(client, path).kept == 1
    assert only(client.table("attempt"))["attempt_key"] == "c/7#0:1"


def test_a_header_that_comes_again_is_passed_over_and_may_differ(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    row = line("7", "COMPLETED", 100, 110, 120, 1)
    path = write(tmp_path, row, COLUMNS, line("8", "COMPLETED", 100, 110, 130, 2), "End|Start|State|JobID|AllocTRES")
    path.write_text(path.read_text(encoding="utf-8") + "140|110|FAILED|9|gres/gpu=1\n", encoding="utf-8")
    report = load(client, path)
    assert (report.read, report.kept) == (3, 3)
    assert client.gpu_seconds == 10 + 20 + 30


BAD_FILES = {
    "7|7|COMPLETED|100|110|120|gres/gpu=1|n1|1": "run sacct without -n (--noheader)",
    "       JobID      State               Start                 End  AllocTRES ": "run sacct with -P (--parsable2)",
    "slurm_load_jobs error: Unable to contact controller": "expected sacct's header line with JobID",
    "JobID|State|Start|End": "and AllocTRES (or AllocGRES)",
    "<!DOCTYPE html>": "expected sacct's header line with JobID",
}


@pytest.mark.parametrize("first", BAD_FILES)
def test_a_file_without_a_header_is_one_line_that_says_what_to_do(
    memory_client: Make, tmp_path: Path, first: str
) -> None:
    path = write(tmp_path, line("7", "COMPLETED", 100, 110, 120), header=first)
    report = load(memory_client(), path)
    (error,) = report.errors
    assert (report.exit_code, error.place) == (1, "line 1")
    assert BAD_FILES[first] in str(error)
    assert "\n" not in str(error)


BAD_ROWS = {
    "ends before it starts": line("7", "COMPLETED", 100, 210, 120, 1),
    "negative count": line("7", "COMPLETED", 100, 110, 120, 1, tres="gres/gpu=-1"),
    "bad count": line("7", "COMPLETED", 100, 110, 120, 1, tres="gres/gpu=many"),
    "bad time": line("7", "COMPLETED", 100, "soon", 120, 1),
    "bad state": line("7", "42", 100, 110, 120, 1),
    "bad job id": line("seven", "COMPLETED", 100, 110, 120, 1),
    "ended without an end": line("7", "COMPLETED", 100, 110, "Unknown", 1),
    "step without its job": line("7.batch", "COMPLETED", 100, 110, 120),
}


@pytest.mark.parametrize("reason", BAD_ROWS)
def test_a_bad_row_says_why_and_costs_only_itself(memory_client: Make, tmp_path: Path, reason: str) -> None:
    good = line("8", "COMPLETED", 100, 110, 120, 2)
    report = load(memory_client(), write(tmp_path, good, BAD_ROWS[reason], good.replace("8|8", "9|9")))
    assert report.kept == 2
    assert {key: (tally.count, tally.line) for key, tally in report.rejected.items()} == {reason: (1, 3)}


def test_a_lost_end_follows_from_the_elapsed_time(memory_client: Make, tmp_path: Path) -> None:
    header = "JobID|State|Start|End|AllocTRES|Elapsed"
    client = memory_client()
    load(client, write(tmp_path, "7|FAILED|100|Unknown|gres/gpu=1|1-00:00:10", header=header))
    assert client.gpu_seconds == 86_410


def test_a_job_cancelled_while_it_waited_never_started(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    load(
        client,
        write(tmp_path, line("7", "CANCELLED by 1000", 100, 150, 150, 1, nodes="None assigned", tres="")),
    )
    assert len(client.table("job")) == 1
    assert client.table("attempt") == []


def test_local_times_are_read_in_the_zone_asked_for(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    row = line("7", "COMPLETED", "2026-07-01T12:00:00", "2026-07-01T12:00:00", "2026-07-01T10:00:10Z", 1)
    load(client, write(tmp_path, row), options=ImportOptions("c", "Europe/Berlin"))
    assert client.gpu_seconds == 10, "12:00 in Berlin in summer is 10:00 UTC"


def test_a_local_time_that_happened_twice_is_the_first(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    row = line("7", "COMPLETED", "Unknown", "2026-10-25T02:30:00", "2026-10-25T00:30:07Z", 1)
    load(client, write(tmp_path, row), options=ImportOptions("c", "Europe/Berlin"))
    assert client.gpu_seconds == 7, "the first 02:30 is in summer time, 00:30 UTC"


def test_a_job_is_interactive_only_where_its_command_says_so(memory_client: Make, tmp_path: Path) -> None:
    header = "JobID|State|Start|End|AllocTRES|SubmitLine"
    commands = ["salloc --gpus=1", "/usr/bin/salloc", "srun --gpus=1 --pty bash", "sbatch run.sh", ""]
    rows = [f"{number}|COMPLETED|110|120|gres/gpu=1|{command}" for number, command in enumerate(commands)]
    client = memory_client()
    load(client, write(tmp_path, *rows, header=header))
    assert [row["interactive"] for row in client.table("job")] == [True, True, True, None, None]


def test_the_file_names_its_cluster_else_the_option_does(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    header = "JobID|State|Start|End|AllocTRES|Cluster"
    load(client, write(tmp_path, "7|COMPLETED|110|120||big", "7|COMPLETED|110|120||", header=header))
    assert [row["job_key"] for row in client.table("job")] == ["big/7#0", "c/7#0"]
