from __future__ import annotations

import pytest

from collector.cgroups import Place, place_of

POD = "2b801b7a-5266-4386-864e-45ed71136371"
POD_SLICE = "pod" + POD.replace("-", "_") + ".slice"
BOX = "20e061fc708d3b66dfe257b19552b34a1307a7347ed6b5bd0d8c5e76afb1a870"
OUTER = "f" * 64
SLURM_V1 = "9:memory:/slurm/uid_1000/job_1234567/step_0/task_3"
PODS = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-{POD_SLICE}"


@pytest.mark.parametrize(
    ("line", "place"),
    [
        (f"1:name=systemd:/kubepods/besteffort/pod{POD}/{BOX}", Place(POD, BOX)),
        (f"0::{PODS}/cri-containerd-{BOX}.scope", Place(POD, BOX)),
        (f"0::{PODS}/crio-{BOX}.scope", Place(POD, BOX)),
        (f"0::{PODS}/crio-{BOX}.scope/container", Place(POD, BOX)),
        (f"0::{PODS}/crio-conmon-{BOX}.scope", Place(POD)),
        (f"0::{PODS}/docker-{BOX}.scope", Place(POD, BOX)),
        (f"10:cpuset:{PODS.removeprefix('/')}:cri-containerd:{BOX}", Place(POD, BOX)),
        (f"0::/docker/{OUTER}/kubelet/kubepods/pod{POD}/{BOX}", Place(POD, BOX)),
        ("0::/kubepods/pod0123456789abcdef0123456789abcdef", Place("0123456789abcdef0123456789abcdef")),
        (f"0::/../../{POD_SLICE}/cri-containerd-{BOX}.scope", Place(POD, BOX)),
        (f"0::/system.slice/docker-{BOX}.scope", Place(None, BOX)),
        (f"12:pids:/docker/{BOX}", Place(None, BOX)),
        (f"0::/machine.slice/libpod-{BOX}.scope", Place(None, BOX)),
        (f"0::/machine.slice/libpod-conmon-{BOX}.scope", Place()),
        (f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{BOX}.scope/container", Place(None, BOX)),
        (SLURM_V1, Place(slurm_job_id="1234567", slurm_step="0")),
        (
            "4:devices:/slurm_gpu7/uid_5/job_77/step_batch",
            Place(slurm_job_id="77", slurm_step="batch", slurm_node="gpu7"),
        ),
        (
            "0::/system.slice/slurmstepd.scope/job_77/step_0/user/task_0",
            Place(slurm_job_id="77", slurm_step="0"),
        ),
        (
            "0::/system.slice/gpu1_slurmstepd.scope/job_78/step_extern/user/task_special",
            Place(slurm_job_id="78", slurm_step="extern", slurm_node="gpu1"),
        ),
        ("0::/system.slice/slurmstepd.scope/system", Place()),
        ("0::/user.slice/user-1000.slice/session-3.scope", Place()),
        ("0::/", Place()),
        ("nonsense", Place()),
        ("", Place()),
    ],
)
def test_a_line_of_a_control_group_tells_where_a_process_is(line: str, place: Place) -> None:
    assert place_of([line]) == place


def test_u17_a_group_named_by_sluid_is_a_job() -> None:
    place = place_of(["0::/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0/user/task_0"])
    assert place == Place(slurm_sluid="s5K1KKYAYG5D00", slurm_step="0")


def test_of_many_lines_the_first_that_names_a_job_speaks() -> None:
    assert place_of(["11:cpuset:/", f"10:pids:/docker/{BOX}", SLURM_V1]).slurm_job_id == "1234567"
    assert place_of(["11:cpuset:/", "0::/init.scope"]) == Place()
