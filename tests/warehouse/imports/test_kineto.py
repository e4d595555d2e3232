"""Profiler timelines: real files to the nanosecond, two readers alike, and whatever may be wrong with a file."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warehouse.contract.errors import BadInputError
from warehouse.importer import Imported, ImportOptions, PastAttempt, Rejected
from warehouse.imports import kineto
from warehouse.imports._kineto_builder import nanoseconds
from warehouse.imports._kineto_file import _Reading
from warehouse.imports._kineto_json import whole_events
from warehouse.imports.kineto import EXAMPLE, read_timeline
from warehouse.timeline import Activity, Timeline

OPTIONS = ImportOptions("c", "UTC")


def written(folder: Path, text: str | bytes, name: str = "rank.json") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def event(cat: str, ts: object, dur: object, name: str = "k", **args: object) -> dict[str, object]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": args}


def columns(timeline: Timeline) -> list[object]:
    gpu, calls = timeline.gpu, timeline.calls
    rows = zip(
        gpu.start_ns.tolist(),
        gpu.duration_ns.tolist(),
        gpu.activity.tolist(),
        [timeline.configs[at] for at in gpu.config],
        gpu.device.tolist(),
        gpu.stream.tolist(),
        gpu.correlation.tolist(),
        strict=True,
    )
    made = zip(
        calls.start_ns.tolist(),
        calls.duration_ns.tolist(),
        calls.correlation.tolist(),
        [calls.apis[at] for at in calls.api],
        strict=True,
    )
    return [
        sorted(rows, key=str),
        sorted(made),
        timeline.cpu.start_ns.tolist(),
        timeline.cpu.end_ns.tolist(),
        timeline.steps,
        timeline.event_counts,
        timeline.rank,
        timeline.has_decimals,
    ]


def direct(timeline: Timeline) -> dict[str, object]:
    """Sum a timeline as the reference values were summed from the raw files."""
    work = timeline.work()
    window = timeline.window()
    if window is None:
        return {"gpu_events": 0}
    names = {Activity.KERNEL: "kernel", Activity.MEMCPY: "memcpy", Activity.MEMSET: "memset"}
    parts = {name: work.of(activity) for activity, name in names.items()}
    span = window[1] - window[0]
    busy = timeline.busy().length_ns
    return {
        "gpu_events": len(work),
        "counts": {name: len(part) for name, part in parts.items() if len(part)},
        "streams": sorted(set(work.stream.tolist())),
        "summed_ns": {name: int(part.duration_ns.sum()) for name, part in parts.items() if len(part)},
        "span_ns": span,
        "busy_union_ns": busy,
        "kernel_only_union_ns": timeline.kernels().union().length_ns,
        "busy_pct": round(100 * busy / span, 4),
    }


TRACES = (
    "a100_alexnet",
    "a100_resnet_ddp_rank0",
    "v100_resnet_rank0_ns",
    "v100_2gpu_rank1",
    "sampled_128gpu_rank0",
    "a100_event_sync_multistream",
    "a100_triton",
    "mi250_rocm62_minitoy",
    "cpu_only_rank34",
    "rank_without_gpu",
    "rank_field_missing",
    "old_schema_inference_rank1",
)


@pytest.mark.data
@pytest.mark.parametrize("name", TRACES)
def test_real_traces_give_the_values_summed_from_the_raw_files(data_root: Path, name: str) -> None:
    folder = data_root / "hta"
    if not folder.is_dir():
        pytest.skip("needs the source hta")
    expected = json.loads((folder / "reference_values.json").read_text())[f"{name}_kineto.json.gz"]["direct"]
    expected |= {"streams": sorted(expected["streams"])} if "streams" in expected else {}
    assert direct(read_timeline(folder / f"{name}_kineto.json.gz")) == expected


@pytest.mark.data
@pytest.mark.parametrize("name", ["a100_alexnet", "a100_resnet_ddp_rank0", "mi250_rocm62_minitoy", "a100_triton"])
def test_by_lines_and_event_by_event_a_file_reads_the_same(data_root: Path, name: str) -> None:
    path = data_root / "hta" / f"{name}_kineto.json.gz"
    if not path.exists():
        pytest.skip("needs the source hta")
    by_lines, by_events = (_Reading(path, lambda _: None).run(by_lines=flag) for flag in (True, False))
    assert columns(by_lines) == columns(by_events)


def test_a_timeline_in_the_profilers_own_layout(tmp_path: Path) -> None:
    timeline = read_timeline(written(tmp_path, EXAMPLE))
    assert (timeline.rank, timeline.world_size, timeline.clock_zero_ns) == (0, 1, 1790000000000000000)
    assert timeline.device_names == {0: "NVIDIA A100-SXM4-40GB"}
    assert timeline.gpu.start_ns.tolist() == [1_020_000, 1_045_000]
    assert timeline.gpu.duration_ns.tolist() == [30_125, 15_000]
    assert timeline.gpu.activity.tolist() == [Activity.KERNEL, Activity.MEMCPY]
    kernel = timeline.configs[timeline.gpu.config[0]]
    assert (kernel.name, kernel.grid, kernel.block) == ("ampere_sgemm_128x64_nn", (8, 16, 5), (128, 1, 1))
    assert (kernel.registers_per_thread, kernel.shared_memory_bytes) == (122, 12544)
    # aten::mm [1005, 1025.5) holds the launch [1010.25, 1015.25); the step is a name and no work.
    assert (timeline.cpu.start_ns.tolist(), timeline.cpu.end_ns.tolist()) == ([1_005_000], [1_025_500])
    assert [(step.name, step.start_ns, step.end_ns) for step in timeline.steps] == [
        ("ProfilerStep#1", 1_000_000, 1_060_000)
    ]
    assert (timeline.calls.correlation.tolist(), timeline.calls.apis) == ([7], ("cudaLaunchKernel",))
    assert timeline.refused == ()


@pytest.mark.parametrize(
    "rewrite",
    [
        lambda text: text,
        lambda text: json.dumps(json.loads(text)),
        lambda text: json.dumps(json.loads(text), indent=4),
        lambda text: json.dumps(json.loads(text), separators=(",", ":"), sort_keys=True),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\ufeff" + text,
        lambda text: text.replace('"ph": "X", "cat": "kernel", "name"', '"ph": "X", "cat": "kernel", \n    "name"'),
        lambda text: text.replace("  ],\n", "],\n"),
    ],
    ids=[
        "as written",
        "one line",
        "indented",
        "compact",
        "CRLF",
        "byte order mark",
        "two header lines",
        "outdented end",
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_the_same_events_in_another_layout_are_the_same_timeline(
    tmp_path: Path, rewrite: Callable[[str], str], *, packed: bool
) -> None:
    text = rewrite(EXAMPLE).encode()
    path = written(tmp_path, gzip.compress(text) if packed else text, "rank.json.gz" if packed else "rank.json")
    assert columns(read_timeline(path)) == columns(read_timeline(written(tmp_path, EXAMPLE, "plain.json")))


def test_a_bare_array_of_events_is_a_timeline_too(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps([event("kernel", 1, 2, device=0, stream=7)]))
    timeline = read_timeline(path)
    assert (timeline.rank, timeline.gpu.duration_ns.tolist()) == (None, [2000])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1712195495519689.047", 1712195495519689047),  # a double would end in .0
        ("1712195495505583.2", 1712195495505583200),
        ("0.001", 1),
        ("68.0", 68000),
        ("13.600000000000001", 13600),
        ("1.5e3", 1_500_000),
    ],
)
def test_microseconds_are_read_from_their_digits(tmp_path: Path, text: str, expected: int) -> None:
    assert nanoseconds("ts", text) == (expected, False)
    for layout in (EXAMPLE, json.dumps(json.loads(EXAMPLE.replace("1020.000", '"@"'))).replace('"@"', "1020.000")):
        path = written(tmp_path, layout.replace("1020.000", text))
        assert expected in read_timeline(path).gpu.start_ns.tolist()


@given(st.integers(0, 4 * 10**15), st.integers(0, 999), st.integers(0, 10**9), st.integers(0, 999))
def test_any_instant_survives_in_both_layouts(
    tmp_path_factory: pytest.TempPathFactory, start: int, start_ns: int, length: int, length_ns: int
) -> None:
    folder = tmp_path_factory.mktemp("instants")
    text = EXAMPLE.replace(
        '"ts": 1045.000, "dur": 15.000', f'"ts": {start}.{start_ns:03}, "dur": {length}.{length_ns:03}'
    )
    for rank, layout in enumerate((text, text.replace("\n", " "))):
        copies = read_timeline(written(folder, layout, f"{rank}.json")).copies()
        assert copies.start_ns.tolist() == [start * 1000 + start_ns]
        assert copies.duration_ns.tolist() == [length * 1000 + length_ns]


@pytest.mark.parametrize(
    "joint", ['", "pid": 9, "tid": 9,\\n', '\\"ts\\": 5, \\"dur\\": 6', "}]{[", "\\\\", "\\u00e9\\n  },"]
)
def test_a_name_may_hold_anything(tmp_path: Path, joint: str) -> None:
    name = f"k{json.dumps(joint)[1:-1]}k"
    for layout in (EXAMPLE, EXAMPLE.replace("\n", " ")):
        timeline = read_timeline(written(tmp_path, layout.replace("ampere_sgemm_128x64_nn", name)))
        assert timeline.gpu.start_ns.tolist() == [1_020_000, 1_045_000]
        assert timeline.configs[0].name == json.loads(f'"{name}"')


def test_a_call_whose_name_holds_an_escape_is_read_too(tmp_path: Path) -> None:
    timeline = read_timeline(written(tmp_path, EXAMPLE.replace("cudaLaunchKernel", 'call \\"x\\"')))
    assert (timeline.calls.apis, timeline.calls.correlation.tolist()) == (('call "x"',), [7])


def test_categories_of_old_profilers_are_known(tmp_path: Path) -> None:
    events = [
        event("Kernel", 10, 5, device=0, stream=7, correlation=1),
        event("Memcpy", 20, 5, device=0, stream=7, correlation=2),
        event("Memset", 30, 5, device=0, stream=7, correlation=3),
        event("Runtime", 1, 2, "cudaLaunchKernel", correlation=1),
        event("Operator", 1, 4),
    ]
    timeline = read_timeline(written(tmp_path, json.dumps({"traceEvents": events})))
    assert timeline.gpu.activity.tolist() == [Activity.KERNEL, Activity.MEMCPY, Activity.MEMSET]
    assert (timeline.calls.apis, timeline.cpu.length_ns) == (("cudaLaunchKernel",), 4000)


def test_a_bad_event_costs_itself_and_is_counted(tmp_path: Path) -> None:
    events = [
        event("kernel", 10, 5, device=0, stream=7),
        event("kernel", 20, -5, device=0, stream=7),
        event("kernel", "soon", 5),
        event("kernel", 30, None),
        "no event",
    ]
    timeline = read_timeline(written(tmp_path, json.dumps({"traceEvents": events})))
    assert len(timeline.gpu) == 1
    assert {refused.reason: refused.count for refused in timeline.refused} == {
        "impossible duration": 1,
        "bad time": 2,
        "no event": 1,
    }


def test_a_negative_duration_in_the_profilers_layout_is_refused(tmp_path: Path) -> None:
    timeline = read_timeline(written(tmp_path, EXAMPLE.replace('"dur": 15.000', '"dur": -15.000')))
    assert (len(timeline.gpu), [refused.reason for refused in timeline.refused]) == (1, ["impossible duration"])


def test_a_clock_that_counts_from_the_epoch_is_recognised(tmp_path: Path) -> None:
    def zero(ts: int) -> int | None:
        return read_timeline(written(tmp_path, json.dumps([event("kernel", ts, 1)]))).clock_zero_ns

    assert zero(1_669_783_687_389_324) == 0
    assert zero(4_458_676_983_543) is None


CUT = EXAMPLE.index("gpu_memcpy")
BROKEN = [
    (b"", "is empty"),
    (b"not json at all", "holds no profiler timeline"),
    (b'{"a": 1}', "holds no profiler timeline"),
    (b"\x1f\x8b\x08\x00garbage", "gzip is damaged or cut short"),
    (gzip.compress(EXAMPLE.encode())[:-30], "gzip is damaged or cut short"),
    (EXAMPLE[:CUT].encode(), "byte .*: the list of events does not end: the file is cut short"),
    (json.dumps(json.loads(EXAMPLE))[:900].encode(), "the list of events does not end"),
    (EXAMPLE.replace('"ts": 1020.000', '"ts" 1020.000').encode(), "byte .*: is no JSON"),
    (EXAMPLE.replace('"traceName"', "traceName").encode(), "what stands before or behind the events is no JSON"),
]


@pytest.mark.parametrize(("content", "message"), BROKEN)
def test_a_broken_file_is_one_line_that_names_file_and_place(tmp_path: Path, content: bytes, message: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(BadInputError, match=message) as caught:
        read_timeline(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no such file"):
        read_timeline(tmp_path / "rank.json")


@given(
    st.lists(
        st.dictionaries(st.text(max_size=5), st.text(max_size=9) | st.integers() | st.none(), max_size=3), max_size=5
    )
)
def test_the_end_of_whole_events_is_found_whatever_strings_hold(events: list[dict[str, Any]]) -> None:
    text = json.dumps(events, ensure_ascii=False).encode()[1:]
    size, end = whole_events(text + b', "}{": 1}')
    assert (size, end) == (len(text) - 1, len(text) - 1)
    assert json.loads(b"[" + text[:size] + b"]") == events


def large(folder: Path, kernels: int) -> Path:
    """Write a trace in the profiler's layout in which nothing but instants and numbers changes."""
    head, tail = EXAMPLE.split('"traceEvents": [\n')[0] + '"traceEvents": [\n', '  ],\n  "traceName": "x.json"\n}\n'
    body = EXAMPLE.split('"traceEvents": [\n')[1].split("\n  ],")[0]
    path = folder / "large.json"
    with path.open("w") as file:
        file.write(head)
        for at in range(kernels):
            file.write(body.replace('"ts": 10', f'"ts": {at + 1}10'))
            file.write("\n" if at == kernels - 1 else ",\n")
        file.write(tail)
    return path


@pytest.mark.slow
def test_memory_grows_with_gpu_events_and_not_with_the_file(tmp_path: Path) -> None:
    path = large(tmp_path, 60_000)
    size = path.stat().st_size
    assert size > 60_000_000
    tracemalloc.start()
    timeline = read_timeline(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (len(timeline.gpu), len(timeline.steps)) == (120_000, 60_000)
    assert peak < size  # as one text it would be the file, as JSON objects many times that


def test_blocks_of_any_size_give_the_same_timeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = large(tmp_path, 3)
    whole = columns(read_timeline(path))
    for size in (1, 700, 5000):
        monkeypatch.setattr("warehouse.imports._kineto_file.BLOCK_BYTES", size)
        monkeypatch.setattr("warehouse.imports._text.BLOCK_BYTES", size)
        assert columns(read_timeline(path)) == whole
        assert columns(_Reading(path, lambda _: None).run(by_lines=False)) == whole


# --------------------------------------------------------------------------------------------------- for the store


def imported(path: Path, options: ImportOptions = OPTIONS) -> list[Imported | Rejected]:
    return list(kineto.read(path, options))


def rows(record: Imported | Rejected, table: str) -> list[Any]:
    assert isinstance(record, Imported)
    return [row for row in record.rows if table == row.TABLE]


def test_a_profile_without_a_job_stands_for_itself(tmp_path: Path) -> None:
    (record,) = imported(written(tmp_path, EXAMPLE))
    (job,), (attempt,), (held,) = (rows(record, table) for table in ("job", "attempt", "allocation"))
    assert job.name == "rank-0.json"
    # From the first operator at 1005 us to the end of the copy at 1060 us.
    assert attempt.end_at - attempt.start_at == pytest.approx(55e-6, abs=1e-6)
    assert (held.gpu_count, held.gpu_model, held.attempt_key) == (1.0, "NVIDIA A100-SXM4-40GB", attempt.attempt_key)
    (summary,) = rows(record, "attempt_summary")
    assert summary.gpu_bound_ratio == pytest.approx(30.125 / 55, rel=0.02)
    (kernel,) = rows(record, "kernel_profile")
    assert (kernel.kernel_name, kernel.grid, kernel.launch_count) == ("ampere_sgemm_128x64_nn", "8x16x5", 1)
    assert (kernel.total_seconds, kernel.longest_seconds) == (30.125e-6, 30.125e-6)
    assert kernel.hour_at == 1790000000 // 3600 * 3600


LABELLED = EXAMPLE.replace('"traceName"', '"SLURM_JOB_ID": "77",\n  "traceName"')


def test_a_profile_that_names_its_job_belongs_to_the_attempt_that_ran_then(tmp_path: Path) -> None:
    past = [
        PastAttempt("c/77#0", "c/77#0:1", "requeued", None, 1789990000.0, 1789999000.0),
        PastAttempt("c/77#0", "c/77#0:2", "completed", None, 1789999999.0, 1790000999.0),
    ]
    options = ImportOptions("c", "UTC", past_attempts=lambda _cluster, _ids: tuple(past))
    (record,) = imported(written(tmp_path, LABELLED), options)
    assert rows(record, "job") == []
    (summary,) = rows(record, "attempt_summary")
    assert summary.attempt_key == "c/77#0:2"
    assert summary.coverage_ratio == pytest.approx(55e-6 / 1000, rel=0.02)
    assert [row.attempt_key for row in rows(record, "kernel_profile")] == ["c/77#0:2"]


def test_a_profile_of_a_job_that_is_not_in_the_store_waits_for_the_accounting(tmp_path: Path) -> None:
    (record,) = imported(written(tmp_path, LABELLED))
    assert isinstance(record, Rejected)
    assert record.reason == "job not in the store"
    assert "import the accounting first" in record.detail


def test_kernels_are_summed_by_hour(tmp_path: Path) -> None:
    hour = 3600 * 1_000_000
    first = 1_790_000_000 // 3600 * hour
    events = [event("kernel", first + at, 7, device=0, stream=7) for at in (1, 20, hour + 5)]
    (record,) = imported(written(tmp_path, json.dumps({"traceEvents": events})))
    found = [(row.hour_at, row.launch_count, row.total_seconds) for row in rows(record, "kernel_profile")]
    assert found == [(first / 1e6, 2, 14e-6), (first / 1e6 + 3600, 1, 7e-6)]


def test_a_folder_gives_one_record_for_each_rank_and_a_broken_file_costs_itself(tmp_path: Path) -> None:
    written(tmp_path, EXAMPLE, "rank-0.json")
    written(tmp_path, gzip.compress(EXAMPLE.replace('"rank": 0', '"rank": 1').encode()), "rank-1.json.gz")
    written(tmp_path, EXAMPLE[:900], "rank-2.json")
    written(tmp_path, "notes", "README.txt")
    first, second, broken = imported(tmp_path)
    assert {row.source for record in (first, second) for row in rows(record, "attempt_summary")} == {
        "kineto:rank-0",
        "kineto:rank-1",
    }
    assert isinstance(broken, Rejected)
    assert "rank-2.json" in broken.detail


def test_a_profile_without_gpu_work_is_rejected_with_its_reason(tmp_path: Path) -> None:
    (record,) = imported(written(tmp_path, json.dumps([event("cpu_op", 1, 2)])))
    assert isinstance(record, Rejected)
    assert record.reason == "no work of a device"
