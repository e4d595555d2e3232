"""What the chart starts is started here: the same arguments, variables and files as rendered, on the loopback address.

Of a container only the root is missing: each folder that it mounts is a folder of the test, and where an argument, a
variable or a script names the mount, it names that folder. The Service's name and port become 127.0.0.1 and a free
port, which the certificate that Helm made is for, too.
"""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import Envelope

from collector.simulate.standin import STATE_VARIABLE, library_path
from tests.collector.conftest import Bench
from tests.collector.jobs import kubelet
from tests.collector.jobs.kube_server import KubeServer
from tests.deploy import chart
from tests.deploy.chart import Object, Rendered

READY_SECONDS = 60.0
ANYWHERE = "0.0.0.0"  # noqa: S104 - what a pod listens on, and the test does not
HOST = "tl-trueload-server.gpu.svc"
PORTS = (8411, 8501, 9412)
CARD = "GPU-00000000-0000-0000-0000-00000000000a"
PROGRAMS = {"trueload": (sys.executable, "-m", "trueload"), "python": (sys.executable,), "sh": ("sh",)}
SYSTEM_AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(what: str, is_so: Callable[[], object], logs: Callable[[], str]) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        try:
            if is_so():
                return
        except (OSError, ValueError):
            pass
        time.sleep(0.2)
    pytest.fail(f"{what} did not come about\n{logs()}")


class Machine:
    """One node for all of it: folders for volumes, ports for ports, and what was started."""

    def __init__(self, folder: Path, made: Rendered, paths: Mapping[str, Path]) -> None:
        self.folder, self.made = folder, made
        self.host_paths = dict(paths)
        self.ports = {port: free_port() for port in PORTS}
        self.running: list[tuple[str, subprocess.Popen[bytes]]] = []
        self._lay_down()

    def _lay_down(self) -> None:
        """Write what ConfigMaps and Secrets hold, as a kubelet would."""
        for one in self.made.objects:
            if one["kind"] not in {"ConfigMap", "Secret"}:
                continue
            folder = self.folder / one["kind"] / one["metadata"]["name"]
            folder.mkdir(parents=True)
            for name, text in one["data"].items():
                content = base64.b64decode(text) if one["kind"] == "Secret" else text.encode()
                (folder / name).write_bytes(content)

    def source(self, pod: str, volume: Object) -> Path:
        """Give the folder that stands for a volume."""
        if "secret" in volume:
            return self.folder / "Secret" / str(volume["secret"]["secretName"])
        if "configMap" in volume:
            return self.folder / "ConfigMap" / str(volume["configMap"]["name"])
        if "hostPath" in volume:
            return self.host_paths[volume["hostPath"]["path"]]
        found = self.folder / pod / str(volume["name"])
        found.mkdir(parents=True, exist_ok=True)
        return found

    def mounts(self, pod: str, spec: Object, container: Object) -> dict[str, Path]:
        """Give the folder for each path that a container mounts."""
        volumes = {one["name"]: one for one in spec["volumes"]}
        return {
            one["mountPath"]: self.source(pod, volumes.get(one["name"], {"name": one["name"]}))
            for one in container["volumeMounts"]
        }

    def translated(self, text: str, mounts: Mapping[str, Path]) -> str:
        """Say the same of this machine."""
        text = text.replace(f"{HOST}:8411", f"127.0.0.1:{self.ports[8411]}").replace(ANYWHERE, "127.0.0.1")
        named = {inside: str(outside) for inside, outside in mounts.items() if inside != "/tmp"}  # noqa: S108 - its own
        if named:
            places = "|".join(re.escape(one) for one in sorted(named, key=len, reverse=True))
            text = re.sub(rf'(?<![\w/.-])({places})(?=[/"\s]|$)', lambda found: named[found[1]], text)
        return re.sub(r"\b(8411|8501|9412)\b", lambda found: str(self.ports[int(found[1])]), text)

    def start(self, pod: str, spec: Object) -> subprocess.Popen[bytes]:
        """Run what begins first, then start the container."""
        for container in spec.get("initContainers") or ():
            child = self._start(pod, spec, container)
            assert child.wait(60) == 0, self.log(pod)
        return self._start(pod, spec, spec["containers"][0])

    def _start(self, pod: str, spec: Object, container: Object) -> subprocess.Popen[bytes]:
        mounts = self.mounts(pod, spec, container)
        command: list[str] = [*container["command"], *(container.get("args") or [])]
        program, words = command[0], command[1:]
        # Of this process's environment a container sees nothing.
        variables = {"PATH": os.environ["PATH"], "PYTHONPATH": str(chart.REPOSITORY)}
        for one in container.get("env") or ():
            value = (
                one["value"] if "value" in one else {"spec.nodeName": "n1"}[one["valueFrom"]["fieldRef"]["fieldPath"]]
            )
            variables[one["name"]] = self.translated(value, mounts)
        with (self.folder / f"{pod}.log").open("ab") as log:
            child = subprocess.Popen(
                [*PROGRAMS[program], *(self.translated(word, mounts) for word in words)],
                cwd=self.folder,
                env=variables,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.running.append((pod, child))
        return child

    def log(self, pod: str) -> str:
        return (self.folder / f"{pod}.log").read_text(errors="replace")[-4000:]

    def stop(self) -> None:
        for _, child in reversed(self.running):
            if child.poll() is None:
                child.terminate()
        for _, child in reversed(self.running):
            try:
                child.wait(30)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def probe(self, container: Object) -> None:
        """Do what the kubelet does to see whether a container is ready."""
        asked = container["readinessProbe"]
        if "exec" in asked:
            command: list[str] = asked["exec"]["command"]
            program, words = command[0], command[1:]
            subprocess.run(
                [*PROGRAMS[program], *(self.translated(word, {}) for word in words)], check=True, capture_output=True
            )
            return
        port = next(one["containerPort"] for one in container["ports"] if one["name"] == asked["httpGet"]["port"])
        scheme = asked["httpGet"].get("scheme", "HTTP").lower()
        context = None
        if scheme == "https":
            import ssl

            context = ssl._create_unverified_context()  # noqa: S323 - as a kubelet does
        url = f"{scheme}://127.0.0.1:{self.ports[port]}{asked['httpGet']['path']}"
        urllib.request.urlopen(url, timeout=5, context=context).close()  # noqa: S310 - its own address


class Box:
    """Takes mails."""

    def __init__(self) -> None:
        self.mails: list[Envelope] = []

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Envelope) -> str:  # noqa: N802 - aiosmtpd's name
        self.mails.append(envelope)
        return "250 taken"


def values(smtp_port: int, kube_url: str, state: Path) -> dict[str, Any]:
    """Give a site's values: all parts, TLS as Helm makes it, and what stands for hardware, cluster and mail server."""
    return {
        "clusterName": "alpha",
        "agent": {
            "extraEnv": [
                {"name": "TRUELOAD_AGENT__NVML_LIBRARY", "value": str(library_path())},
                {"name": STATE_VARIABLE, "value": str(state)},
            ]
        },
        "jobs": {"extraEnv": [{"name": "TRUELOAD_JOBS__KUBERNETES_URL", "value": kube_url}]},
        "report": {"enabled": True, "timeZone": "Etc/UTC"},
        "settings": {
            "agent": {"interval_seconds": 0.2, "cadence_seconds": 1},
            "sql": {"over_http": True},
            "mail": {
                "smtp_host": "127.0.0.1",
                "smtp_port": smtp_port,
                "starttls": False,
                "sender": "trueload@example.org",
                "operators": ["operators@example.org"],
                "work_days": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"],
            },
        },
    }


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Machine, Box]]:
    """Give the whole of it, running: a card with a pod on it, a cluster that knows the pod, and a mail server."""
    folder = tmp_path_factory.mktemp("chart")
    with ExitStack() as stack:
        bench = Bench(folder, chart.REPOSITORY)
        stack.callback(bench.close)
        paths = {
            path: folder / "node" / path.strip("/").replace("/", "-") for path in ("/var/lib/trueload", "/var/log/pods")
        }
        paths |= {
            name: folder / "node" / name.rpartition("/")[2]
            for name in ("/var/lib/kubelet/pod-resources", "/sys/fs/cgroup")
        }
        for path in paths.values():
            path.mkdir(parents=True)
        (paths["/var/log/pods"] / "ml_train-0_uid-train-0").mkdir()
        node = kubelet.Kubelet(
            paths["/var/lib/kubelet/pod-resources"] / "kubelet.sock", [kubelet.pod("train-0", [CARD], namespace="ml")]
        )
        node.start()
        stack.callback(node.stop)
        kube = stack.enter_context(KubeServer().serving())
        kube.put(_pod())
        box = Box()
        mail = Controller(box, hostname="127.0.0.1", port=free_port())
        mail.start()
        stack.callback(mail.stop)
        made = chart.rendered(values(mail.port, kube.url, bench.path))
        machine = Machine(folder, made, paths)
        stack.callback(machine.stop)
        for kind, name in (
            ("StatefulSet", "server"),
            ("DaemonSet", "agent"),
            ("Deployment", "jobs"),
            ("Deployment", "web"),
        ):
            machine.start(name, made.one(kind, name)["spec"]["template"]["spec"])
        yield machine, box


def _pod() -> dict[str, Any]:
    began = (datetime.now(UTC) - timedelta(minutes=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": began}
    container = {"name": "main", "image": "train:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return {
        "metadata": {
            "name": "train-0",
            "namespace": "ml",
            "uid": "uid-train-0",
            "creationTimestamp": began,
            "labels": {"trueload/user": "amy"},
        },
        "spec": {"nodeName": "n1", "containers": [container]},
        "status": {"phase": "Running", "conditions": [scheduled]},
    }


def cli(machine: Machine, *words: str) -> str:
    data = machine.folder / "server" / "data" / "store"
    ran = subprocess.run(
        [sys.executable, "-m", "trueload", *words, "--data", str(data)],
        capture_output=True,
        text=True,
        check=False,
        cwd=chart.REPOSITORY,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def rows(machine: Machine, statement: str) -> list[list[Any]]:
    found = json.loads(cli(machine, "sql", "--json", statement))["rows"]
    return [list(one.values()) if isinstance(one, dict) else list(one) for one in found]


@pytest.mark.parametrize(("kind", "name"), [("StatefulSet", "server"), ("DaemonSet", "agent"), ("Deployment", "web")])
def test_every_probe_of_the_chart_finds_its_part_ready(site: tuple[Machine, Box], kind: str, name: str) -> None:
    machine, _ = site
    container = machine.made.one(kind, name)["spec"]["template"]["spec"]["containers"][0]

    def ready() -> bool:
        try:
            machine.probe(container)
        except subprocess.CalledProcessError:
            return False
        return True

    until(f"{name} ready", ready, lambda: machine.log(name))


def test_the_agent_enrols_over_tls_and_tells_whose_the_card_is(site: tuple[Machine, Box]) -> None:
    machine, _ = site
    asked = f"SELECT DISTINCT node, cluster, attempt_key FROM device_sample WHERE device_uuid = '{CARD}'"
    until(
        "a row of the card, with its owner",
        lambda: any(row[2] for row in rows(machine, asked)),
        lambda: machine.log("agent"),
    )
    (row,) = [row for row in rows(machine, asked) if row[2]]
    assert row[:2] == ["n1", "alpha"]
    assert "uid-train-0" in row[2]


def test_the_collector_tells_of_the_pods_job_and_its_user(site: tuple[Machine, Box]) -> None:
    machine, _ = site
    asked = "SELECT name, namespace, \"user\" FROM job WHERE source = 'kubernetes'"
    until("the job", lambda: rows(machine, asked), lambda: machine.log("jobs"))
    assert rows(machine, asked) == [["train-0", "ml", "amy"]]


def test_the_pages_are_served(site: tuple[Machine, Box]) -> None:
    machine, _ = site

    def page() -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{machine.ports[8501]}/", timeout=5) as answer:
            return bytes(answer.read())

    until("a page", page, lambda: machine.log("web"))
    assert b"<script" in page()


def test_helm_test_asks_the_server_as_an_operator(site: tuple[Machine, Box]) -> None:
    machine, _ = site
    child = machine.start("test", machine.made.one("Pod", "test")["spec"])
    assert child.wait(60) == 0, machine.log("test")
    assert "the server answers" in machine.log("test")


def test_the_report_of_last_week_arrives_as_a_mail_once(site: tuple[Machine, Box], tmp_path: Path) -> None:
    machine, box = site
    monday = datetime.now(UTC).date() - timedelta(days=datetime.now(UTC).weekday() + 7)
    past = tmp_path / "jobs.csv"
    past.write_text(
        "job_id,name,user,account,partition,gpu_model,gpu_count,node,submit_at,start_at,end_at,state,driver_util_ratio"
        "\n"
        f"1,train,amy,ml,gpu,A100,4,n1,{monday}T08:00:00Z,{monday}T08:01:00Z,{monday}T20:01:00Z,completed,0.3\n"
    )
    cli(machine, "import", "jobs_csv", str(past))
    spec = machine.made.one("CronJob", "report")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    for _ in range(2):
        assert machine.start("report", spec).wait(120) == 0, machine.log("report")
    (mail,) = box.mails
    assert mail.rcpt_tos == ["operators@example.org"]


def test_nothing_that_runs_has_ended_or_been_refused(site: tuple[Machine, Box]) -> None:
    machine, _ = site
    longest = {"server", "agent", "jobs", "web"}
    for pod, child in machine.running:
        if pod in longest:
            assert child.poll() in {None, 0}, machine.log(pod)
    assert "401" not in machine.log("agent")
    assert "403" not in machine.log("jobs")
