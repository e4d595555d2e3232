"""A real Slurm with accounting, hooks, agents on both nodes and a server: what happened is what is told."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from collector.simulate.standin import STATE_VARIABLE, StandinDevice, StandinState, library_path
from tests.conftest import NEEDS_PACKAGE
from tests.real.slurm_cluster import GPUS_PER_NODE, NODES, SlurmCluster, missing_packages
from tests.warehouse.serving import REPOSITORY, ServerProcess
from warehouse import access
from warehouse.client import HttpClient

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SETTLED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
CADENCE_SECONDS = 1.0


@dataclass(frozen=True)
class Story:
    """What was done, and where the server is that was told."""

    cluster: SlurmCluster
    server: ServerProcess
    jobs: dict[str, str]

    def rows(self, statement: str) -> list[dict[str, Any]]:
        """Ask the server in SQL."""
        found: Any = self.server.client().sql(statement)["rows"]
        return list(found)

    def attempts(self, name: str) -> list[dict[str, Any]]:
        """Give the attempts of a job, or of all tasks of an array, in order."""
        return self.rows(
            "SELECT attempt.*, array_job_id, array_task_index, scheduler_job_id, epoch(start_at) AS since, "
            f"epoch(end_at) AS until FROM attempt JOIN job USING (job_key) "
            f"WHERE job.name = '{name}' ORDER BY start_at, attempt_key"
        )


@pytest.fixture(scope="module")
def story() -> Iterator[Story]:
    """Run a small day of a cluster and tell the server of it."""
    if missing := missing_packages():
        pytest.skip(f"{NEEDS_PACKAGE} {', '.join(missing)}")
    if os.geteuid() != 0:
        pytest.skip("needs root: Slurm's daemons start jobs as other users")
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:
        folder = Path(name)
        folder.chmod(0o711)  # the database and the jobs run as other users
        server = ServerProcess(folder / "data", variables={"TRUELOAD_SQL__OVER_HTTP": "true"})
        agents: list[subprocess.Popen[bytes]] = []
        try:
            cluster = SlurmCluster(folder / "slurm", REPOSITORY / "deploy" / "slurm")
            agents += [start_agent(folder, cluster, server, node) for node in NODES]
            with cluster:
                measured = "SELECT DISTINCT node FROM device_sample"
                ask: Any = server.client()
                cluster.wait("both agents measure", lambda: len(ask.sql(measured)["rows"]) == len(NODES))

                def is_measured(job: str) -> bool:
                    own = f"SELECT 1 AS one FROM device_sample WHERE attempt_key LIKE '%@slurm:{job}:%' LIMIT 1"
                    return bool(ask.sql(own)["rows"])

                jobs = live_through(cluster, is_measured)
                bring_in(cluster, server)
                for agent in agents:
                    agent.terminate()
                    assert agent.wait(30) == 0
                agents.clear()
                yield Story(cluster, server, jobs)
        finally:
            for agent in agents:
                agent.kill()
                agent.wait()
            server.stop()


def start_agent(folder: Path, cluster: SlurmCluster, server: ServerProcess, node: str) -> subprocess.Popen[bytes]:
    """Start a node's agent over stand-in cards, whose minor numbers are those of the node's device files."""
    number = NODES.index(node)
    cards = [
        StandinDevice(
            uuid=f"GPU-{number}{place}000000-0000-0000-0000-000000000000",
            name="NVIDIA A100-SXM4-40GB",
            pci_bus_id=f"00000000:{0x10 + place:02X}:00.0",
            minor_number=place,
            memory_total_bytes=40 * 1024**3,
            memory_used_bytes=0,
            driver_util_ratio=0.5,
            power_watts=100.0,
            energy_joules=0.0,
            temperature_celsius=40.0,
            sm_clock_hertz=1e9,
        )
        for place in range(GPUS_PER_NODE)
    ]
    state = folder / f"{node}.nvml"
    StandinState.create(state, "570.124.06", cards).close()
    settings = {
        "NODE": node,
        "CLUSTER": cluster.name,
        "SOURCES": "nvml",
        "JOB_SOURCE": "slurm",
        "SLURM_JOBS_DIR": str(cluster.jobs_folder(node)),
        "NVML_LIBRARY": str(library_path()),
        "INTERVAL_SECONDS": "0.5",
        "CADENCE_SECONDS": str(CADENCE_SECONDS),
        "SPOOL_DIR": str(folder / "spool" / node),
        "SERVER_URL": server.url,
        "TOKEN_FILE": str(access.token_file(server.data, access.Role.AGENT)),
        "EXPORTER_LISTEN": "",
    }
    variables = {f"TRUELOAD_AGENT__{name}": value for name, value in settings.items()}
    with (folder / f"{node}.agent.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "trueload", "agent", "run"],
            cwd=REPOSITORY,
            env={**os.environ, **variables, STATE_VARIABLE: str(state)},
            stdout=log,
            stderr=log,
        )


def live_through(cluster: SlurmCluster, is_measured: Callable[[str], bool]) -> dict[str, str]:
    """Run jobs that end in every way; gives their ids by name. ``is_measured`` says whether a job has samples."""
    jobs = {
        "overtime": cluster.submit(
            "--job-name=overtime", "--gres=gpu:1", "--time=1", f"--nodelist={NODES[0]}", script="sleep 300"
        ),
        "done": cluster.submit("--job-name=done", "--gres=gpu:2", script="sleep 6"),
        "again": cluster.submit(
            "--job-name=again", "--gres=gpu:1", "--requeue", f"--nodelist={NODES[0]}", script="sleep 4"
        ),
        "stopped": cluster.submit("--job-name=stopped", "--gres=gpu:a100:1", script="sleep 300"),
        "failed": cluster.submit("--job-name=failed", "--gres=gpu:1", script="sleep 2; exit 3", user="news"),
        "wide": cluster.submit("--job-name=wide", "-N2", "--gpus-per-node=1", script="srun sleep 3", user="news"),
    }
    jobs["sweep"] = cluster.submit("--job-name=sweep", "--gres=gpu:1", "--array=1-3", script="sleep 2", user="news")
    jobs["no-gpu"] = cluster.submit("--job-name=no-gpu", script="sleep 1")
    jobs["never"] = cluster.submit("--job-name=never", "--gres=gpu:1", "--begin=now+1hour", script="sleep 1")
    running = ("overtime", "done", "again", "stopped")
    cluster.wait("jobs run", lambda: {cluster.states().get(jobs[name]) for name in running} == {"RUNNING"})
    cluster.wait("the first start is measured", lambda: is_measured(jobs["again"]))
    cluster.run("scontrol", "requeue", jobs["again"])
    cluster.run("scancel", jobs["stopped"], jobs["never"])
    cluster.wait("it waits again", lambda: cluster.states().get(jobs["again"]) == "PENDING")
    # By itself it would wait for two minutes, for so long a node takes no new credential of a job whose old one was
    # revoked; another node knows nothing of that.
    cluster.run("scontrol", "update", f"JobId={jobs['again']}", "StartTime=now", f"ReqNodeList={NODES[1]}")
    # Slurm looks for overtime twice a minute, and a limit is a minute at least.
    cluster.run("scontrol", "update", f"JobId={jobs['overtime']}", "EndTime=now+2")
    jobs["cut"] = cluster.submit(
        "--job-name=cut", "--gres=gpu:1", "--no-requeue", f"--nodelist={NODES[1]}", script="sleep 300"
    )
    waited_for = {jobs["overtime"], jobs["cut"]}

    def others_have_ended() -> bool:
        states = cluster.states()
        return states[jobs["cut"]] == "RUNNING" and all(
            state in SETTLED for job, state in states.items() if job not in waited_for
        )

    cluster.wait("all others have ended", others_have_ended)
    cluster.wait("the job that will be cut off is measured", lambda: is_measured(jobs["cut"]))
    cluster.run("scontrol", "update", f"NodeName={NODES[1]}", "State=DOWN", "Reason=tried")
    cluster.wait("everything has ended", lambda: set(cluster.states().values()) <= set(SETTLED), 90.0)
    cluster.wait("accounting knows", lambda: not accounts_of(cluster) & {"RUNNING", "PENDING"})
    return jobs


def accounts_of(cluster: SlurmCluster) -> set[str]:
    """Give the states that accounting knows of all starts."""
    return set(cluster.run("sacct", "-a", "-D", "-X", "-n", "-P", "--format=State", "-S", "now-1hour").splitlines())


def bring_in(cluster: SlurmCluster, server: ServerProcess) -> None:
    """Do as an operator does once."""
    options = [f"--server={server.url}", f"--token-file={access.token_file(server.data, access.Role.AGENT)}"]
    variables = {"TRUELOAD_JOBS__HISTORY_SECONDS": "3600", "TRUELOAD_AGENT__CLUSTER": cluster.name}
    done = subprocess.run(
        [sys.executable, "-m", "trueload", "jobs", "once", *options],
        cwd=REPOSITORY,
        env={**os.environ, **cluster.environment, **variables, "TZ": "America/New_York"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout


@pytest.mark.parametrize(
    ("name", "states", "words"),
    [
        ("done", ["completed"], ["COMPLETED"]),
        ("failed", ["failed"], ["FAILED"]),
        ("stopped", ["cancelled"], ["CANCELLED by 0"]),
        ("overtime", ["timeout"], ["TIMEOUT"]),
        ("again", ["requeued", "completed"], ["REQUEUED", "COMPLETED"]),
        ("cut", ["node_fail"], ["NODE_FAIL"]),
        ("wide", ["completed"], ["COMPLETED"]),
        ("sweep", ["completed"] * 3, ["COMPLETED"] * 3),
        ("no-gpu", ["completed"], ["COMPLETED"]),
        ("never", [], []),
    ],
)
def test_every_start_is_an_attempt_with_the_end_that_it_had(
    story: Story, name: str, states: list[str], words: list[str]
) -> None:
    found = story.attempts(name)
    assert [one["state"] for one in found] == states
    assert [one["raw_state"] for one in found] == words


def test_an_exit_code_is_told(story: Story) -> None:
    assert [one["exit_code"] for one in story.attempts("failed")] == [3]


def test_tasks_of_an_array_are_jobs_of_one_array_with_numbers_of_their_own(story: Story) -> None:
    found = story.attempts("sweep")
    assert {one["array_job_id"] for one in found} == {story.jobs["sweep"]}
    assert sorted(one["array_task_index"] for one in found) == [1, 2, 3]
    assert len({one["scheduler_job_id"] for one in found}) == 3
    assert story.jobs["sweep"] in {one["scheduler_job_id"] for one in found}  # the last task bears the array's number


def test_both_starts_of_a_requeued_job_belong_to_one_job(story: Story) -> None:
    first, second = story.attempts("again")
    assert first["job_key"] == second["job_key"] == f"testbed/{story.jobs['again']}#0"
    assert first["until"] <= second["since"]


def test_gpu_seconds_are_those_of_a_count_by_hand(story: Story) -> None:
    """Sacct's rows, each start's GPUs times its length, against what the server answers."""
    lines = story.cluster.run(
        *("sacct", "-a", "-D", "-X", "-n", "-P", "--format=JobIDRaw,Start,End,AllocTRES,NodeList"), "-S", "now-1hour"
    ).splitlines()
    by_job: dict[str, float] = {}
    for line in lines:
        raw, start, end, resources, _nodes = line.split("|")
        gpus = dict(one.split("=") for one in resources.split(",") if "=" in one).get("gres/gpu")
        if gpus is not None:
            seconds = (parse_utc(end) - parse_utc(start)) * int(gpus)
            by_job[raw] = by_job.get(raw, 0.0) + seconds
    told: Any = story.server.client().ask("waste", {"by": "job"})
    assert {row["key"]: row["gpu_seconds"]["allocated"] for row in told["rows"]} == {
        f"testbed/{raw}#0": pytest.approx(seconds, abs=1e-3) for raw, seconds in by_job.items()
    }
    assert told["gpu_seconds"]["allocated"] == pytest.approx(sum(by_job.values()), abs=1e-3)


def parse_utc(text: str) -> float:
    import calendar

    return float(calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%S")))


@pytest.mark.parametrize(
    ("name", "gpus"),
    [("done", 2), ("failed", 1), ("stopped", 1), ("overtime", 1), ("cut", 1), ("wide", 2), ("no-gpu", 0)],
)
def test_a_job_held_as_many_named_devices_as_slurm_gave_it_on_its_nodes(story: Story, name: str, gpus: int) -> None:
    (one,) = story.attempts(name)
    held = story.rows(
        "SELECT device_uuid, node, epoch(start_at) AS since, epoch(end_at) AS until FROM allocation "
        f"WHERE attempt_key = '{one['attempt_key']}' AND source = 'slurm_prolog'"
    )
    assert len({row["device_uuid"] for row in held}) == len(held) == gpus
    assert None not in {row["device_uuid"] for row in held}
    assert {row["node"] for row in held} <= nodes_of(str(one["node_list"]))
    assert {(row["since"], row["until"]) for row in held} <= {(one["since"], one["until"])}


def nodes_of(text: str) -> set[str]:
    return set(NODES) if text == "gpu[1-2]" else {text}


def test_no_device_was_held_by_two_at_once(story: Story) -> None:
    assert (
        story.rows(
            "SELECT one.allocation_key FROM allocation AS one JOIN allocation AS other ON one.device_uuid = "
            "other.device_uuid AND one.allocation_key < other.allocation_key AND one.start_at < other.end_at "
            "AND other.start_at < one.end_at"
        )
        == []
    )


def test_every_sample_of_a_running_job_has_its_owner_and_no_node_key_is_left(story: Story) -> None:
    owned = story.rows(
        "SELECT attempt_key, device_uuid, epoch(sampled_at) AS at FROM device_sample WHERE attempt_key IS NOT NULL"
    )
    attempts = {one["attempt_key"]: one for name in story.jobs for one in story.attempts(name)}
    assert {row["attempt_key"] for row in owned} <= set(attempts)
    for row in owned:
        one = attempts[row["attempt_key"]]
        # A row belongs to whom held its middle; the hook of the end runs a moment after accounting's end.
        assert one["since"] - CADENCE_SECONDS <= row["at"] <= one["until"] + 2 * CADENCE_SECONDS, (row, one)
    for name in ("done", "overtime", "cut"):
        (one,) = story.attempts(name)
        seen = [row for row in owned if row["attempt_key"] == one["attempt_key"]]
        seconds = sum(1.0 for _ in seen)
        gpus = len({row["device_uuid"] for row in seen})
        assert seconds >= gpus * (one["until"] - one["since"] - 3 * CADENCE_SECONDS), name


def test_both_starts_of_the_requeued_job_have_samples_of_their_own(story: Story) -> None:
    counts = {
        row["attempt_key"]: row["n"]
        for row in story.rows("SELECT attempt_key, count(*) AS n FROM device_sample GROUP BY attempt_key")
    }
    first, second = story.attempts("again")
    assert counts.get(first["attempt_key"], 0) >= 1
    assert counts.get(second["attempt_key"], 0) >= 2


def test_each_node_key_tells_how_sure_it_is_whose_it_is(story: Story) -> None:
    found = story.rows("SELECT node_key, certainty, source FROM attempt_alias")
    assert {(row["certainty"], row["source"]) for row in found} == {("exact", "sacct"), ("by_start", "sacct")}
    started_twice = {row["node_key"].split(":")[1] for row in found if row["certainty"] == "by_start"}
    assert started_twice == {story.jobs["again"]}


def test_people_see_their_own_jobs_alone(story: Story) -> None:
    made = story.server.client().manage_tokens("new", {"role": "user", "name": "news"})
    told: Any = HttpClient(story.server.url, str(made["token"])).ask("waste", {"by": "job"})
    own = {one["job_key"] for name in ("failed", "wide", "sweep") for one in story.attempts(name)}
    assert {row["key"] for row in told["rows"]} == own


def test_bringing_in_again_changes_nothing(story: Story) -> None:
    before = story.rows("SELECT * FROM attempt ORDER BY attempt_key")
    bring_in(story.cluster, story.server)
    assert story.rows("SELECT * FROM attempt ORDER BY attempt_key") == before


def test_accounting_that_is_down_is_waited_for_and_what_was_missed_comes_in(story: Story) -> None:
    cluster, server = story.cluster, story.server
    cluster.stop_one("slurmdbd")
    job = cluster.submit("--job-name=meanwhile", "--gres=gpu:1", script="sleep 1")
    options = [f"--server={server.url}", f"--token-file={access.token_file(server.data, access.Role.AGENT)}"]
    variables = {"TRUELOAD_JOBS__INTERVAL_SECONDS": "1", "TRUELOAD_AGENT__CLUSTER": cluster.name}
    with (cluster.folder / "log" / "jobs.log").open("wb") as log:
        collector = subprocess.Popen(
            [sys.executable, "-m", "trueload", "jobs", "run", *options],
            cwd=REPOSITORY,
            env={**os.environ, **cluster.environment, **variables},
            stderr=log,
        )
    try:
        said = cluster.folder / "log" / "jobs.log"
        cluster.wait("the collector says so", lambda: "Connection refused" in said.read_text())
        cluster.wait("the job has ended", lambda: cluster.states().get(job) == "COMPLETED")
        cluster.start_slurmdbd()
        cluster.wait("the job is told", lambda: [one["state"] for one in story.attempts("meanwhile")] == ["completed"])
    finally:
        collector.terminate()
        assert collector.wait(30) == 0
