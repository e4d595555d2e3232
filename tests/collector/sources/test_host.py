"""What the host tells of the node and of jobs: control groups of both versions, trees of processes, odd files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from collector.aggregate import Moment
from collector.driver import Driver
from collector.processes import HOST_PID_NAMESPACE
from collector.source import Reading, SourceContext
from collector.sources.host import SOURCE, HostReader
from warehouse.contract.model import HostSample
from warehouse.contract.settings import Settings

MIB = 1024**2
POD = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod11111111_2222_3333_4444_555555555555.slice"
CONTAINER = f"0::{POD}/cri-containerd-{'a' * 64}.scope"
JOB = "/system.slice/slurmstepd.scope/job_7"
PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total={some}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total={full}\n"


class Host:
    """A machine made of files, its clocks, and the agent's part of the conversation with the source."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.at = 1000.0
        self.steady = 50.0
        self.on_devices: set[int] = set()
        self.owners: dict[int, str] = {}
        self.write("proc/sys/kernel/random/boot_id", "11111111-2222-3333-4444-555555555555\n")
        self.link("proc/1/ns/pid", HOST_PID_NAMESPACE)
        self.link("proc/1/ns/net", "net:[1]")
        self.write("sys/dev/block/8:0/device/x", "")
        self.write("sys/block/sda/device/x", "")
        self.write("sys/class/net/eth0/device/x", "")
        self.write("cgroup/cgroup.controllers", "cpu io memory\n")
        self.driver = Driver()
        self.made: HostReader | None = None

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="latin-1")

    def link(self, name: str, target: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(target)

    def process(self, pid: int, **values: Any) -> None:
        """Put a process there: ``ticks`` of 10 ms, ``parent``, ``start``, ``state``, ``faults``, ``delay``."""
        it: dict[str, Any] = {
            "name": "python",
            "state": "S",
            "parent": 1,
            "faults": 0,
            "ticks": 0,
            "start": 500,
            "delay": 0,
        } | values
        fields = [it["state"], it["parent"], *[0] * 7, it["faults"], 0, it["ticks"], 0, 0, 0, *[0] * 4, it["start"]]
        fields += [0] * (39 - len(fields)) + [it["delay"], 0]
        self.write(f"proc/{pid}/stat", f"{pid} ({it['name']}) {' '.join(map(str, fields))}\n")
        self.write(f"proc/{pid}/cgroup", f"{it.get('cgroup', '0::/user.slice/session-1.scope')}\n")
        self.write(f"proc/{pid}/statm", f"900 {it.get('resident', 300)} {it.get('shared', 100)} 0 0 0 0\n")
        self.write(
            f"proc/{pid}/io", f"rchar: 9\nread_bytes: {it.get('read', 0)}\nwrite_bytes: {it.get('written', 0)}\n"
        )
        self.link(f"proc/{pid}/ns/net", it.get("net", "net:[1]"))

    def group(self, path: str, cpu: int = 0, **values: Any) -> None:
        """Fill a group of cgroup v2; ``cpu`` and pressure are in microseconds."""
        it: dict[str, Any] = {
            "anon": 0,
            "file": 0,
            "shmem": 0,
            "faults": 0,
            "io": "",
            "throttled": 0,
            "some": 0,
            "full": 0,
        } | values
        self.write(f"cgroup{path}/cpu.stat", f"usage_usec {cpu}\nuser_usec 1\nthrottled_usec {it['throttled']}\n")
        memory = f"anon {it['anon']}\nfile {it['file']}\nshmem {it['shmem']}\npgmajfault {it['faults']}\n"
        self.write(f"cgroup{path}/memory.stat", memory)
        self.write(f"cgroup{path}/io.stat", it["io"])
        self.write(f"cgroup{path}/io.pressure", PRESSURE.format(some=it["some"], full=it["full"]))
        self.write(f"cgroup{path}/cpu.max", f"{it.get('quota', 'max')} 100000\n")
        self.write(f"cgroup{path}/memory.max", f"{it.get('limit', 'max')}\n")

    def reader(self) -> HostReader:
        if self.made is None:
            places = {"proc_root": "proc", "host_cgroup_root": "cgroup", "host_sys_root": "sys"}
            values: dict[str, object] = {f"agent.{key}": str(self.root / name) for key, name in places.items()}
            settings = Settings({**values, "agent.node": "n"})
            self.made = HostReader(SourceContext(self.driver, settings), lambda: Moment(self.at, self.steady))
        return self.made

    def round(self, seconds: float = 10.0, step: float = 0.0) -> dict[str | None, HostSample]:
        """Let time pass, look, and give the rows by subject; ``step`` is how far the wall clock jumps besides."""
        self.steady += seconds
        self.at += seconds + step
        reader = self.reader()
        found: Mapping[str, list[Reading]] = {"nvml": [Reading("GPU-a", {}, tuple(sorted(self.on_devices)))]}
        moment = Moment(self.at, self.steady)
        reader.settled(moment, found, self.owners.get)
        reader.read()
        rows = reader.settled(moment, found, self.owners.get).records
        return {row.subject: row for row in rows if isinstance(row, HostSample)}

    @property
    def counted(self) -> dict[tuple[str, str], int]:
        return dict(self.driver.failures)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Give a machine without any job."""
    return Host(tmp_path)


def on_device(host: Host, pid: int, owner: str | None, **values: Any) -> None:
    host.process(pid, **values)
    host.on_devices.add(pid)
    if owner is not None:
        host.owners[pid] = owner


def test_a_pod_is_told_by_its_whole_group(host: Host) -> None:
    on_device(host, 71, "c/pod#0:1", cgroup=CONTAINER)
    host.group(POD, cpu=5_000_000, io="8:0 rbytes=1000 wbytes=50 rios=1\n253:0 rbytes=1000 wbytes=50\n", faults=3)
    assert host.round() == {}
    io = "8:0 rbytes=5000 wbytes=150 rios=2\n253:0 rbytes=5000 wbytes=150\n"
    more = {"io": io, "anon": 8 * MIB, "file": 6 * MIB, "shmem": 2 * MIB, "some": 4_000_000, "full": 1_000_000}
    host.group(POD, cpu=15_000_000, throttled=500_000, quota=200_000, limit=64 * MIB, faults=5, **more)
    row = host.round()[POD]
    assert (row.scope, row.attempt_key, row.sampled_at, row.cadence_seconds) == ("group", "c/pod#0:1", 1010.0, 10.0)
    assert (row.cpu_seconds, row.cpu_throttled_seconds, row.cpu_limit_count) == (10.0, 0.5, 2.0)
    assert (row.memory_resident_bytes, row.page_cache_bytes, row.memory_limit_bytes) == (10 * MIB, 4 * MIB, 64 * MIB)
    assert (row.disk_read_bytes, row.disk_written_bytes) == (4000.0, 100.0)  # the device over the disk counts it again
    assert (row.io_stall_seconds, row.io_full_stall_seconds, row.major_fault_count) == (4.0, 1.0, 2)
    assert (row.cpu_stall_seconds, row.network_received_bytes, row.block_delay_seconds) == (None, None, None)


def test_a_slurm_job_is_told_under_cgroup_v1(host: Host) -> None:
    (host.root / "cgroup/cgroup.controllers").unlink()
    lines = "\n".join(
        f"{n}:{name}:/slurm/uid_1000/job_7/step_0" for n, name in ((4, "memory"), (3, "cpu,cpuacct"), (2, "blkio"))
    )
    on_device(host, 71, "c/7#0:1", cgroup=lines)

    def fill(nanoseconds: int, read: int) -> None:
        host.write("cgroup/cpuacct/slurm/uid_1000/job_7/cpuacct.usage", f"{nanoseconds}\n")
        memory = (
            f"cache {MIB}\nrss 1\ntotal_cache {3 * MIB}\ntotal_rss {9 * MIB}\ntotal_shmem {MIB}\ntotal_pgmajfault 4\n"
        )
        host.write("cgroup/memory/slurm/uid_1000/job_7/memory.stat", memory)
        host.write("cgroup/memory/slurm/uid_1000/job_7/memory.limit_in_bytes", "9223372036854771712\n")
        name = "cgroup/blkio/slurm/uid_1000/job_7/blkio.throttle.io_service_bytes_recursive"
        host.write(name, f"8:0 Read {read}\n8:0 Write 10\n8:0 Total {read + 10}\nTotal {read + 10}\n")

    fill(1_000_000_000, 100)
    host.round()
    fill(4_500_000_000, 700)
    row = host.round()["/slurm/uid_1000/job_7"]
    assert (row.cpu_seconds, row.disk_read_bytes, row.disk_written_bytes) == (3.5, 600.0, 0.0)
    assert (row.memory_resident_bytes, row.page_cache_bytes, row.memory_limit_bytes) == (10 * MIB, 2 * MIB, None)
    assert row.io_stall_seconds is None  # this version counts no pressure by group


def test_without_a_group_of_its_own_a_job_is_its_process_and_all_below(host: Host) -> None:
    on_device(host, 71, "c/71#0:1", ticks=1000, read=10)
    host.process(72, parent=71, ticks=200)
    host.process(73, parent=72, ticks=100)
    host.process(80, parent=1, ticks=9000)
    host.round()
    host.process(71, ticks=1100, read=70, faults=2)
    host.process(72, parent=71, ticks=300, state="D")
    row = host.round()["71:500"]
    assert (row.scope, row.attempt_key, row.cpu_seconds) == ("tree", "c/71#0:1", 2.0)
    assert (row.disk_read_bytes, row.major_fault_count, row.blocked_count) == (60.0, 2, 1)
    assert row.memory_resident_bytes == 3 * 200 * 4096
    assert (row.page_cache_bytes, row.io_stall_seconds, row.block_delay_seconds) == (None, None, None)


def test_delays_are_told_only_where_the_kernel_counts_them(host: Host) -> None:
    host.write("proc/sys/kernel/task_delayacct", "1\n")
    host.group(POD)
    on_device(host, 71, "c/a#0:1", cgroup=CONTAINER, delay=900)
    host.round()
    on_device(host, 72, "c/a#0:1", cgroup=CONTAINER, delay=5000)  # has waited long before it came onto a device
    host.process(71, cgroup=CONTAINER, delay=1150)
    assert host.round()[POD].block_delay_seconds == 2.5
    host.process(72, cgroup=CONTAINER, delay=5100)
    assert host.round()[POD].block_delay_seconds == 1.0


def test_the_node_is_told_with_what_it_waits_for(host: Host) -> None:
    host.write("proc/stat", "cpu  100 0 50 900 30 5 5 0 0 0\ncpu0 1 2 3\nbtime 1\nprocs_blocked 3\n")
    host.write("proc/loadavg", "1.25 0.5 0.1 1/200 99\n")
    host.write(
        "proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 400 kB\nCached: 300 kB\nShmem: 100 kB\nAnonPages: 200 kB\n"
    )
    host.write("proc/vmstat", "pgmajfault 7\n")
    host.write("proc/diskstats", "8 0 sda 1 0 100 0 1 0 40 0 0 0 0\n253 0 dm-0 1 0 100 0 1 0 40 0 0 0 0\n")
    host.write(
        "proc/1/net/dev", "Inter-| Receive\n face |bytes\n  lo: 9 0 0 0 0 0 0 0 9 0\neth0: 1000 0 0 0 0 0 0 0 50 0\n"
    )
    host.write("proc/pressure/io", PRESSURE.format(some=1_000_000, full=0))
    host.round()
    host.write("proc/stat", "cpu  200 0 100 1700 130 5 5 0 0 0\nprocs_blocked 2\n")
    host.write("proc/vmstat", "pgmajfault 17\n")
    host.write("proc/diskstats", "8 0 sda 1 0 300 0 1 0 44 0 0 0 0\n253 0 dm-0 1 0 300 0 1 0 44 0 0 0 0\n")
    host.write("proc/1/net/dev", "Inter-|\n  lo: 99 0 0 0 0 0 0 0 99 0\neth0: 4000 0 0 0 0 0 0 0 70 0\n")
    host.write("proc/pressure/io", PRESSURE.format(some=3_000_000, full=0))
    row = host.round()[None]
    assert (row.scope, row.cpu_seconds, row.cpu_iowait_seconds, row.load_count) == ("node", 1.5, 1.0, 1.25)
    assert (row.memory_limit_bytes, row.memory_available_bytes) == (1000 * 1024, 400 * 1024)
    assert (row.memory_resident_bytes, row.page_cache_bytes, row.major_fault_count) == (300 * 1024, 200 * 1024, 10)
    assert (row.disk_read_bytes, row.disk_written_bytes) == (200 * 512, 4 * 512)
    assert (row.network_received_bytes, row.network_transmitted_bytes) == (3000.0, 20.0)
    assert (row.io_stall_seconds, row.blocked_count, row.attempt_key) == (2.0, 2, None)


def test_network_bytes_are_a_jobs_only_in_a_namespace_of_its_own(host: Host) -> None:
    other = POD.replace("1111", "9999")
    for pid, path, namespace in ((71, POD, "net:[71]"), (72, other, "net:[72]"), (73, f"{JOB}", "net:[1]")):
        host.group(path)
        on_device(host, pid, f"c/{pid}#0:1", cgroup=f"0::{path}/x", net=namespace)
        host.write(
            f"proc/{pid}/net/dev",
            "lo: 9 0 0 0 0 0 0 0 9 0\neth0: 100 0 0 0 0 0 0 0 10 0\ndocker0: 7 0 0 0 0 0 0 0 7 0\n",
        )
    host.round()
    for pid in (71, 72, 73):
        host.write(f"proc/{pid}/net/dev", "lo: 99 0 0 0 0 0 0 0 99 0\neth0: 350 0 0 0 0 0 0 0 15 0\n")
    rows = host.round()
    assert {path: rows[path].network_received_bytes for path in (POD, other, JOB)} == {
        POD: 250.0,
        other: 250.0,
        JOB: None,
    }
    host.link("proc/72/ns/net", "net:[71]")  # two jobs in one namespace: nobody knows whose a byte is
    rows = host.round()
    assert {rows[path].network_received_bytes for path in (POD, other)} == {None}


def test_a_counter_that_starts_over_drops_that_step_alone(host: Host) -> None:
    on_device(host, 71, "c/a#0:1", cgroup=CONTAINER)
    host.group(POD, cpu=9_000_000, faults=5)
    host.round()
    host.group(POD, cpu=1_000_000, faults=6)
    row = host.round()[POD]
    assert (row.cpu_seconds, row.major_fault_count) == (None, 1)
    assert host.counted["host cpu_seconds", "the counter started over"] == 1
    host.group(POD, cpu=3_000_000, faults=6)
    assert host.round()[POD].cpu_seconds == 2.0


def test_what_cannot_be_true_is_absent_and_counted(host: Host) -> None:
    on_device(host, 71, "c/a#0:1", cgroup=CONTAINER)
    host.group(POD)
    host.round()
    host.group(POD, cpu=10**12, some=10**9)
    row = host.round()[POD]
    assert (row.cpu_seconds, row.io_stall_seconds) == (None, None)
    assert host.counted["host cpu_seconds", "impossible: more than the time elapsed"] == 1


def test_a_group_of_the_same_path_that_was_made_anew_begins_anew(host: Host) -> None:
    on_device(host, 71, "c/7#0:1", cgroup=f"0::{JOB}/step_0")
    host.group(JOB, cpu=1_000_000)
    host.round()
    (host.root / f"cgroup{JOB}").rename(host.root / "cgroup/removed")  # so that its inode is not given to the next
    host.on_devices.clear()
    host.group(JOB, cpu=8_000_000)
    on_device(host, 75, "c/7#1:2", cgroup=f"0::{JOB}/step_0")
    assert JOB not in host.round()
    host.group(JOB, cpu=9_000_000)
    row = host.round()[JOB]
    assert (row.attempt_key, row.cpu_seconds) == ("c/7#1:2", 1.0)


def test_a_job_is_told_until_its_group_ends_also_when_it_has_left_the_device(host: Host) -> None:
    on_device(host, 71, "c/a#0:1", cgroup=CONTAINER)
    host.group(POD)
    host.round()
    host.on_devices.clear()
    host.group(POD, cpu=2_000_000)
    assert host.round()[POD].cpu_seconds == 2.0
    (host.root / f"cgroup{POD}").rename(host.root / "cgroup/removed")
    assert POD not in host.round()


def test_a_group_with_processes_of_two_attempts_is_nobodys(host: Host) -> None:
    host.group(POD)
    on_device(host, 71, "c/a#0:1", cgroup=CONTAINER)
    on_device(host, 72, "c/b#0:1", cgroup=CONTAINER)
    host.round()
    assert host.round()[POD].attempt_key is None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda host: host.write(f"cgroup{POD}/cpu.stat", "usage_usec -5\nusage_usec\n\nusage_usec 1e9\n"),
        lambda host: host.write(f"cgroup{POD}/cpu.stat", "\xff\xfe\x00" * 1000),
        lambda host: host.write(f"cgroup{POD}/cpu.stat", "usage_usec 99999999999999999999999\n"),
        lambda host: (host.root / f"cgroup{POD}/cpu.stat").unlink(),
    ],
)
def test_odd_files_cost_their_own_value_alone(host: Host, spoil: Callable[[Host], object]) -> None:
    on_device(host, 71, "c/a#0:1", cgroup=CONTAINER)
    host.group(POD, faults=1)
    host.round()
    host.group(POD, faults=2)
    spoil(host)
    row = host.round()[POD]
    assert (row.cpu_seconds, row.major_fault_count) == (None, 1)


def test_a_name_that_looks_like_the_rest_of_the_line_is_a_name(host: Host) -> None:
    on_device(host, 71, "c/71#0:1", name="x) R 1 1 1 1 (y", ticks=100)
    host.round()
    host.process(71, name="x) R 1 1 1 1 (y", ticks=150)
    assert host.round()["71:500"].cpu_seconds == 0.5


def test_processes_that_descend_from_each_other_end_the_search(host: Host) -> None:
    on_device(host, 71, "c/71#0:1")
    host.process(90, parent=91, ticks=7)
    host.process(91, parent=90, ticks=7)
    host.round()
    assert host.round()["71:500"].cpu_seconds == 0.0


def test_a_path_that_leads_upwards_is_no_group(host: Host) -> None:
    on_device(host, 71, None, cgroup=f"0::/../..{JOB}")
    host.group(JOB)
    host.round()
    assert set(host.round()) == {None, "71:500"}


def test_u06_without_the_hosts_pids_no_process_is_looked_up(host: Host) -> None:
    host.link("proc/1/ns/pid", "pid:[4026532000]")
    on_device(host, 71, "c/a#0:1", cgroup=CONTAINER)
    host.group(POD)
    host.round()
    assert set(host.round()) == {None}


def test_u29_a_step_of_the_clock_or_a_night_asleep_leaves_a_gap_and_no_spike(host: Host) -> None:
    host.write("proc/vmstat", "pgmajfault 0\n")
    host.round()
    assert host.round()[None].major_fault_count == 0
    host.write("proc/vmstat", "pgmajfault 500\n")
    assert host.round(step=3600.0) == {}
    assert host.round()[None].major_fault_count == 0
    assert host.round(step=-90.0) == {}
    host.write("proc/vmstat", "pgmajfault 900\n")
    assert host.round(seconds=8 * 3600.0) == {}


def test_what_is_not_there_is_absent_and_never_zero(host: Host) -> None:
    host.round()
    row = host.round()[None]
    told = {name: getattr(row, name) for name in HostSample.__slots__}
    given = {"cluster", "node", "scope", "sampled_at", "cadence_seconds", "source"}
    assert {name for name, value in told.items() if value is not None} == given


def test_the_source_says_what_it_is() -> None:
    assert (SOURCE.name, SOURCE.metrics) == ("host", ())
