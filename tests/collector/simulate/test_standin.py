from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

import build_native
from collector.simulate import layout, standin
from collector.simulate.standin import (
    LIBRARY_NAME,
    STATE_VARIABLE,
    GpmCounters,
    StandinCounters,
    StandinDevice,
    StandinFault,
    StandinProcess,
    StandinState,
    library_path,
)
from warehouse.contract.errors import BadUseError, TrueloadError

NATIVE = build_native.ROOT / build_native.LIBRARIES[0].folder
H100 = StandinDevice(
    uuid="GPU-00000000-0000-0000-0000-000000000000",
    name="NVIDIA H100 80GB HBM3",
    pci_bus_id="00000000:1A:00.0",
    minor_number=3,
    memory_total_bytes=85_899_345_920,
    memory_used_bytes=21_474_836_480,
    driver_util_ratio=0.97,
    power_watts=412.5,
    energy_joules=1234.567,
    temperature_celsius=61,
    sm_clock_hertz=1.98e9,
    gpm=GpmCounters(100, 50, 40, 10, 5, 20),
    processes=(StandinProcess(4242, 1_073_741_824, 0.75), StandinProcess(4243, None)),
    serial="1650522003820",
    driver_memory_util_ratio=0.31,
    clock_event_reasons=0x4,
)
A100 = StandinDevice(
    uuid="GPU-11111111-1111-1111-1111-111111111111",
    name="NVIDIA A100-SXM4-40GB",
    pci_bus_id="0000:3B:00.0",
    minor_number=0,
    memory_total_bytes=42_949_672_960,
    memory_used_bytes=0,
    driver_util_ratio=0,
    power_watts=55,
    energy_joules=0,
    temperature_celsius=28,
    sm_clock_hertz=210e6,
)


class Node:
    """A process that reads one simulated node, and the answers it gives."""

    def __init__(self, environment: dict[str, str], library: str) -> None:
        child = Path(__file__).with_name("nvml_child.py")
        self.process = subprocess.Popen(
            [sys.executable, str(child), library],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def send(self, operation: str, **request: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"operation": operation, **request}) + "\n")
        self.process.stdin.flush()

    def receive(self) -> Any:
        assert self.process.stdout is not None
        answer = json.loads(self.process.stdout.readline())
        return answer["value"] if "value" in answer else (answer["error"], answer["code"])

    def ask(self, operation: str, **request: Any) -> Any:
        self.send(operation, **request)
        return self.receive()

    def __call__(self, name: str, device: int | None = None, *args: Any) -> Any:
        return self.ask("call", name=name, device=device, args=args)

    def close(self) -> str:
        """End the process; gives what it wrote to stderr."""
        return self.process.communicate(timeout=30)[1]


@pytest.fixture(scope="session", autouse=True)
def _built() -> None:
    build_native.build(build_native.ROOT)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[StandinState]:
    with StandinState.create(tmp_path / "state", "570.124.06", [H100, A100]) as state:
        yield state


@pytest.fixture
def unopened(state: StandinState) -> Iterator[Node]:
    node = Node({**os.environ, STATE_VARIABLE: str(state.path)}, str(library_path()))
    yield node
    node.close()


@pytest.fixture
def node(unopened: Node) -> Node:
    assert unopened("nvmlInit") is None
    return unopened


def test_the_node_is_read_as_it_was_written(node: Node) -> None:
    assert node("nvmlSystemGetDriverVersion") == "570.124.06"
    assert node("nvmlSystemGetNVMLVersion") == "12.570.124.06"
    assert node("nvmlSystemGetCudaDriverVersion") == 12080
    assert node("nvmlSystemGetCudaDriverVersion_v2") == 12080
    assert node("nvmlDeviceGetCount") == 2
    assert node.ask("handle_by_uuid", uuid=A100.uuid) == 1
    assert node.ask("handle_by_uuid", uuid="GPU-no-such") == ("NVMLError_NotFound", 6)
    assert node("nvmlDeviceGetHandleByIndex", None, 2) == ("NVMLError_InvalidArgument", 2)
    assert node("nvmlErrorString", None, 15) == "GPU is lost"


def test_identity_is_read_as_it_was_written(node: Node) -> None:
    assert node("nvmlDeviceGetIndex", 1) == 1
    assert node("nvmlDeviceGetUUID", 0) == H100.uuid
    assert node("nvmlDeviceGetName", 0) == "NVIDIA H100 80GB HBM3"
    assert node("nvmlDeviceGetMinorNumber", 0) == 3
    assert node("nvmlDeviceGetSerial", 0) == "1650522003820"
    assert node("nvmlDeviceGetSerial", 1) == ("NVMLError_NotSupported", 3)
    pci = node("nvmlDeviceGetPciInfo", 0)
    assert (pci["busId"], pci["busIdLegacy"], pci["bus"]) == ("00000000:1A:00.0", "0000:1A:00.0", 0x1A)
    assert node("nvmlDeviceGetPciInfo", 1)["busId"] == "00000000:3B:00.0"
    assert node("nvmlDeviceGetMigMode", 0) == [0, 0]
    assert node("nvmlDeviceGetMaxMigDeviceCount", 0) == 0


def test_readings_are_what_was_written_in_the_units_of_nvml(node: Node) -> None:
    memory = {"total": 85_899_345_920, "used": 21_474_836_480, "free": 64_424_509_440}
    assert node("nvmlDeviceGetMemoryInfo", 0) == memory
    memory_v2 = node("nvmlDeviceGetMemoryInfo", 0, pynvml.nvmlMemory_v2)
    assert memory_v2 == memory | {"version": pynvml.nvmlMemory_v2, "reserved": 0}
    assert node("nvmlDeviceGetUtilizationRates", 0) == {"gpu": 97, "memory": 31}
    assert node("nvmlDeviceGetPowerUsage", 0) == 412_500
    assert node("nvmlDeviceGetTotalEnergyConsumption", 0) == 1_234_567
    assert node("nvmlDeviceGetTemperature", 0, pynvml.NVML_TEMPERATURE_GPU) == 61
    assert node("nvmlDeviceGetTemperatureV", 0, pynvml.NVML_TEMPERATURE_GPU) == 61
    assert node("nvmlDeviceGetClockInfo", 0, pynvml.NVML_CLOCK_SM) == 1980
    assert node("nvmlDeviceGetClockInfo", 0, pynvml.NVML_CLOCK_MEM) == ("NVMLError_NotSupported", 3)
    assert node("nvmlDeviceGetCurrentClocksEventReasons", 0) == 0x4
    assert node("nvmlDeviceGetCurrentClocksThrottleReasons", 0) == 0x4
    assert node("nvmlDeviceGetTotalEccErrors", 0, 0, 0) == ("NVMLError_NotSupported", 3)


def test_a_write_is_seen_by_the_next_call(node: Node, state: StandinState) -> None:
    assert node("nvmlDeviceGetPowerUsage", 1) == 55_000
    state.write([H100, dataclasses.replace(A100, power_watts=300, memory_used_bytes=7)])
    assert node("nvmlDeviceGetPowerUsage", 1) == 300_000
    assert node("nvmlDeviceGetMemoryInfo", 1)["used"] == 7


def test_processes_carry_host_pids_and_unknown_memory_is_none(node: Node) -> None:
    first, second = node("nvmlDeviceGetComputeRunningProcesses", 0)
    no_instance = {"gpuInstanceId": 2**32 - 1, "computeInstanceId": 2**32 - 1}
    assert first == {"pid": 4242, "usedGpuMemory": 1_073_741_824} | no_instance
    assert second == {"pid": 4243, "usedGpuMemory": None} | no_instance
    assert node("nvmlDeviceGetComputeRunningProcesses", 1) == []
    assert node("nvmlDeviceGetGraphicsRunningProcesses", 0) == []
    assert node("nvmlDeviceGetMPSComputeRunningProcesses", 0) == []


def test_as_many_processes_as_fit_are_listed(node: Node, state: StandinState) -> None:
    processes = tuple(StandinProcess(pid, pid) for pid in range(1, layout.PROCESSES_MAX + 1))
    state.write([dataclasses.replace(H100, processes=processes)])
    listed = node("nvmlDeviceGetComputeRunningProcesses", 0)
    assert [(p["pid"], p["usedGpuMemory"]) for p in listed] == [(pid, pid) for pid in range(1, 33)]


def test_process_utilization_lists_new_samples_of_processes_that_have_one(node: Node, state: StandinState) -> None:
    (sample,) = node("nvmlDeviceGetProcessUtilization", 0, 0)
    assert (sample["pid"], sample["smUtil"]) == (4242, 75)
    assert abs(sample["timeStamp"] - time.time() * 1e6) < 60e6
    assert node("nvmlDeviceGetProcessUtilization", 0, sample["timeStamp"]) == ("NVMLError_NotFound", 6)
    state.write([H100, A100])
    assert len(node("nvmlDeviceGetProcessUtilization", 0, sample["timeStamp"])) == 1
    assert node("nvmlDeviceGetProcessUtilization", 1, 0) == ("NVMLError_NotFound", 6)


def test_gpm_gives_the_exact_mean_between_two_samples(node: Node, state: StandinState) -> None:
    assert node("nvmlGpmQueryDeviceSupport", 0)["isSupportedDevice"] == 1
    node.ask("gpm_sample", name="a", device=0)
    state.write([dataclasses.replace(H100, gpm=GpmCounters(103, 51, 40.5, 10.25, 5, 22))])
    state.write([dataclasses.replace(H100, gpm=GpmCounters(108, 54, 42, 11, 5, 28))])
    node.ask("gpm_sample", name="b", device=0)
    mean = node.ask("gpm_mean", first="a", second="b", metrics=[1, 2, 3, 5, 10, 248])
    assert mean == {"1": 50.0, "2": 25.0, "3": 12.5, "5": 0.0, "10": 100.0, "248": {"code": 3}}


def test_gpm_gives_totals_since_boot_and_rates_of_traffic(node: Node, state: StandinState) -> None:
    def at(seconds: float, sent: int) -> StandinDevice:
        counters = StandinCounters(pcie_transmitted_bytes=sent)
        activity = GpmCounters(seconds, 0, seconds / 4, 0, 0, 0)
        return dataclasses.replace(H100, gpm=activity, gpm_totals=True, counters=counters)

    state.write([at(100, 0)])
    node.ask("gpm_sample", name="a", device=0)
    state.write([at(104, 8 * 1024**2)])
    node.ask("gpm_sample", name="b", device=0)
    found = node.ask("gpm_mean", first="a", second="b", metrics=[20, 248, 249, 255])
    assert found == {"20": 2.0, "248": 104e9, "249": 26e9, "255": 8.0 * 1024**2}


def test_gpm_has_no_data_between_two_samples_of_one_state(node: Node) -> None:
    node.ask("gpm_sample", name="a", device=0)
    node.ask("gpm_sample", name="b", device=0)
    assert node.ask("gpm_mean", first="a", second="b", metrics=[1]) == {"1": {"code": 21}}


def test_gpm_refuses_counters_that_ran_backwards_and_two_devices(node: Node, state: StandinState) -> None:
    state.write([H100, dataclasses.replace(A100, gpm=GpmCounters(200, 0, 0, 0, 0, 0))])
    node.ask("gpm_sample", name="a", device=0)
    node.ask("gpm_sample", name="other", device=1)
    assert node.ask("gpm_mean", first="a", second="other", metrics=[1]) == ("NVMLError_InvalidArgument", 2)
    state.write([dataclasses.replace(H100, gpm=GpmCounters(1, 0, 0, 0, 0, 0))])
    node.ask("gpm_sample", name="b", device=0)
    assert node.ask("gpm_mean", first="a", second="b", metrics=[1]) == ("NVMLError_InvalidArgument", 2)


def test_a_device_before_hopper_has_no_gpm(node: Node) -> None:
    assert node("nvmlGpmQueryDeviceSupport", 1)["isSupportedDevice"] == 0
    assert node.ask("gpm_sample", name="a", device=1) == ("NVMLError_NotSupported", 3)


def test_a_lost_device_fails_every_call_and_costs_only_itself(node: Node, state: StandinState) -> None:
    lost = ("NVMLError_GpuIsLost", 15)
    assert node("nvmlDeviceGetUUID", 0) == H100.uuid
    node.ask("gpm_sample", name="a", device=0)
    state.write([dataclasses.replace(H100, lost=True), A100])
    for call in ("nvmlDeviceGetUUID", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetComputeRunningProcesses"):
        assert node(call, 0) == lost
    assert node("nvmlDeviceGetHandleByIndex", None, 0) == lost
    assert node.ask("handle_by_uuid", uuid=H100.uuid) == lost
    assert node.ask("gpm_sample", name="b", device=0) == lost
    assert node("nvmlDeviceGetCount") == 2
    assert node.ask("handle_by_uuid", uuid=A100.uuid) == 1
    assert node("nvmlDeviceGetPowerUsage", 1) == 55_000
    state.write([H100, A100])
    assert node("nvmlDeviceGetUUID", 0) == H100.uuid


def test_a_fault_costs_one_call_of_one_device(node: Node, state: StandinState) -> None:
    no_memory = StandinFault("nvmlDeviceGetMemoryInfo", pynvml.NVML_ERROR_NOT_SUPPORTED)
    state.write([dataclasses.replace(H100, faults=(no_memory,)), A100])
    assert node("nvmlDeviceGetMemoryInfo", 0) == ("NVMLError_NotSupported", 3)
    assert node("nvmlDeviceGetMemoryInfo", 0, pynvml.nvmlMemory_v2)["used"] == 21_474_836_480
    assert node("nvmlDeviceGetPowerUsage", 0) == 412_500
    assert node("nvmlDeviceGetMemoryInfo", 1)["total"] == 42_949_672_960


def test_a_success_without_an_answer_can_be_told_too(node: Node, state: StandinState) -> None:
    fault = StandinFault("nvmlDeviceGetProcessUtilization", pynvml.NVML_SUCCESS)
    state.write([dataclasses.replace(H100, faults=(fault,))])
    assert node("nvmlDeviceGetProcessUtilization", 0, 0) == ("NVMLError", 0)


ARGUMENTS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "nvmlDeviceGetMemoryInfo_v2": ("nvmlDeviceGetMemoryInfo", (pynvml.nvmlMemory_v2,)),
    "nvmlDeviceGetClockInfo": ("nvmlDeviceGetClockInfo", (pynvml.NVML_CLOCK_SM,)),
    "nvmlDeviceGetTemperature": ("nvmlDeviceGetTemperature", (pynvml.NVML_TEMPERATURE_GPU,)),
    "nvmlDeviceGetTemperatureV": ("nvmlDeviceGetTemperatureV", (pynvml.NVML_TEMPERATURE_GPU,)),
    "nvmlDeviceGetProcessUtilization": ("nvmlDeviceGetProcessUtilization", (0,)),
    "nvmlDeviceGetTotalEccErrors": ("nvmlDeviceGetTotalEccErrors", (0, 0)),
    "nvmlDeviceGetFieldValues": ("nvmlDeviceGetFieldValues", ([74],)),
    "nvmlDeviceGetMigDeviceHandleByIndex": ("nvmlDeviceGetMigDeviceHandleByIndex", (0,)),
    "nvmlDeviceGetSamples": ("nvmlDeviceGetSamples", (0, 0)),
    # No event set and no sample: any address serves, for the fault comes first.
    "nvmlDeviceRegisterEvents": ("nvmlDeviceRegisterEvents", (8, 1)),
    "nvmlGpmMigSampleGet": ("nvmlGpmMigSampleGet", (1, 1)),
}
OPERATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "nvmlDeviceGetHandleByIndex_v2": ("call", {"name": "nvmlDeviceGetHandleByIndex", "args": [0]}),
    "nvmlDeviceGetHandleByUUID": ("handle_by_uuid", {"uuid": H100.uuid}),
    "nvmlGpmMetricsGet": ("gpm_mean", {"first": "a", "second": "a", "metrics": [1]}),
    "nvmlGpmSampleGet": ("gpm_sample", {"name": "b", "device": 0}),
}


@pytest.mark.parametrize("call", sorted(layout.FAULTABLE_CALLS))
def test_every_call_on_a_device_can_be_made_to_fail(node: Node, state: StandinState, call: str) -> None:
    node.ask("gpm_sample", name="a", device=0)
    name, arguments = ARGUMENTS.get(call, (call, ()))
    standard: tuple[str, dict[str, Any]] = ("call", {"name": name, "device": 0, "args": arguments})
    operation, request = OPERATIONS.get(call, standard)
    fault = StandinFault(call, pynvml.NVML_ERROR_NO_PERMISSION)
    state.write([dataclasses.replace(H100, faults=(StandinFault("nvmlDeviceGetSerial", 999), fault))])
    expected = ("NVMLError_Unknown", 999) if call == "nvmlDeviceGetSerial" else ("NVMLError_NoPermission", 4)
    assert node.ask(operation, **request) == expected


def test_the_list_of_calls_is_what_the_library_exports() -> None:
    sources = "".join(path.read_text() for path in NATIVE.glob("*.c"))
    exported = set(re.findall(r"EXPORT nvml_status (nvml(?:Device|Gpm)\w+)\(", sources))
    assert exported - {"nvmlDeviceGetCount_v2", "nvmlGpmSampleAlloc", "nvmlGpmSampleFree"} == layout.FAULTABLE_CALLS


def test_calls_before_init_and_after_shutdown_are_refused(unopened: Node) -> None:
    assert unopened("nvmlShutdown") == ("NVMLError_Uninitialized", 1)
    for _ in range(2):
        assert unopened("nvmlInit") is None
    assert unopened("nvmlShutdown") is None
    assert unopened("nvmlDeviceGetUUID", 0) == H100.uuid
    assert unopened("nvmlShutdown") is None
    assert unopened("nvmlDeviceGetUUID", 0) == ("NVMLError_Uninitialized", 1)
    assert unopened("nvmlDeviceGetCount") == ("NVMLError_Uninitialized", 1)
    assert unopened("nvmlInit") is None
    assert unopened("nvmlDeviceGetUUID", 0) == H100.uuid


def test_a_driver_can_be_absent_and_come_back(unopened: Node, state: StandinState) -> None:
    state.write([H100], init_return_code=pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    assert unopened("nvmlInit") == ("NVMLError_DriverNotLoaded", 9)
    assert unopened("nvmlDeviceGetCount") == ("NVMLError_Uninitialized", 1)
    state.write([H100])
    assert unopened("nvmlInit") is None
    assert unopened("nvmlDeviceGetCount") == 1


def test_a_replaced_state_file_is_found_at_the_next_init(node: Node, state: StandinState) -> None:
    with StandinState.create(state.path, "580.65.06", [A100], cuda_driver_version=13000):
        assert node("nvmlSystemGetDriverVersion") == "570.124.06"
        assert node("nvmlShutdown") is None
        assert node("nvmlInit") is None
        assert node("nvmlSystemGetNVMLVersion") == "13.580.65.06"
        assert node("nvmlDeviceGetUUID", 0) == A100.uuid


@pytest.mark.parametrize(
    ("content", "error", "reason"),
    [
        (None, ("NVMLError_LibraryNotFound", 12), "No such file"),
        (b"", ("NVMLError_Unknown", 999), "too short for a state file"),
        (b"x" * ctypes.sizeof(layout.File), ("NVMLError_Unknown", 999), "not a state file of this version"),
        (
            bytes(layout.File(magic=layout.MAGIC, version=layout.VERSION + 1, size_bytes=ctypes.sizeof(layout.File))),
            ("NVMLError_Unknown", 999),
            "not a state file of this version",
        ),
    ],
)
def test_a_file_that_is_no_state_is_refused_with_a_reason(
    tmp_path: Path, content: bytes | None, error: tuple[str, int], reason: str
) -> None:
    path = tmp_path / "state"
    if content is not None:
        path.write_bytes(content)
    node = Node({**os.environ, STATE_VARIABLE: str(path)}, str(library_path()))
    assert node("nvmlInit") == error
    told = node.close()
    assert reason in told
    assert str(path) in told


def test_a_process_without_the_variable_is_told_to_set_it() -> None:
    environment = {name: value for name, value in os.environ.items() if name != STATE_VARIABLE}
    node = Node(environment, str(library_path()))
    assert node("nvmlInit") == ("NVMLError_LibraryNotFound", 12)
    assert f"{STATE_VARIABLE}=: set it to the state file" in node.close()


def test_the_loader_finds_the_library_by_its_own_path(state: StandinState) -> None:
    search = {"LD_LIBRARY_PATH": str(library_path().parent), STATE_VARIABLE: str(state.path)}
    node = Node({**os.environ, **search}, "loader")
    assert node("nvmlInit") is None
    assert node("nvmlDeviceGetUUID", 0) == H100.uuid
    node.close()


def test_a_reader_never_sees_half_a_write(state: StandinState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_memory(used_bytes: int) -> StandinDevice:
        processes = tuple(StandinProcess(pid, used_bytes) for pid in range(1, layout.PROCESSES_MAX + 1))
        return dataclasses.replace(A100, processes=processes)

    program = tmp_path / "hammer"
    _zig_cc(str(Path(__file__).with_name("hammer.c")), str(library_path()), "-O2", "-o", str(program))
    one, other = with_memory(1), with_memory(2)
    # Put together beforehand, so that writes follow each other closely enough to meet reads halfway.
    records = {id(device): standin._device_record(device) for device in (one, other)}
    monkeypatch.setattr(standin, "_device_record", lambda device: records[id(device)])
    state.write([one])
    search = {"LD_LIBRARY_PATH": str(library_path().parent), STATE_VARIABLE: str(state.path)}
    with subprocess.Popen([program], env={**os.environ, **search}, stdout=subprocess.PIPE, text=True) as hammer:
        while hammer.poll() is None:
            state.write([one])
            state.write([other])
        assert hammer.stdout is not None
        changes, torn = map(int, hammer.stdout.read().split())
    assert torn == 0
    assert changes > 3000  # the hammer stops after 30,000, or after a minute on a busy machine


def test_a_writer_that_died_in_a_write_does_not_hang_its_readers(node: Node, state: StandinState) -> None:
    with state.path.open("r+b") as file:
        file.seek(layout.File.sequence.offset)
        file.write((99).to_bytes(8, "little"))
    started = time.monotonic()
    assert node("nvmlDeviceGetPowerUsage", 0) == ("NVMLError_Timeout", 10)
    assert 0.5 < time.monotonic() - started < 30


def _zig_cc(*arguments: str, target: str = build_native.TARGETS[platform.machine()]) -> None:
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", target, "-std=c11", "-D_GNU_SOURCE", f"-I{NATIVE}"]
    done = subprocess.run([*compiler, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _offset_checks(structure: type[ctypes.Structure], name: str) -> str:
    checks = [f'_Static_assert(sizeof({name}) == {ctypes.sizeof(structure)}, "{name}");']
    for field, *_ in structure._fields_:
        offset = getattr(structure, field).offset
        checks.append(f'_Static_assert(offsetof({name}, {field}) == {offset}, "{name}.{field}");')
    return "\n".join(checks)


NVML_STRUCTURES = {
    "nvml_pci_info": pynvml.nvmlPciInfo_t,
    "nvml_memory": pynvml.c_nvmlMemory_t,
    "nvml_memory_v2": pynvml.c_nvmlMemory_v2_t,
    "nvml_utilization": pynvml.c_nvmlUtilization_t,
    "nvml_temperature_v1": pynvml.c_nvmlTemperature_v1_t,
    "nvml_process_info": pynvml.c_nvmlProcessInfo_v3_t,
    "nvml_process_utilization_sample": pynvml.c_nvmlProcessUtilizationSample_t,
    "nvml_field_value": pynvml.c_nvmlFieldValue_t,
    "nvml_sample": pynvml.c_nvmlSample_t,
    "nvml_event_data": pynvml.c_nvmlEventData_t,
    "nvml_gpm_support": pynvml.c_nvmlGpmSupport_t,
    "nvml_gpm_metric_info": pynvml.c_metricInfo_t,
    "nvml_gpm_metric": pynvml.c_nvmlGpmMetric_t,
}
STATE_STRUCTURES = {
    "struct standin_process": layout.Process,
    "struct standin_fault": layout.Fault,
    "struct standin_gpm": layout.Gpm,
    "struct standin_event": layout.Event,
    "struct standin_instance": layout.Instance,
    "struct standin_device": layout.Device,
    "struct standin_node": layout.Node,
    "struct standin_file": layout.File,
}


@pytest.mark.parametrize("target", build_native.TARGETS.values())
def test_structures_agree_with_the_binding_and_with_the_python_layout(tmp_path: Path, target: str) -> None:
    checks = [_offset_checks(structure, name) for name, structure in {**NVML_STRUCTURES, **STATE_STRUCTURES}.items()]
    metrics = pynvml.c_nvmlGpmMetricsGet_t.metrics.offset
    checks += [
        f'_Static_assert(offsetof(nvml_gpm_metrics_get, metrics) == {metrics}, "metrics");',
        f'_Static_assert(STANDIN_MAGIC == UINT64_C({layout.MAGIC}), "magic");',
        f'_Static_assert(STANDIN_VERSION == {layout.VERSION}, "version");',
        f'_Static_assert(NVML_VERSIONED(nvml_memory_v2, 2) == {pynvml.nvmlMemory_v2}, "version");',
        f'_Static_assert(NVML_VERSIONED(nvml_temperature_v1, 1) == {pynvml.nvmlTemperature_v1}, "version");',
    ]
    source = tmp_path / "checks.c"
    source.write_text("#include <stddef.h>\n#include <standin_state.h>\n" + "\n".join(checks))
    _zig_cc(str(source), "-c", "-o", str(tmp_path / "checks.o"), target=target)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pci_bus_id": "1A:00"}, "pci_bus_id '1A:00'"),
        ({"uuid": "x" * 96}, "uuid"),
        ({"name": "a\0b"}, "name"),
        ({"power_watts": -1}, "power_watts: -1"),
        ({"driver_util_ratio": 4.3e7}, "driver_util_ratio"),
        ({"temperature_celsius": 3e9}, "temperature_celsius"),
        ({"processes": (StandinProcess(-1, None),)}, "pid: -1"),
        ({"processes": (StandinProcess(1, 1),) * 33}, "33 processes"),
        ({"faults": (StandinFault("nvmlDeviceGetMemory", 3),)}, "nvmlDeviceGetMemory"),
    ],
)
def test_what_nvml_cannot_say_is_refused_and_the_state_stays(
    node: Node, state: StandinState, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadUseError, match=re.escape(message)):
        state.write([dataclasses.replace(H100, **change)])
    assert node("nvmlDeviceGetPowerUsage", 0) == 412_500


def test_an_impossible_reading_of_real_drivers_can_be_told(node: Node, state: StandinState) -> None:
    state.write([dataclasses.replace(H100, driver_util_ratio=42949672.95, temperature_celsius=-40)])
    assert node("nvmlDeviceGetUtilizationRates", 0)["gpu"] == 4294967295
    assert node("nvmlDeviceGetTemperatureV", 0, 0) == -40


def test_a_node_has_sixteen_devices_at_most(node: Node, state: StandinState) -> None:
    with pytest.raises(BadUseError, match="17 devices"):
        state.write([A100] * 17)
    state.write([dataclasses.replace(A100, minor_number=place) for place in range(16)])
    assert node("nvmlDeviceGetMinorNumber", 15) == 15


def test_a_failed_create_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(BadUseError):
        StandinState.create(tmp_path / "state", "570.1", [dataclasses.replace(H100, power_watts=-1)])
    assert list(tmp_path.iterdir()) == []


def test_a_closed_state_is_not_written_and_stays_readable(node: Node, state: StandinState) -> None:
    state.close()
    with pytest.raises(BadUseError, match="closed"):
        state.write([A100])
    assert node("nvmlDeviceGetUUID", 0) == H100.uuid


def test_the_library_of_another_architecture_is_there_and_of_an_unknown_one_is_not() -> None:
    assert library_path("arm64") == NATIVE / "lib" / "aarch64" / LIBRARY_NAME
    with pytest.raises(TrueloadError, match=r"not built for riscv64.*build_native\.py"):
        library_path("riscv64")
