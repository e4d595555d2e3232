"""A real Slurm on the loopback address: munge, MariaDB, slurmdbd, slurmctld and two slurmd, all below one folder.

Nothing of the machine's own configuration is used or changed, and every process is ended by its id. The devices of the
nodes are null devices with the names of GPUs, so that Slurm hands them out like cards.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

PACKAGES = {
    "mariadbd": "mariadb-server",
    "munged": "munge",
    "sacct": "slurm-client",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "slurmdbd": "slurmdbd",
}
"""Programs that it takes, and the Debian packages that bring them."""

NODES = ("gpu1", "gpu2")
GPUS_PER_NODE = 4
USERS = {"games": "ml", "news": "bio"}
"""Users that every Debian has, with their accounts here."""

READY_SECONDS = 60.0
END_SECONDS = 10.0
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def missing_packages() -> list[str]:
    """Give the Debian packages that are needed and not installed."""
    return [package for program, package in PACKAGES.items() if shutil.which(program, path=PATH) is None]


def free_ports(count: int) -> list[int]:
    """Give ports of the loopback address that nobody listens on."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


class SlurmCluster:
    """The cluster; ``with`` starts and ends it."""

    name = "testbed"

    def __init__(self, folder: Path, hooks: Path) -> None:
        """Prepare below ``folder``, with the prolog and epilog of the folder ``hooks``."""
        self.folder = folder
        self.hooks = hooks
        self._processes: list[tuple[str, subprocess.Popen[bytes]]] = []
        self._ports = dict(zip(("database", "slurmdbd", "slurmctld", *NODES), free_ports(3 + len(NODES)), strict=True))

    @property
    def environment(self) -> dict[str, str]:
        """Give what a command of Slurm needs to find this cluster."""
        return {"PATH": PATH, "SLURM_CONF": str(self.folder / "slurm.conf"), "LC_ALL": "C", "TZ": "UTC"}

    def jobs_folder(self, node: str) -> Path:
        """Give where a node's hooks write."""
        return self.folder / "jobs" / node

    def __enter__(self) -> Self:
        """Start everything, in order, each when the one before is ready."""
        try:
            self._lay_out()
            self._start_munge()
            self._start_database()
            self._start_accounting()
            self._start_controller()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End everything."""
        self.stop()

    def stop(self) -> None:
        """End what was started, last first."""
        for _name, process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()

    def stop_one(self, name: str) -> None:
        """End one daemon, as an outage would."""
        for entry in [entry for entry in self._processes if entry[0] == name]:
            self._processes.remove(entry)
            entry[1].terminate()
            entry[1].wait(END_SECONDS)

    def start_slurmdbd(self) -> None:
        """Start slurmdbd and wait until it answers."""
        self._start("slurmdbd", ["slurmdbd", "-D"])
        self.wait("slurmdbd answers", lambda: self._answers(["sacctmgr", "-nP", "list", "cluster"]))

    def run(self, *command: str, user: str | None = None) -> str:
        """Run a command of Slurm and give what it printed."""
        done = subprocess.run(
            command,
            env=self.environment,
            user=user,
            group=user,
            extra_groups=None if user is None else [],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=READY_SECONDS,
            check=False,
        )
        if done.returncode:
            raise AssertionError(f"{' '.join(command)}: {done.returncode}: {done.stderr}{done.stdout}")
        return done.stdout.strip()

    def submit(self, *options: str, script: str, user: str = "games") -> str:
        """Submit a job and give its id."""
        told = self.run("sbatch", "--parsable", "--output=/dev/null", *options, f"--wrap={script}", user=user)
        return told.partition(";")[0]

    def states(self) -> dict[str, str]:
        """Give the state of each job that the controller knows, arrays by task."""
        lines = self.run("squeue", "--noheader", "--array", "--states=all", "--format=%i %T").splitlines()
        return dict(line.split() for line in lines)

    def wait(self, what: str, holds: Callable[[], object], seconds: float = READY_SECONDS) -> None:
        """Wait until something holds.

        Raises:
            AssertionError: it does not in time, or a daemon ended; with the ends of the logs.

        """
        deadline = time.monotonic() + seconds
        while not holds():
            ended = [name for name, process in self._processes if process.poll() is not None]
            if ended or time.monotonic() > deadline:
                raise AssertionError(f"waited for: {what}; ended: {ended}\n{self.logs()}")
            time.sleep(0.1)

    def logs(self) -> str:
        """Give the end of each log."""
        return "\n".join(
            f"== {log.name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            for log in sorted((self.folder / "log").iterdir())
        )

    def _start(self, name: str, command: Sequence[str], user: str | None = None) -> None:
        with (self.folder / "log" / f"{name}.out").open("ab") as log:
            self._processes.append(
                (
                    name,
                    subprocess.Popen(
                        command,
                        env=self.environment,
                        user=user,
                        group=user,
                        extra_groups=None if user is None else [],
                        cwd=self.folder,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                    ),
                )
            )

    def _answers(self, command: Sequence[str]) -> bool:
        try:
            done = subprocess.run(command, env=self.environment, capture_output=True, timeout=5, check=False)
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    def _lay_out(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        for name in (
            "log",
            "state",
            "database",
            "jobs",
            *(f"{part}/{node}" for part in ("spool", "dev") for node in NODES),
        ):
            (self.folder / name).mkdir(parents=True)
        for node in NODES:
            for number in range(GPUS_PER_NODE):
                os.mknod(self.folder / "dev" / node / f"nvidia{number}", 0o20666, os.makedev(1, 3))
        for hook in ("prolog", "epilog"):
            script = self.folder / f"{hook}.sh"
            script.write_text(
                f"#!/bin/sh\nexport TRUELOAD_SLURM_JOBS_DIR={self.folder}/jobs/$SLURMD_NODENAME\n"
                f"exec /bin/sh {self.hooks}/trueload-{hook}.sh\n"
            )
            script.chmod(0o755)
        (self.folder / "slurm.conf").write_text(self._slurm_conf())
        gres = [
            f"NodeName={node} Name=gpu Type=a100 File={self.folder}/dev/{node}/nvidia[0-{GPUS_PER_NODE - 1}]"
            for node in NODES
        ]
        (self.folder / "gres.conf").write_text("AutoDetect=off\n" + "\n".join(gres) + "\n")
        # slurmd 22.05 loads a plugin for control groups even where none are used.
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        dbd = self.folder / "slurmdbd.conf"
        dbd.write_text(self._slurmdbd_conf())
        dbd.chmod(0o600)

    def _slurm_conf(self) -> str:
        folder, ports = self.folder, self._ports
        lines = {
            "ClusterName": self.name,
            "SlurmctldHost": "localhost(127.0.0.1)",
            "SlurmctldPort": ports["slurmctld"],
            "SlurmUser": "root",
            "SlurmdUser": "root",
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={folder}/munge.sock",
            "CredType": "cred/munge",
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_Core",
            "GresTypes": "gpu",
            "AccountingStorageType": "accounting_storage/slurmdbd",
            "AccountingStorageHost": "127.0.0.1",
            "AccountingStoragePort": ports["slurmdbd"],
            "AccountingStoragePass": f"{folder}/munge.sock",
            "AccountingStorageTRES": "gres/gpu,gres/gpu:a100",
            "AccountingStoreFlags": "job_comment",
            "JobAcctGatherType": "jobacct_gather/linux",
            "MpiDefault": "none",
            "ReturnToService": 2,
            "SlurmdParameters": "config_overrides",
            "SchedulerParameters": "sched_interval=1,bf_interval=1",
            "KillWait": 2,
            "PrologFlags": "Alloc",
            "Prolog": f"{folder}/prolog.sh",
            "Epilog": f"{folder}/epilog.sh",
            "SlurmctldPidFile": f"{folder}/slurmctld.pid",
            "SlurmdPidFile": f"{folder}/slurmd.%n.pid",
            "StateSaveLocation": f"{folder}/state",
            "SlurmdSpoolDir": f"{folder}/spool/%n",
            "SlurmctldLogFile": f"{folder}/log/slurmctld.log",
            "SlurmdLogFile": f"{folder}/log/slurmd.%n.log",
        }
        nodes = [
            f"NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[node]} CPUs=16 RealMemory=64000 "
            f"Gres=gpu:a100:{GPUS_PER_NODE} State=UNKNOWN"
            for node in NODES
        ]
        partition = f"PartitionName=gpu Nodes={','.join(NODES)} Default=YES MaxTime=1-00:00:00 State=UP"
        return "\n".join([*(f"{key}={value}" for key, value in lines.items()), *nodes, partition, ""])

    def _slurmdbd_conf(self) -> str:
        folder, ports = self.folder, self._ports
        lines = {
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={folder}/munge.sock",
            "DbdHost": "localhost",
            "DbdAddr": "127.0.0.1",
            "DbdPort": ports["slurmdbd"],
            "SlurmUser": "root",
            "StorageType": "accounting_storage/mysql",
            "StorageHost": "127.0.0.1",
            "StoragePort": ports["database"],
            "StorageUser": "slurm",
            "StoragePass": "pw",
            "StorageLoc": "slurm_acct_db",
            "LogFile": f"{folder}/log/slurmdbd.log",
            "PidFile": f"{folder}/slurmdbd.pid",
        }
        return "\n".join([*(f"{key}={value}" for key, value in lines.items()), ""])

    def _start_munge(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        files = {
            "key-file": "munge.key",
            "socket": "munge.sock",
            "pid-file": "munged.pid",
            "log-file": "log/munged.log",
        }
        options = [f"--{name}={self.folder / file}" for name, file in (files | {"seed-file": "munge.seed"}).items()]
        self._start("munged", ["munged", "--foreground", "--force", *options])
        self.wait("munge's socket", (self.folder / "munge.sock").exists)

    def _start_database(self) -> None:
        data = self.folder / "database"
        shutil.chown(data, "mysql", "mysql")
        common = ["--no-defaults", f"--datadir={data}", "--user=mysql"]
        self.run(
            "mariadb-install-db",
            *common,
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--skip-log-bin",
        )
        socket_file = data / "mysql.sock"
        self._start(
            "mariadbd",
            [
                "mariadbd",
                *common,
                f"--socket={socket_file}",
                "--bind-address=127.0.0.1",
                f"--port={self._ports['database']}",
                f"--pid-file={data}/mariadbd.pid",
                "--innodb-buffer-pool-size=64M",
                # Nobody needs this database after a power cut.
                "--innodb-flush-log-at-trx-commit=0",
                "--skip-log-bin",
            ],
        )
        client = ["mariadb", "--no-defaults", f"--socket={socket_file}", "--user=root"]
        self.wait("MariaDB answers", lambda: self._answers([*client, "--execute=SELECT 1"]))
        grant = "GRANT ALL ON slurm_acct_db.* TO 'slurm'@'127.0.0.1' IDENTIFIED BY 'pw'"
        self.run(*client, f"--execute={grant}; {grant.replace('127.0.0.1', 'localhost')}")

    def _start_accounting(self) -> None:
        self.start_slurmdbd()
        self.run("sacctmgr", "-i", "add", "cluster", self.name)
        self.run("sacctmgr", "-i", "add", "account", ",".join(USERS.values()), f"Cluster={self.name}")
        for user, account in USERS.items():
            self.run("sacctmgr", "-i", "add", "user", user, f"Account={account}")

    def _start_controller(self) -> None:
        self._start("slurmctld", ["slurmctld", "-D"])
        self.wait("slurmctld answers", lambda: self._answers(["scontrol", "ping"]))
        for node in NODES:
            self._start(f"slurmd.{node}", ["slurmd", "-D", "-N", node])
        idle = re.compile(r"idle$", re.MULTILINE)
        self.wait(
            "all nodes are idle",
            lambda: len(idle.findall(self.run("sinfo", "--noheader", "--Node", "--format=%T"))) == len(NODES),
        )
