"""What each check says of odd and hostile nodes."""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from collector.doctor.check import Check, Finding, Stage
from collector.doctor.examine import Answer, Line, checks, examine
from collector.doctor.text import render
from collector.tracer.library import library_path
from tests.collector.doctor.conftest import Node, Server
from tests.collector.jobs.kubelet import Kubelet, pod

HERE = "0::/init.scope\n"


# ------------------------------------------------------------------------------------------------- the framework


def check(run: object, name: str = "odd") -> Check:
    return Check(name, "whether it is odd", Stage.NODE, run)  # type: ignore[arg-type]


def test_a_check_that_never_returns_is_left_and_what_it_found_is_kept(node: Node) -> None:
    over = threading.Event()

    def hangs(_site: object) -> Iterator[Finding]:
        yield Finding("first", needed=True)
        over.wait(30)
        yield Finding("never seen")

    node.values["doctor.limit_seconds"] = 0.2
    begin = time.monotonic()
    answer = examine(node.site(), [check(hangs), check(lambda _site: [Finding("next")], "next")])
    took = time.monotonic() - begin
    over.set()
    assert took < 5
    assert [line.finding.found for line in answer.lines] == ["first", "no answer", "next"]
    assert answer.lines[1].finding.reason == "it did not return within 0.2 s (whether it is odd)"
    assert not answer.ok  # what hangs is needed


def test_a_check_that_fails_costs_itself_alone(node: Node) -> None:
    def fails(_site: object) -> Iterator[Finding]:
        yield Finding("first")
        raise ZeroDivisionError("by zero")

    answer = examine(node.site(), [check(fails), check(lambda _site: [Finding("next")], "next")])
    assert [line.finding.found for line in answer.lines] == ["first", "could not be looked at", "next"]
    assert answer.lines[1].finding.reason == "ZeroDivisionError('by zero')"


def test_only_what_is_needed_decides_and_what_cannot_be_told_does_not_count_as_missing() -> None:
    lines = [Line("a", Finding("x", ok=False)), Line("b", Finding("y", ok=None)), Line("c", Finding("z", needed=True))]
    answer = Answer("node-1", "1.0", lines)
    assert (answer.ok, answer.missing) == (True, 1)
    answer.lines.append(Line("d", Finding("w", ok=False, needed=True)))
    assert (answer.ok, answer.missing) == (False, 2)


def test_every_check_says_what_it_looks_at_and_runs_after_what_it_uses() -> None:
    names = [check.name for check in checks()]
    assert names.index("driver") < names.index("devices") < names.index("tracing")
    assert names.index("server") < names.index("clock")
    assert all(check.description.startswith(("whether", "which", "what", "who", "how")) for check in checks())


def test_hostile_names_are_text_and_steer_nothing() -> None:
    from rich.console import Console

    evil = "\x1b]0;owned\x07[bold]x[/bold]\r\n\u202e"
    answer = Answer(evil, "1", [Line("devices", Finding(evil, evil, ok=False, reason=evil, fix=evil))])
    console = Console(width=200, no_color=True, highlight=False)
    with console.capture() as captured:
        console.print(render(answer))
    shown = captured.get()
    assert not {"\x1b", "\x07", "\r", "\u202e"} & set(shown)
    assert shown.count("[bold]x[/bold]") == 5


# ------------------------------------------------------------------------------------------------------ the node


def test_nothing_is_wrong_with_a_node_that_is_as_it_should_be(node: Node) -> None:
    found = node.look("privilege", "pid_namespace", "cgroups", "profiling", "kubernetes", "slurm", "spool", "settings")
    assert [finding for finding in found if not finding.ok] == []


def test_a_driver_of_counters_for_root_alone_is_told_with_its_option(node: Node) -> None:
    (node.proc.root / "driver/nvidia/params").write_text("RmProfilingAdminOnly: 1\n")
    found = node.only("profiling")
    assert (found.ok, found.needed) == (False, False)
    assert "NVreg_RestrictProfilingToAdminUsers=0" in found.fix
    (node.proc.root / "driver/nvidia/params").unlink()
    assert node.only("profiling").ok is None


def test_a_lack_of_capabilities_names_them(node: Node) -> None:
    node.status("00000000a80425fb")  # what a container has by default: neither of the two
    found = node.look("privilege")[0]
    assert found.ok is False
    assert found.reason.startswith("without SYS_PTRACE and DAC_READ_SEARCH")
    node.status(f"{1 << 2:016x}")
    assert node.look("privilege")[0].reason.startswith("without SYS_PTRACE processes")
    (node.proc.root / "self/status").unlink()
    assert node.look("privilege")[0].ok is None


def test_another_pid_namespace_asks_for_the_hosts(node: Node) -> None:
    (node.proc.root / "1/ns/pid").unlink()
    (node.proc.root / "1/ns/pid").symlink_to("pid:[4026532841]")
    found = node.only("pid_namespace")
    assert found.ok is False
    assert "hostPID: true" in found.fix


@pytest.mark.parametrize(
    ("makes", "said"),
    [
        (["memory"], "version 1 at"),
        (["unified/cgroup.controllers", "memory"], "versions 1 and 2 side by side"),
        (["cgroup.controllers"], "version 2 at"),
        ([], "none at"),
    ],
)
def test_versions_of_control_groups(node: Node, tmp_path: Path, makes: list[str], said: str) -> None:
    root = tmp_path / "groups"
    root.mkdir()
    for name in makes:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("") if "." in name else (root / name).mkdir()
    node.set(cgroup_root=str(root))
    found = node.only("cgroups")
    assert found.found.startswith(said)
    assert found.ok is bool(makes)


def test_a_private_cgroup_namespace_and_a_containers_own_are_told_apart(node: Node) -> None:
    (node.proc.root / "1/cgroup").write_text("0::/../../init.scope\n")
    assert node.look("cgroups")[1].found == "paths are those of a private namespace"
    (node.proc.root / "1/cgroup").write_text(f"0::/docker/{'a' * 64}\n")
    assert node.look("cgroups")[1].found == "process 1 is a container's"


# -------------------------------------------------------------------------------------------------------- owners


@pytest.fixture
def kubelet(tmp_path: Path, node: Node) -> Iterator[Kubelet]:
    node.set(job_source="kubernetes")
    served = Kubelet(tmp_path / "kubelet.sock", [pod("train-0", ["GPU-a", "GPU-b"]), pod("web", [])])
    served.start()
    yield served
    served.stop()


def test_a_kubelet_that_answers_says_how_much_is_held(node: Node, kubelet: Kubelet, tmp_path: Path) -> None:
    (tmp_path / "pods/team_train-0_2b801b7a-5266-4386-864e-45ed71136371").mkdir(parents=True)
    found = node.only("kubernetes")
    assert (found.found, found.ok, found.needed) == ("the kubelet answers: 1 pods hold 2 GPUs", True, True)


def test_pods_without_uid_ask_for_the_folder_of_logs(node: Node, kubelet: Kubelet) -> None:
    found = node.look("kubernetes")[1]
    assert found.ok is False
    assert "/var/log/pods" in found.fix


def test_a_kubelet_that_never_answers_does_not_hang_the_doctor(node: Node, kubelet: Kubelet) -> None:
    kubelet.silent.set()
    node.set(kubelet_timeout_seconds=0.3)
    begin = time.monotonic()
    found = node.only("kubernetes")
    assert time.monotonic() - begin < 8
    assert (found.found, found.ok, found.needed) == ("the kubelet does not answer", False, True)
    assert "DEADLINE_EXCEEDED" in found.reason


def test_a_socket_on_which_nobody_speaks_grpc_does_not_hang_either(node: Node, tmp_path: Path) -> None:
    node.set(job_source="kubernetes", kubelet_timeout_seconds=0.3)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "kubelet.sock"))
        silent.listen()
        assert node.only("kubernetes").found == "the kubelet does not answer"


def test_a_missing_or_wrong_socket_asks_for_the_mount(node: Node, tmp_path: Path) -> None:
    node.set(job_source="kubernetes")
    assert "mount" in node.only("kubernetes").fix
    (tmp_path / "kubelet.sock").write_text("")
    assert node.only("kubernetes").reason.endswith("is something else")


def test_a_scheduler_that_is_there_and_not_asked_is_told(node: Node, tmp_path: Path) -> None:
    (tmp_path / "kubelet.sock").write_text("")
    node.proc.add(900, name="slurmd")
    kubernetes, slurm = node.look("kubernetes", "slurm")
    assert kubernetes.fix == 'agent.job_source = "kubernetes"'
    assert slurm.fix == 'agent.job_source = "slurm"'


def test_a_slurm_hook_that_is_missing_and_a_file_that_others_could_write(node: Node, tmp_path: Path) -> None:
    node.set(job_source="slurm")
    missing = node.only("slurm")
    assert (missing.ok, missing.needed) == (False, True)
    assert "prolog" in missing.fix
    (tmp_path / "jobs").mkdir(mode=0o755)
    if os.geteuid() != 0:
        pytest.skip("files of Slurm's hooks belong to root")
    (tmp_path / "jobs/77").write_text("job_id=77\nstart_at=1\ngpus=0,1\n")
    (tmp_path / "jobs/evil\x1b[2J").write_text("job_id=78\nstart_at=1\ngpus=0\n")
    (tmp_path / "jobs/77").chmod(0o644)
    (tmp_path / "jobs/evil\x1b[2J").chmod(0o666)
    good, bad = node.look("slurm")
    assert good.found.endswith("1 jobs hold 2 GPUs")
    assert bad.ok is False
    assert "can be written by others" in bad.reason


# -------------------------------------------------------------------------------------------------------- tracer


def test_a_variable_that_another_tool_has_is_told(node: Node) -> None:
    node.environ["CUDA_INJECTION64_PATH"] = "/opt/other/libother.so"
    found = node.look("tracer_library")[-1]
    assert (found.found, found.ok) == ("CUDA_INJECTION64_PATH is taken", False)
    node.environ["CUDA_INJECTION64_PATH"] = str(library_path())
    assert "CUDA_INJECTION64_PATH" not in node.look("tracer_library")[-1].found


def test_a_cupti_that_is_named_and_not_there_is_told(node: Node, tmp_path: Path) -> None:
    node.environ["TRUELOAD_CUPTI_PATH"] = str(tmp_path / "libcupti.so.13")
    found = next(finding for finding in node.look("tracer_library") if finding.found.startswith("CUPTI"))
    assert (found.ok, found.reason) == (False, "not there")


# --------------------------------------------------------------------------------------------------------- spool


def test_a_spool_that_is_no_folder_is_needed_and_told(node: Node, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    node.set(spool_dir=str(tmp_path / "file/spool"))
    found = node.look("spool")[0]
    assert (found.ok, found.needed) == (False, True)
    assert found.reason.endswith("file: is no folder")


def test_looking_at_a_spool_leaves_nothing_behind(node: Node, tmp_path: Path) -> None:
    node.look("spool")
    assert list((tmp_path / "spool").iterdir()) == []
    node.set(spool_dir=str(tmp_path / "new/spool"))
    assert node.look("spool")[0].ok
    assert not (tmp_path / "new").exists()


def test_a_spool_in_memory_or_in_a_container_does_not_outlive_a_restart(node: Node) -> None:
    for kind in ("tmpfs", "overlay"):
        node.mounts(kind)
        found = next(finding for finding in node.look("spool") if finding.found == f"it lies on {kind}")
        assert found.ok is False


def test_little_room_what_waits_and_a_damaged_state_are_told(node: Node, tmp_path: Path) -> None:
    node.set(spool_max_bytes=10**18)
    assert next(finding for finding in node.look("spool") if finding.found == "little room").ok is False
    waits = tmp_path / "spool/000001-000000000001.batch"
    waits.write_bytes(b"x")
    os.utime(waits, (time.time() - 3600, time.time() - 3600))
    (tmp_path / "spool/state.json").write_text("{")
    damaged, waiting = node.look("spool")[-2:]
    assert (damaged.ok, damaged.needed) == (False, True)
    assert waiting.found == "1 batches wait, the oldest for 60 min"


def test_an_address_that_is_taken_is_told_unless_an_agent_has_it(node: Node) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        node.set(exporter_listen=f"127.0.0.1:{taken.getsockname()[1]}")
        taken.listen(0)
        found = node.only("exporter")
    assert found.ok is False
    assert "free address" in found.fix
    node.set(exporter_listen="nowhere")
    assert node.only("exporter").ok is False


# -------------------------------------------------------------------------------------------------------- server


def test_rights_of_the_token(node: Node) -> None:
    assert node.only("token").found == "none"
    path = node.token(mode=0o644)
    found = node.only("token")
    assert (found.ok, found.needed, found.fix) == (False, False, f"chmod 600 {path}")
    path.chmod(0o600)
    assert node.only("token").ok
    node.token("  \n")
    assert (node.only("token").found, node.only("token").needed) == ("token is empty", True)
    path.unlink()
    assert (node.only("token").ok, node.only("token").needed) == (False, True)


def test_a_server_that_knows_the_token(node: Node, server: Server) -> None:
    node.token()
    node.set(server_url=server.url)
    found = node.look("server", "clock", "certificate")
    assert [finding.ok for finding in found] == [True] * 4
    assert found[1].found == "it knows the token"


@pytest.mark.parametrize(
    ("me", "said"),
    [
        ((401, {"error": "x"}), "it does not know the token"),
        ((200, {"role": "user"}), "the token is of the role user"),
        ((200, {"role": "agent", "node": "other"}), "another node's token"),
    ],
)
def test_a_token_that_will_not_do(node: Node, server: Server, me: tuple[int, object], said: str) -> None:
    server.me = me
    node.token()
    node.set(server_url=server.url)
    found = node.look("server")[1]
    assert (found.found, found.ok, found.needed) == (said, False, True)


def test_an_answer_that_is_no_document_tells_nothing(node: Node, server: Server) -> None:
    server.me = (200, b"<html>")
    node.token()
    node.set(server_url=server.url)
    assert node.look("server")[1].ok is None


def test_a_server_that_is_not_there_is_needed_only_where_something_is_sent(node: Node, free_port: int) -> None:
    node.set(server_url=f"http://127.0.0.1:{free_port}")
    found = node.look("server", "clock")
    assert (found[0].ok, found[0].needed) == (False, False)
    assert "refused" in found[0].reason
    assert found[1].ok is None
    node.token()
    assert node.look("server")[0].needed


def test_a_server_that_takes_the_call_and_says_nothing_does_not_hang(node: Node) -> None:
    node.token()
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        node.set(server_url=f"http://127.0.0.1:{silent.getsockname()[1]}", post_timeout_seconds=0.3)
        begin = time.monotonic()
        assert node.look("server")[0].ok is False
        assert time.monotonic() - begin < 5


def test_something_else_at_the_address_is_told(node: Node, server: Server) -> None:
    server.health = (404, {})
    node.set(server_url=server.url)
    assert node.look("server")[0].found == "something else answers"


@pytest.mark.parametrize(("ahead_seconds", "way"), [(30.0, "30.0 s behind"), (-30.0, "30.0 s ahead")])
def test_a_clock_that_is_off_is_told_with_its_direction(
    node: Node, server: Server, ahead_seconds: float, way: str
) -> None:
    server.ahead_seconds = ahead_seconds
    node.set(server_url=server.url)
    found = node.look("server", "clock")[-1]
    assert found.ok is False
    assert way in found.reason


def test_an_older_server_tells_its_time_by_the_date_of_its_answer(node: Node, server: Server) -> None:
    server.ahead_seconds = None
    node.set(server_url=server.url)
    assert node.look("server", "clock")[-1].ok is True


def test_a_certificate_nobody_trusts_and_one_that_ends_soon(node: Node, tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)

        def serve() -> None:
            while not over.is_set():
                try:
                    with (
                        listener.accept()[0] as connection,
                        context.wrap_socket(connection, server_side=True) as secured,
                    ):
                        secured.recv(4096)
                        secured.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
                except OSError:
                    continue

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            node.set(server_url=f"https://127.0.0.1:{listener.getsockname()[1]}")
            untrusted = node.look("server")[0]
            node.set(tls_ca_file=str(tmp_path / "ca.pem"))
            trusted = node.look("server", "certificate")
            node.values["doctor.certificate_days"] = 1e6
            soon = node.only("certificate")
        finally:
            over.set()
            thread.join()
    assert untrusted.ok is False
    assert "agent.tls_ca_file" in untrusted.fix
    assert [finding.ok for finding in trusted] == [True, True]
    assert trusted[1].found.startswith("good for")
    assert (soon.found, soon.ok) == ("ends soon", False)
