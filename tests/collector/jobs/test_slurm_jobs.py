from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from collector.cgroups import Place, place_of
from collector.job_source import Claim, TooMuchError, Witness
from collector.jobs._sacct import Sacct
from collector.jobs.slurm import JOB_SOURCE, JOBS_DIR, KEPT_SECONDS, SlurmJobs
from warehouse.contract.errors import BadInputError
from warehouse.contract.settings import Settings

NOW = 1_700_010_000.0
JOB = "job_id=77\nstart_at=1700000000\nuser_id=1000\nsluid=\ngpus=0,GPU-b\nshared=0\n"
KEY = "c/@slurm:77:1700000000"


def reader(folder: Path) -> SlurmJobs:
    return SlurmJobs(folder, "c", owner_id=os.geteuid(), clock=lambda: NOW)


def witness(place: Place | None = None, environ: dict[str, str] | None = None, user_id: int | None = 1000) -> Witness:
    return Witness(1, place or Place(), environ or {}, user_id)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "jobs"
    folder.mkdir(mode=0o755)
    return folder


def put(folder: Path, name: str, text: str, mode: int = 0o644) -> Path:
    path = folder / name
    path.write_text(text)
    path.chmod(mode)
    return path


def test_u18_a_job_holds_its_gpus_without_any_process(folder: Path) -> None:
    put(folder, "77.1.job", JOB)
    held = reader(folder).holdings()
    assert [(one.attempt_key, one.device_uuid, one.start_at, one.end_at) for one in held] == [
        (KEY, "0", 1_700_000_000.0, None),
        (KEY, "GPU-b", 1_700_000_000.0, None),
    ]
    assert {one.source for one in held} == {"slurm_prolog"}


def test_an_ended_job_is_told_for_a_while_and_then_forgotten(folder: Path) -> None:
    put(folder, "77.1.job", f"{JOB}end_at={NOW - 60}\n")
    put(folder, "76.1.job", f"{JOB}end_at={NOW - KEPT_SECONDS - 1}\n")
    assert [one.end_at for one in reader(folder).holdings()] == [NOW - 60] * 2


def test_a_file_that_others_can_write_is_refused_and_costs_only_itself(folder: Path) -> None:
    put(folder, "77.1.job", JOB)
    put(folder, "78.1.job", JOB, mode=0o666)
    (folder / "79.1.job").symlink_to(folder / "77.1.job")
    put(folder, "80.1.job", "job_id=many\nstart_at=x\n")
    put(folder, "81.1.job", "")
    jobs = reader(folder)
    assert len(jobs.holdings()) == 2
    assert sorted(jobs.refused) == ["78.1.job", "79.1.job", "80.1.job", "81.1.job"]


def test_a_file_of_another_user_is_refused(folder: Path) -> None:
    put(folder, "77.1.job", JOB)
    jobs = SlurmJobs(folder, "c", owner_id=os.geteuid() + 1, clock=lambda: NOW)
    with pytest.raises(BadInputError, match="can be written by others"):
        jobs.holdings()


def test_a_folder_that_is_missing_or_open_to_all_is_an_error_that_says_what_to_do(folder: Path) -> None:
    with pytest.raises(BadInputError, match="prolog"):
        JOB_SOURCE.open(Settings({JOBS_DIR.name: str(folder / "missing")})).holdings()
    folder.chmod(0o777)
    with pytest.raises(BadInputError, match="written by others"):
        reader(folder).holdings()


def test_the_control_group_wins_over_a_forged_environment(folder: Path) -> None:
    put(folder, "77.1.job", JOB)
    jobs = reader(folder)
    jobs.holdings()
    inside = Place(slurm_job_id="77")
    assert jobs.claim(witness(inside, {"SLURM_JOB_ID": "78"})) == Claim(KEY, "cgroup")


def test_an_environment_is_believed_only_about_jobs_of_the_same_user(folder: Path) -> None:
    put(folder, "77.1.job", JOB)
    jobs = reader(folder)
    jobs.holdings()
    assert jobs.claim(witness(None, {"SLURM_JOB_ID": "77"})) == Claim(KEY, "environ")
    assert jobs.claim(witness(None, {"SLURM_JOB_ID": "77"}, user_id=1001)) is None
    assert jobs.claim(witness(None, {"SLURM_JOB_ID": "77"}, user_id=None)) is None
    assert jobs.claim(witness(None, {"SLURM_JOB_ID": "99"})) is None
    assert jobs.claim(witness()) is None


def test_u17_a_job_named_by_its_sluid_is_found_through_the_file_or_the_environment(folder: Path) -> None:
    place = place_of(["0::/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0/user/task_0"])
    path = put(folder, "77.1.job", JOB)
    jobs = reader(folder)
    jobs.holdings()
    assert jobs.claim(witness(place, {"SLURM_JOB_ID": "77"})) == Claim(KEY, "cgroup")
    assert jobs.claim(witness(place)) == Claim("c/@sluid:s5K1KKYAYG5D00:", "cgroup")
    path.write_text(JOB.replace("sluid=", "sluid=s5K1KKYAYG5D00"))
    jobs.holdings()
    assert jobs.claim(witness(place)) == Claim(KEY, "cgroup")


def test_u16_tasks_of_an_array_are_jobs_by_their_raw_number_and_steps_are_their_jobs(folder: Path) -> None:
    jobs = reader(folder)

    def owner(raw: str, task: str, step: str) -> Claim | None:
        line = f"0::/system.slice/slurmstepd.scope/job_{raw}/step_{step}/user/task_0"
        place = place_of([line])
        return jobs.claim(Witness(7, place, {"SLURM_ARRAY_JOB_ID": "2145", "SLURM_ARRAY_TASK_ID": task}, 1000))

    first = {owner("2146", "1", step) for step in ("batch", "extern", "0", "3")}
    assert first == {Claim("c/@slurm:2146:", "cgroup")}
    assert owner("2147", "2", "batch") == Claim("c/@slurm:2147:", "cgroup")


def test_a_job_of_a_control_group_without_a_file_keeps_its_number(folder: Path) -> None:
    jobs = reader(folder)
    assert jobs.claim(witness(Place(slurm_job_id="5"))) == Claim("c/@slurm:5:", "cgroup")


def run_hook(repository: Path, name: str, folder: Path, **environment: str) -> None:
    subprocess.run(
        ["sh", str(repository / f"deploy/slurm/trueload-{name}.sh")],
        env={"PATH": os.environ["PATH"], "TRUELOAD_SLURM_JOBS_DIR": str(folder), **environment},
        check=True,
    )


def test_prolog_and_epilog_write_what_the_agent_reads(repository: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run/jobs"
    given = {
        "SLURM_JOB_ID": "77",
        "SLURM_JOB_UID": "1000",
        "SLURM_JOB_GPUS": "0,2",
        "SLURM_JOB_START_TIME": "1700000000",
    }
    run_hook(repository, "prolog", folder, **given)
    jobs = SlurmJobs(folder, "c", owner_id=os.geteuid())
    assert [(one.attempt_key, one.device_uuid, one.end_at) for one in jobs.holdings()] == [
        (KEY, "0", None),
        (KEY, "2", None),
    ]
    run_hook(repository, "epilog", folder, SLURM_JOB_ID="77")
    ends = [one.end_at for one in jobs.holdings()]
    assert len(ends) == 2
    assert all(end is not None and end > 1_700_000_000 for end in ends)
    run_hook(repository, "epilog", folder, SLURM_JOB_ID="77")
    assert [one.end_at for one in jobs.holdings()] == ends
    assert [path.name for path in folder.iterdir()] == ["77.1700000000.job"]


def test_a_job_bears_the_name_that_slurm_gives_its_cluster(repository: Path, folder: Path) -> None:
    run_hook(
        repository,
        "prolog",
        folder,
        SLURM_JOB_ID="77",
        SLURM_JOB_START_TIME="1700000000",
        SLURM_JOB_GPUS="0",
        SLURM_CLUSTER_NAME="alex",
    )
    (held,) = SlurmJobs(folder, "c", owner_id=os.geteuid()).holdings()
    assert held.attempt_key == "alex/@slurm:77:1700000000"


def test_a_prolog_prefers_uuids_and_never_lets_a_line_be_forged(repository: Path, tmp_path: Path) -> None:
    run_hook(
        repository,
        "prolog",
        tmp_path,
        SLURM_JOB_ID="7",
        SLURM_JOB_START_TIME="5\nend_at=6",
        CUDA_VISIBLE_DEVICES="MIG-1,GPU-2\nuser_id=0",
        SLURM_JOB_GPUS="0",
    )
    (job,) = (dict(line.split("=") for line in path.read_text().splitlines()) for path in tmp_path.iterdir())
    assert job["gpus"] == "MIG-1,GPU-2user_id0"
    assert job["user_id"] == ""
    assert "end_at" not in job


@pytest.mark.parametrize("job_id", ["", "../etc", "7;x"])
def test_a_hook_without_a_job_number_writes_nothing(repository: Path, tmp_path: Path, job_id: str) -> None:
    run_hook(repository, "prolog", tmp_path, SLURM_JOB_ID=job_id)
    run_hook(repository, "epilog", tmp_path, SLURM_JOB_ID=job_id)
    assert list(tmp_path.iterdir()) == []


def test_a_sacct_that_has_said_all_and_does_not_end_is_ended(tmp_path: Path) -> None:
    command = tmp_path / "sacct"
    command.write_text("#!/bin/sh\necho JobID\necho 7\nexec sleep 300 >&-\n")
    command.chmod(0o755)
    begin = time.monotonic()
    with pytest.raises(TooMuchError, match="does not end"):
        list(Sacct(str(command), "", 0.5).pieces(("JobID",), 0.0, 1.0))
    assert time.monotonic() - begin < 60.0
