"""What a node's own token may tell, table by table; the routes are tried in test_credentials."""

from __future__ import annotations

import pytest

from warehouse import batches, node_rights
from warehouse.contract import model, wire
from warehouse.contract.model import Allocation, Attempt, AttemptState, Device, Event, Job, Record

NODE = "n1"
OF_USERS = Job("c/n1-77-1000#0", "c", "77", "process")
RUN_OF_USERS = Attempt("c/n1-77-1000#0:1000", "c/n1-77-1000#0", AttemptState.RUNNING, None, 1000.0, None, "process")


def batch(*records: Record, agent: str = NODE, **tables: wire.Table) -> wire.Batch:
    return wire.Batch(agent, "boot", 1, 0.0, {**wire.from_records(records), **tables})


def held(node: str | None) -> Allocation:
    return Allocation("k", "c/@slurm:5:1000", 1.0, 1000.0, None, "slurm", "exact", device_uuid="GPU-1", node=node)


ALLOWED = {
    "its own": batch(model.Node("c", NODE, 1.0)),
    "its devices": batch(Device("GPU-1", "c", NODE, 1.0)),
    "who holds them": batch(held(NODE)),
    "what happened": batch(Event("c", NODE, "agent_gap", 1.0)),
    "commands of its users": batch(OF_USERS, RUN_OF_USERS),
    "nothing": batch(job=wire.Table(0, {})),
}

REFUSED = {
    "another sender": batch(model.Node("c", NODE, 1.0), agent="n2"),
    "another's row": batch(model.Node("c", "n2", 1.0)),
    "a device of no node": batch(held(None)),
    "a scheduler's job": batch(Job("c/5#0", "c", "5", "slurm")),
    "a scheduler's job, said to be a process": batch(Job("c/5#0", "c", "5", "process")),
    "a process of a node whose name begins alike": batch(Job("c/n1-b-77-1000#0", "c", "77", "process")),
    "an attempt of another's job": batch(
        Attempt("c/n1-77-1000#0:1000", "c/5#0", AttemptState.FAILED, None, 1000.0, None, "process")
    ),
    "a job without a key": batch(job=wire.Table(1, {"source": "process"})),
    "a key that is no text": batch(job=wire.Table(1, {"source": "process", "job_key": [5]})),
    "summaries": batch(attempt_summary=wire.Table(1, {"attempt_key": "c/5#0:1"})),
    "imported records": batch(import_record=wire.Table(1, {"record_key": "r"})),
}


@pytest.mark.parametrize("told", list(ALLOWED.values()), ids=list(ALLOWED))
def test_a_node_tells_of_itself(told: wire.Batch) -> None:
    assert node_rights.refusal(told, NODE) is None


@pytest.mark.parametrize("told", list(REFUSED.values()), ids=list(REFUSED))
def test_a_node_tells_of_nothing_else(told: wire.Batch) -> None:
    reason = node_rights.refusal(told, NODE)
    assert reason is not None
    assert "'n1'" in reason


@pytest.mark.parametrize("name", ["its devices", "who holds them", "commands of its users"])
def test_arrow_is_judged_as_json_is(name: str) -> None:
    assert node_rights.refusal(batches.check(ALLOWED[name]), NODE) is None


@pytest.mark.parametrize("name", ["another's row", "a device of no node", "a scheduler's job"])
def test_arrow_is_refused_as_json_is(name: str) -> None:
    assert node_rights.refusal(batches.check(REFUSED[name]), NODE) == node_rights.refusal(REFUSED[name], NODE)


def test_every_table_that_must_name_its_node_has_a_column_for_it() -> None:
    assert all("node" in wire.TABLE_COLUMNS[name] for name in node_rights.NAMES_ITS_NODE)
