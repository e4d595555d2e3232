"""Node keys and accounting are joined when read: late accounting corrects history, and nothing is written anew."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from warehouse import comeback, lake, purge, sql
from warehouse.contract import model, wire
from warehouse.contract.model import AttemptState
from warehouse.contract.settings import Settings
from warehouse.engines import Engine, open_lake
from warehouse.store import Store, open_store
from warehouse.viewer import OPERATOR, Viewer

T0 = 1_790_000_000.0
KEY = f"c/@slurm:77:{int(T0)}"


@pytest.fixture
def store(tmp_path: Path) -> Generator[Store]:
    opened = open_store(tmp_path / "data", create=True)
    yield opened
    opened.close()


def job(number: int = 77, generation: int = 0, **words: Any) -> model.Job:
    fields: dict[str, Any] = {"cluster": "c", "user": "alice"} | words
    cluster = fields.pop("cluster")
    return model.Job(f"{cluster}/{number}#{generation}", cluster, str(number), "sacct", **fields)


def attempt(start: float, end: float | None, number: int = 77, generation: int = 0, **words: Any) -> model.Attempt:
    fields: dict[str, Any] = {"cluster": "c", "state": AttemptState.COMPLETED} | words
    cluster, state = fields.pop("cluster"), fields.pop("state")
    name = f"{cluster}/{number}#{generation}"
    ends = None if end is None else T0 + end
    return model.Attempt(f"{name}:{int(T0 + start)}", name, state, None, T0 + start, ends, "sacct", **fields)


def held(key: str, start: float, end: float | None, device: str = "GPU-0", **words: Any) -> model.Allocation:
    ends = None if end is None else T0 + end
    fields: dict[str, Any] = {"source": "slurm_prolog", "device_uuid": device, "node": "n1"} | words
    return model.Allocation(f"{key}:{device}", key, 1.0, T0 + start, ends, **fields)


def samples(key: str | None, *at: float, device: str = "GPU-0") -> dict[str, wire.Table]:
    columns: dict[str, wire.Column] = {
        "cluster": "c",
        "node": "n1",
        "device_uuid": device,
        "sampled_at": [T0 + one for one in at],
        "cadence_seconds": 10.0,
        "source": "nvml",
        "attempt_key": key,
        "share_ratio": 1.0,
        "attribution": "scheduler",
    }
    return {"device_sample": wire.Table(len(at), columns)}


def write(store: Store, *records: Any, **tables: wire.Table) -> None:
    with store.transaction() as transaction:
        transaction.write({**wire.from_records(records), **tables})


def owners(store: Store, viewer: Viewer = OPERATOR) -> list[tuple[float, str | None, str | None]]:
    """Give the samples that a viewer sees: seconds after T0, owner, attribution."""
    with store.seen_by(viewer).snapshot() as tables:
        rows = tables.device_sample.order_by("sampled_at", "device_uuid").to_pyarrow().to_pylist()
    return [(row["sampled_at"].timestamp() - T0, row["attempt_key"], row["attribution"]) for row in rows]


def allocations(store: Store, viewer: Viewer = OPERATOR) -> list[dict[str, Any]]:
    with store.seen_by(viewer).snapshot() as tables:
        return list(tables.allocation.order_by("start_at", "allocation_key").to_pyarrow().to_pylist())


def raw_keys(store: Store) -> set[str]:
    return set(store.read("SELECT DISTINCT attempt_key FROM device_sample")["attempt_key"].to_pylist())


def test_a_late_import_names_what_was_measured_before_and_writes_nothing_anew(store: Store) -> None:
    write(store, held(KEY, 0, 100), **samples(KEY, 0, 10))
    assert owners(store) == [(0.0, KEY, "scheduler"), (10.0, KEY, "scheduler")]
    write(store, job(), attempt(-2, 98))
    name = f"c/77#0:{int(T0 - 2)}"
    assert owners(store) == [(0.0, name, "scheduler"), (10.0, name, "scheduler")]
    assert [row["attempt_key"] for row in allocations(store)] == [name]
    assert raw_keys(store) == {KEY}


def test_accounting_that_is_there_first_names_what_arrives_later(store: Store) -> None:
    write(store, job(), attempt(0, None))
    write(store, **samples(KEY, 0))
    assert owners(store) == [(0.0, f"c/77#0:{int(T0)}", "scheduler")]


def test_certainty_and_source_of_each_key_stand_in_a_table(store: Store) -> None:
    write(store, **samples(KEY, 0))
    write(store, job(), attempt(0, 50), attempt(60, None))
    found = sql.ask(store, "SELECT * FROM attempt_alias", most_rows=10, most_seconds=10).rows.to_pylist()
    assert [(row["node_key"], row["attempt_key"], row["certainty"], row["source"]) for row in found] == [
        (KEY, f"c/77#0:{int(T0)}", "by_start", "sacct")
    ]


def test_free_sql_reads_the_same_owners(store: Store) -> None:
    write(store, job(), attempt(0, None), **samples(KEY, 0))
    found = sql.ask(store, "SELECT attempt_key FROM device_sample", most_rows=10, most_seconds=10)
    assert found.rows["attempt_key"].to_pylist() == [f"c/77#0:{int(T0)}"]


def test_each_start_of_a_requeued_job_gets_its_own_rows(store: Store) -> None:
    second = f"c/@slurm:77:{int(T0 + 200)}"
    write(store, **samples(KEY, 0, 10))
    write(store, **samples(second, 200, 210))
    write(store, job(), attempt(0, 150, state=AttemptState.REQUEUED), attempt(199, None))
    first, other = f"c/77#0:{int(T0)}", f"c/77#0:{int(T0 + 199)}"
    assert [key for _, key, _ in owners(store)] == [first, first, other, other]


def test_a_number_that_came_back_is_told_apart_by_time(store: Store) -> None:
    """A node that knows the number alone (no prolog) writes one key for both jobs."""
    alone = "c/@slurm:77:"
    write(store, **samples(alone, 0, 10, 5000, 9000))
    write(store, job(), attempt(0, 100), job(77, 1, user="bob"), attempt(8990, None, generation=1))
    assert [key for _, key, _ in owners(store)] == [
        f"c/77#0:{int(T0)}",
        f"c/77#0:{int(T0)}",
        alone,
        f"c/77#1:{int(T0 + 8990)}",
    ]
    assert [at for at, _, _ in owners(store, Viewer("alice"))] == [0.0, 10.0]
    assert [at for at, _, _ in owners(store, Viewer("bob"))] == [9000.0]


def test_two_that_fit_equally_blame_nobody(store: Store) -> None:
    write(store, held(KEY, 0, 100), **samples(KEY, 0))
    write(store, job(), job(77, 1, user="bob"), attempt(0, 50), attempt(0, None, generation=1))
    assert owners(store) == [(0.0, KEY, "ambiguous")]
    assert [(row["attempt_key"], row["certainty"]) for row in allocations(store)] == [(KEY, "ambiguous")]
    assert owners(store, Viewer("alice")) == owners(store, Viewer("bob")) == []


def test_the_same_number_on_another_cluster_is_another_job(store: Store) -> None:
    write(store, **samples(KEY, 0))
    write(store, job(cluster="d"), attempt(0, None, cluster="d"))
    assert owners(store) == [(0.0, KEY, "scheduler")]


def test_tasks_of_an_array_and_parts_of_a_heterogeneous_job_go_by_their_raw_numbers(store: Store) -> None:
    keys = [f"c/@slurm:{number}:{int(T0)}" for number in (77, 78, 79)]
    for at, key in enumerate(keys):
        write(store, **samples(key, at))
    write(
        store,
        job(77, array_job_id="77", array_task_index=5),  # the last task of an array bears the array's number
        job(78, array_job_id="77", array_task_index=1),
        job(79, het_job_id="79", het_offset=1),
        *(attempt(0, None, number) for number in (77, 78, 79)),
    )
    assert [key for _, key, _ in owners(store)] == [f"c/{number}#0:{int(T0)}" for number in (77, 78, 79)]


def test_a_job_on_two_nodes_is_one_attempt_though_its_nodes_began_it_apart(store: Store) -> None:
    other = f"c/@slurm:77:{int(T0 + 7)}"
    write(store, held(KEY, 0, None), held(other, 7, None, "GPU-1"))
    write(store, job(), attempt(0, 100))
    assert {row["attempt_key"] for row in allocations(store)} == {f"c/77#0:{int(T0)}"}


def test_accountings_times_stand_for_the_hooks_where_they_are_near(store: Store) -> None:
    write(store, held(KEY, 3, 108), held(KEY, 3, None, "GPU-1"), held(KEY, 3, 400, "GPU-2"))
    write(store, job(), attempt(1, 100))
    assert {(row["start_at"].timestamp() - T0, row["end_at"].timestamp() - T0) for row in allocations(store)} == {
        (1.0, 100.0)
    }


def test_what_a_job_gave_back_long_before_its_end_stays_given_back(store: Store) -> None:
    write(store, held(KEY, 0, 100))
    write(store, job(), attempt(0, 5000))
    assert [row["end_at"].timestamp() - T0 for row in allocations(store)] == [100.0]


def test_times_of_processes_that_were_seen_are_their_own(store: Store) -> None:
    write(store, held(KEY, 20, 60, source="process"))
    write(store, job(), attempt(0, 100))
    assert [(row["start_at"].timestamp() - T0, row["end_at"].timestamp() - T0) for row in allocations(store)] == [
        (20.0, 60.0)
    ]


def test_pods_are_found_by_uid_and_by_name(store: Store) -> None:
    write(store, **samples("c/@pod:3c1f:", 0))
    write(store, **samples(f"c/@podname:team/train-0:{int(T0 + 10)}", 10))
    write(
        store,
        model.Job("c/job-1#0", "c", "job-1", "kubernetes"),
        model.Attempt(
            "c/job-1#0:3c1f", "c/job-1#0", AttemptState.RUNNING, None, T0, None, "kubernetes", other_id="team/train-0"
        ),
    )
    assert [key for _, key, _ in owners(store)] == ["c/job-1#0:3c1f"] * 2


def test_a_person_sees_the_own_rows_through_the_join_and_no_others(store: Store) -> None:
    other = f"c/@slurm:78:{int(T0)}"
    write(store, held(KEY, 0, 100), **samples(KEY, 0))
    write(store, held(other, 0, 100, "GPU-1"), **samples(other, 1, device="GPU-1"))
    assert owners(store, Viewer("alice")) == []  # whose it is, is not known
    write(store, job(), attempt(0, 100), job(78, user="bob"), attempt(0, 100, 78))
    assert [key for _, key, _ in owners(store, Viewer("alice"))] == [f"c/77#0:{int(T0)}"]
    assert [row["attempt_key"] for row in allocations(store, Viewer("alice"))] == [f"c/77#0:{int(T0)}"]
    assert "78" not in repr(allocations(store, Viewer("alice")))


def test_the_lake_alone_gives_the_same_owners(store: Store) -> None:
    write(store, held(KEY, 3, 108), **samples(KEY, 0))
    write(store, **samples("c/@slurm:78:", 1))
    write(store, job(), attempt(0, 100), job(78), attempt(0, None, 78))
    near = (owners(store), allocations(store))
    seal(store)
    assert (owners(store), allocations(store)) == near
    with open_lake(store.data, Engine.DUCKDB, Settings()) as sealed, sealed.snapshot() as tables:
        rows = tables.device_sample.order_by("sampled_at").to_pyarrow().to_pylist()
        held_rows = tables.allocation.to_pyarrow().to_pylist()
    assert [row["attempt_key"] for row in rows] == [key for _, key, _ in near[0]]
    assert [(row["attempt_key"], row["end_at"]) for row in held_rows] == [
        (row["attempt_key"], row["end_at"]) for row in near[1]
    ]


def seal(store: Store) -> None:
    for table, day in lake.days_to_seal(store, date(2100, 1, 1)):
        lake.seal(store, store.data, table, day)
    lake.publish(store, store.data)


def test_a_store_that_lost_its_database_names_from_the_lake(store: Store, tmp_path: Path) -> None:
    write(store, job(), attempt(0, None), **samples(KEY, 0))
    seal(store)
    shutil.copytree(store.data / "lake", tmp_path / "other" / "lake")
    other = open_store(tmp_path / "other", create=True)
    comeback.restore(other, tmp_path / "other")
    assert owners(other) == owners(store) == [(0.0, f"c/77#0:{int(T0)}", "scheduler")]
    other.close()


def test_what_is_purged_goes_under_its_node_keys_too_and_nobody_elses(store: Store) -> None:
    """Alice's job and bob's had the same number: of the rows that carry it alone, those of her time go."""
    alone, other = "c/@slurm:77:", f"c/@slurm:78:{int(T0)}"
    write(store, held(KEY, 0, 100), **samples(KEY, 0))
    write(store, **samples(alone, 10, 9000))
    write(store, held(other, 0, 100, "GPU-1"), **samples(other, 1, device="GPU-1"))
    write(store, job(), attempt(0, 100), job(77, 1, user="bob"), attempt(8990, None, generation=1))
    write(store, job(78, user="bob"), attempt(0, 100, 78))
    seal(store)
    write(store, **samples(KEY, 20))
    write(store, **samples(alone, 30, 9010))
    purge.purge(store, purge.Whom("user", "alice"))
    assert [at for at, _, _ in owners(store)] == [1.0, 9000.0, 9010.0]
    assert [row["device_uuid"] for row in allocations(store)] == ["GPU-1"]
    write(store, **samples(KEY, 40))  # what an agent still held
    assert [at for at, _, _ in owners(store)] == [1.0, 9000.0, 9010.0]


def test_a_store_that_never_took_note_of_its_keys_finds_them(store: Store) -> None:
    write(store, job(), attempt(0, None), **samples(KEY, 0))
    with store.transaction() as transaction:
        transaction.execute("DELETE FROM attempt_alias")
    assert owners(store) == [(0.0, KEY, "scheduler")]
    store.take_note_of_node_keys()
    assert owners(store) == [(0.0, f"c/77#0:{int(T0)}", "scheduler")]
