"""The loader's own promises, told with small files of the generic format."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warehouse.client import Client
from warehouse.contract.errors import BadUseError
from warehouse.importer import ImportOptions
from warehouse.loading import importers, load_files

JOBS_CSV = importers()["jobs_csv"]
OPTIONS = ImportOptions("c", "UTC")
HEADER = "job_id,gpu_count,start_at,end_at,name\n"
Make = Callable[[], Any]


def row(job: int, gpus: int = 1, name: str = "n") -> str:
    return f"{job},{gpus},1000,1100,{name}\n"


def file(folder: Path, text: str | bytes, name: str = "jobs.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_every_record_is_kept_unchanged_or_rejected(memory_client: Make, tmp_path: Path) -> None:
    path = file(tmp_path, HEADER + row(1) + row(2) + row(2) + row(3, gpus=-1) + "4,1\n")
    document = load_files(memory_client(), JOBS_CSV, [path], OPTIONS).document()
    assert document == {
        "format": "jobs_csv",
        "files": [str(path)],
        "read": 5,
        "kept": 2,
        "unchanged": 1,
        "rejected": [
            {
                "reason": "negative count",
                "count": 1,
                "first": {"file": str(path), "line": 5, "detail": "gpu_count is -1; expected 0 or more"},
            },
            {
                "reason": "too few fields",
                "count": 1,
                "first": {"file": str(path), "line": 6, "detail": "2 fields, the header has 5"},
            },
        ],
        "altered": [],
        "errors": [],
    }


def test_a_record_that_changed_is_kept_and_its_last_state_remains(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    path = file(tmp_path, HEADER + row(1, name="old") + row(1, name="new"))
    report = load_files(client, JOBS_CSV, [path], OPTIONS)
    assert (report.kept, report.unchanged) == (2, 0)
    assert [job["name"] for job in client.table("job")] == ["new"]


def test_an_old_state_never_comes_back_over_a_newer_one(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    old = file(tmp_path, HEADER + row(1, name="old"), "old.csv")
    new = file(tmp_path, HEADER + row(1, name="new"), "new.csv")
    report = load_files(client, JOBS_CSV, [old, new, old], OPTIONS)
    assert (report.kept, report.unchanged) == (2, 1)
    assert [job["name"] for job in client.table("job")] == ["new"]


@given(chunk=st.integers(1, 12), characters=st.integers(1, 2000))
def test_the_size_of_chunks_changes_nothing(
    memory_client: Make, tmp_path_factory: pytest.TempPathFactory, chunk: int, characters: int
) -> None:
    path = file(tmp_path_factory.mktemp("chunks"), HEADER + "".join(row(job) for job in (1, 2, 3, 2, 1, 4, 4, 5)))
    whole, parts = memory_client(), memory_client()
    load_files(whole, JOBS_CSV, [path], OPTIONS)
    report = load_files(parts, JOBS_CSV, [path], OPTIONS, chunk_records=chunk, chunk_characters=characters)
    assert parts.rows == whole.rows
    assert (report.kept, report.unchanged) == (5, 3)
    assert max(parts.loads) <= chunk


def test_one_bad_file_does_not_stop_the_others(memory_client: Make, tmp_path: Path) -> None:
    good = file(tmp_path, HEADER + row(1))
    report = load_files(memory_client(), JOBS_CSV, [tmp_path / "absent.csv", good, tmp_path], OPTIONS)
    assert (report.kept, report.exit_code) == (1, 0)
    assert [str(error) for error in report.errors] == [
        f"{tmp_path / 'absent.csv'}: no such file",
        f"{tmp_path}: is a folder; name the files in it",
    ]


BAD_FILES = {
    "empty": (b"", "{path}: is empty"),
    "only blank lines": (b"\n\n", "{path}: holds no text; expected a header with gpu_count, start_at, end_at"),
    "only a header": (HEADER.encode(), "{path}: holds no records of jobs_csv"),
    "another format": (
        b"JobID|State\n1|COMPLETED\n",
        "{path}, line 1: expected a header with gpu_count, start_at, end_at; found no gpu_count, start_at, end_at",
    ),
    "a misspelt column": (
        b"gpu_count,start_at,end_at,gpu_modell\n1,1,2,A\n",
        "{path}, line 1: unknown column 'gpu_modell'; the nearest is gpu_model",
    ),
    "a column twice": (
        b"gpu_count,start_at,end_at,gpu_count\n1,1,2,1\n",
        "{path}, line 1: column gpu_count comes twice",
    ),
    "a header that is no CSV": (b'"a"\rb,c\n', "{path}, line 1: expected a header; not CSV"),
    "no text at all": (
        b"x" * (1 << 22),
        "{path}, line 1: longer than 1048576 bytes; expected lines of text",
    ),
    "gzip of nothing": (gzip.compress(b""), "{path}: is empty"),
    "damaged gzip": (b"\x1f\x8b\x08rubbish", "{path}, after line 0: gzip is damaged or cut short"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_one_line_that_names_file_and_place(memory_client: Make, tmp_path: Path, name: str) -> None:
    content, message = BAD_FILES[name]
    path = file(tmp_path, content)
    report = load_files(memory_client(), JOBS_CSV, [path], OPTIONS)
    assert report.exit_code == 1
    first, second = report.text().splitlines()
    assert first == "jobs_csv: 0 read, 0 kept, 0 unchanged, 0 rejected"
    assert second.startswith("error: " + message.format(path=path))


BAD_ROWS = {
    "ends before it starts": "1,1,2000,1000,n",
    "negative count": "1,-1,1000,2000,n",
    "bad number": "1,two,1000,2000,n",
    "bad time": "1,1,yesterday,2000,n",
    "too many fields": "1,1,1000,2000,n,o",
    "too few fields": "1,1,1000",
    "open quote": '1,1,1000,2000,"n',
    "bad job id": "1#2,1,1000,2000,n",
    "field too long": "7" * 10_000 + ",1,1000,2000,n",
}


@pytest.mark.parametrize("reason", BAD_ROWS)
def test_a_bad_row_costs_only_itself(memory_client: Make, tmp_path: Path, reason: str) -> None:
    path = file(tmp_path, HEADER + row(10) + BAD_ROWS[reason] + "\n" + row(11) + row(12))
    client = memory_client()
    report = load_files(client, JOBS_CSV, [path], OPTIONS)
    assert (report.read, report.kept) == (4, 3)
    assert {key: (tally.count, tally.line) for key, tally in report.rejected.items()} == {reason: (1, 3)}
    assert client.gpu_seconds == 300


def test_a_cut_gzip_keeps_the_rows_before_the_cut(memory_client: Make, tmp_path: Path) -> None:
    text = HEADER + "".join(row(job, name=str(job * 7919 % 1000)) for job in range(5000))
    packed = gzip.compress(text.encode())
    client = memory_client()
    path = file(tmp_path, packed[: len(packed) // 2], "jobs.csv.gz")
    report = load_files(client, JOBS_CSV, [path], OPTIONS)
    assert 1000 < report.kept < 4000
    assert len(client.table("job")) == report.kept
    (error,) = report.errors
    assert error.place == f"after line {report.kept + 1}"
    assert report.exit_code == 0


def test_gzip_of_several_members_is_read_to_its_end(memory_client: Make, tmp_path: Path) -> None:
    parts = [HEADER + row(1), row(2), row(3)]
    path = file(tmp_path, b"".join(gzip.compress(part.encode()) for part in parts) + b"\0" * 512)
    report = load_files(memory_client(), JOBS_CSV, [path], OPTIONS)
    assert (report.kept, report.errors) == (3, [])


def test_byte_order_mark_line_ends_nul_and_foreign_bytes_cost_no_row(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    lines = [HEADER.encode().strip(), b"1,1,1000,1100,caf\xe9", b"2,1,1000,1100,a\0b", b"3,1,1000,1100,last"]
    report = load_files(client, JOBS_CSV, [file(tmp_path, b"\xef\xbb\xbf" + b"\r\n".join(lines))], OPTIONS)
    assert (report.kept, report.rejected) == (3, {})
    assert [job["name"] for job in client.table("job")] == ["caf\ufffd", "a\ufffdb", "last"]


def test_a_foreign_byte_in_a_number_rejects_its_row(memory_client: Make, tmp_path: Path) -> None:
    path = file(tmp_path, HEADER.encode() + b"1,\xff1,1000,1100,n\n" + row(2).encode())
    report = load_files(memory_client(), JOBS_CSV, [path], OPTIONS)
    assert (report.kept, list(report.rejected)) == (1, ["bad number"])


def test_a_long_text_is_shortened_and_counted(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    path = file(tmp_path, HEADER + row(1, name="x" * 10_000))
    report = load_files(client, JOBS_CSV, [path], OPTIONS)
    assert client.table("job")[0]["name"] == "x" * 4095 + "…"
    assert report.document()["altered"] == [
        {
            "column": "name",
            "reason": "text shortened to 4096 characters",
            "count": 1,
            "first": {"file": str(path), "line": 2, "detail": "it had 10000"},
        }
    ]


def test_progress_ends_at_the_size_of_the_file(memory_client: Make, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    path = file(tmp_path, HEADER + row(1))
    load_files(memory_client(), JOBS_CSV, [path], OPTIONS, lambda *told: seen.append(told))
    assert seen[-1] == (str(path), path.stat().st_size, path.stat().st_size)


def test_messages_stay_on_their_line_whatever_the_file_is_called(memory_client: Make, tmp_path: Path) -> None:
    path = tmp_path / "evil\n\x1b[31m.csv"
    text = load_files(memory_client(), JOBS_CSV, [path], OPTIONS).text()
    assert len(text.splitlines()) == 2
    assert "\x1b" not in text


def test_an_unknown_zone_is_bad_use(memory_client: Make, tmp_path: Path) -> None:
    with pytest.raises(BadUseError, match="no zone 'Mars/Olympus'"):
        load_files(memory_client(), JOBS_CSV, [file(tmp_path, HEADER + row(1))], ImportOptions("c", "Mars/Olympus"))


def test_a_servers_address_for_a_format_of_files_is_bad_use(memory_client: Make) -> None:
    with pytest.raises(BadUseError, match="jobs_csv reads files, and http://h/x is the address of a server"):
        load_files(memory_client(), JOBS_CSV, ["http://me:secret@h/x"], OPTIONS)


def test_a_stretch_of_time_that_ends_before_it_begins_is_bad_use(memory_client: Make) -> None:
    options = ImportOptions("c", "UTC", since_at=2000.0, until_at=1000.0)
    with pytest.raises(BadUseError, match="is not before --until"):
        load_files(memory_client(), importers()["prometheus_server"], ["http://127.0.0.1:1"], options)


def test_a_server_that_is_not_there_is_one_line(memory_client: Make, free_port: int) -> None:
    options = ImportOptions("c", "UTC", since_at=1000.0, until_at=2000.0)
    report = load_files(memory_client(), importers()["prometheus_server"], [f"http://127.0.0.1:{free_port}"], options)
    (error,) = report.errors
    assert "does not answer" in str(error)
    assert report.exit_code == 1


@pytest.mark.parametrize("name", importers())
def test_importing_twice_changes_nothing_in_the_store(store_client: Client, tmp_path: Path, name: str) -> None:
    importer = importers()[name]
    path = file(tmp_path, importer.example)
    first = load_files(store_client, importer, [path], OPTIONS)
    before = contents(store_client)
    second = load_files(store_client, importer, [path], OPTIONS)
    assert first.kept == first.read > 0
    assert (second.kept, second.unchanged, second.rejected) == (0, first.read, {})
    assert contents(store_client) == before
    assert any(rows for table, rows in before.items() if table != "import_ledger")


@pytest.mark.parametrize("name", importers())
def test_the_memory_client_of_these_tests_keeps_what_the_store_keeps(
    memory_client: Make, store_client: Client, tmp_path: Path, name: str
) -> None:
    importer = importers()[name]
    path = file(tmp_path, importer.example)
    light = memory_client()
    load_files(light, importer, [path], OPTIONS)
    load_files(store_client, importer, [path], OPTIONS)
    kept = contents(store_client)
    del kept["import_ledger"]
    assert {table: len(rows) for table, rows in kept.items()} == {table: len(light.table(table)) for table in kept}


def contents(client: Any) -> dict[str, list[dict[str, Any]]]:
    tables = ("job", "attempt", "allocation", "step", "attempt_summary", "device", "device_sample", "import_ledger")
    return {name: client._store.read(f"SELECT * FROM {name} ORDER BY ALL").to_pylist() for name in tables}


@pytest.mark.parametrize("name", importers())
@given(data=st.data())
def test_no_bytes_whatever_break_an_importer_and_every_record_is_counted(
    memory_client: Make, tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    importer = importers()[name]
    content = data.draw(st.binary(max_size=400) | mangled(importer.example.encode()))
    path = file(tmp_path_factory.mktemp("fuzz"), content)
    report = load_files(memory_client(), importer, [path], OPTIONS)
    assert report.read == report.kept + report.unchanged + sum(tally.count for tally in report.rejected.values())
    assert report.exit_code == (0 if report.kept + report.unchanged else 1)
    assert report.exit_code == 0 or report.errors or report.rejected


@pytest.mark.parametrize("name", importers())
def test_a_packed_file_that_is_cut_or_damaged_says_so_and_breaks_nothing(
    memory_client: Make, tmp_path: Path, name: str
) -> None:
    importer = importers()[name]
    packed = gzip.compress(importer.example.encode() * 50)
    for content in (packed[: len(packed) // 2], packed[:-4], packed[:40] + b"\0" * 40 + packed[80:]):
        report = load_files(memory_client(), importer, [file(tmp_path, content)], OPTIONS)
        assert report.errors or report.rejected
        assert report.read == report.kept + report.unchanged + sum(tally.count for tally in report.rejected.values())


def mangled(example: bytes) -> st.SearchStrategy[bytes]:
    """Damage an example in a few places: bytes changed, taken out, put in, lines doubled."""
    edit = st.tuples(st.integers(0, len(example)), st.integers(0, 40), st.binary(max_size=12))
    return st.lists(edit, min_size=1, max_size=4).map(lambda edits: _apply(example, edits))


def _apply(example: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    for at, taken_out, put_in in edits:
        example = example[:at] + put_in + example[at + taken_out :]
    return example


@pytest.mark.parametrize("name", importers())
def test_each_format_has_a_section_and_says_what_it_can_tell(repository: Path, name: str) -> None:
    text = (repository / "docs" / "import.md").read_text(encoding="utf-8")
    assert f"\n## {name.replace('_', '-')}:" in text or f"\n## {name}:" in text
    assert f"| `{name}` | {importers()[name].gives} |" in text
