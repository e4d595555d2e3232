"""What a scraper gets: names and rules of Prometheus, absent values, bounded series, and health."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import urllib3
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from collector import exporter_metrics as metrics
from collector.aggregate import Moment
from collector.driver import Driver, KnownDevice, StuckCall
from collector.exporter import AT_A_TIME, Exporter
from collector.job_source import Holding
from collector.recent import Recent
from collector.source import Reading
from collector.spool import Bounds, Spool
from collector.steps_seen import MOST_REMEMBERED, StepsSeen
from collector.sweep import SourceHealth
from warehouse.contract.clocks import Offset
from warehouse.contract.errors import BadUseError
from warehouse.contract.model import Job, ProcessSample

UUIDS = ("GPU-a", "GPU-b")
MODEL = 'hostile "model"\nwith a line'


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[metrics.Subject]:
    driver = Driver()
    driver.devices = tuple(
        KnownDevice(uuid, place, None, MODEL, 80 * 1024**3, f"00000000:{place:02X}:00.0")
        for place, uuid in enumerate(UUIDS)
    )
    driver.driver_version = "570.1"
    recent = Recent(interval_seconds=1.0, history_seconds=60.0)
    health = {"nvml": SourceHealth(10, Counter({"ValueError": 2}), 0.5, 0.1)}
    with Spool(tmp_path / "spool", "node-1", Bounds(10**9, 1e9)) as spool:
        yield metrics.Subject("node-1", "1.0", ("nvml", "gpm"), driver, recent, spool, health)


def read(subject: metrics.Subject, found: dict[str, list[Reading]], after_seconds: float = 0.0) -> None:
    subject.recent.add(Moment(1000.0 + after_seconds, time.monotonic()), found)


def samples(families: Iterator[Metric]) -> dict[str, dict[str, float]]:
    """Give the values by name and device (or by whatever the first label says)."""
    found: dict[str, dict[str, float]] = {}
    for family in families:
        for sample in family.samples:
            label = sample.labels.get("gpu_uuid") or sample.labels.get("UUID") or next(iter(sample.labels.values()), "")
            found.setdefault(sample.name, {})[label] = sample.value
    return found


@pytest.fixture
def serve(subject: metrics.Subject) -> Iterator[Any]:
    """Give a function that serves a subject and gives the address."""
    opened: list[Exporter] = []

    def start(shown: metrics.Subject, not_ready: str | None = None, *, dcgm_names: bool = False) -> str:
        def families() -> Iterator[Metric]:
            yield from metrics.device_families(shown)
            yield from metrics.job_families(shown, 1000.0)
            yield from metrics.agent_families(shown)
            if dcgm_names:
                yield from metrics.dcgm_families(shown)

        opened.append(Exporter("127.0.0.1:0", families, lambda: not_ready))
        return f"http://127.0.0.1:{opened[-1].port}"

    yield start
    for exporter in opened:
        exporter.close()


def get(url: str) -> urllib3.BaseHTTPResponse:
    return urllib3.request("GET", url, retries=False, timeout=5.0)


def test_a_value_that_is_not_known_is_no_sample(subject: metrics.Subject) -> None:
    read(subject, {"nvml": [Reading("GPU-a", {"power_watts": 300.0})], "gpm": []})
    found = samples(metrics.device_families(subject))
    assert found["trueload_gpu_power_watts"] == {"GPU-a": 300.0}
    assert "trueload_gpu_driver_util_ratio" not in found
    assert found["trueload_gpu_up"] == {"GPU-a": 1.0, "GPU-b": 1.0}


def test_u03_no_label_is_one_that_a_scrape_takes_for_itself(subject: metrics.Subject) -> None:
    read(subject, {"nvml": [Reading("GPU-a", {"power_watts": 300.0, "energy_joules": 1.0})]})
    held = Holding("c/a#0:1", "GPU-a", 1.0, None, source="kubelet")
    shown = replace(subject, holdings=[held], most_jobs=5)
    families = [
        *metrics.device_families(shown),
        *metrics.job_families(shown, 1000.0),
        *metrics.agent_families(shown),
        *metrics.dcgm_families(shown),
    ]
    labels = {label for family in families for sample in family.samples for label in sample.labels}
    assert "workload" in labels
    assert not labels & {"pod", "namespace", "container", "job", "instance"}


def test_u13_the_age_of_the_last_good_reading_is_told_by_device(subject: metrics.Subject) -> None:
    read(subject, {"nvml": [Reading("GPU-a", {"power_watts": 300.0}), Reading("GPU-b", {"power_watts": 100.0})]})
    read(subject, {"nvml": [Reading("GPU-b", {"power_watts": 100.0})]}, after_seconds=7.0)
    found = samples(metrics.device_families(subject))
    assert found["trueload_gpu_last_reading_timestamp_seconds"] == {"GPU-a": 1000.0, "GPU-b": 1007.0}


def test_a_value_that_cannot_be_true_is_not_shown(subject: metrics.Subject) -> None:
    read(subject, {"nvml": [Reading("GPU-a", {"driver_util_ratio": 42_949_672.95, "power_watts": 1.0})]})
    found = samples(metrics.device_families(subject))
    assert "trueload_gpu_driver_util_ratio" not in found


def test_amounts_are_counters_that_add_up(subject: metrics.Subject) -> None:
    for second in range(3):
        read(subject, {"nvml": [Reading("GPU-a", {"energy_joules": 5.0})]}, second)
    assert samples(metrics.device_families(subject))["trueload_gpu_energy_joules_total"] == {"GPU-a": 15.0}


def test_the_first_source_that_has_a_value_gives_it_and_no_value_is_there_twice(subject: metrics.Subject) -> None:
    read(
        subject,
        {
            "nvml": [Reading("GPU-a", {"power_watts": 300.0})],
            "gpm": [Reading("GPU-a", {"power_watts": 1.0, "sm_active_ratio": 0.5})],
        },
    )
    found = samples(metrics.device_families(subject))
    assert found["trueload_gpu_power_watts"] == {"GPU-a": 300.0}
    assert found["trueload_gpu_sm_active_ratio"] == {"GPU-a": 0.5}


def test_a_device_that_does_not_answer_any_more_has_no_values(subject: metrics.Subject) -> None:
    subject.driver.devices[0].lost = True
    subject.recent.add(Moment(900.0, time.monotonic() - 100.0), {"nvml": [Reading("GPU-a", {"power_watts": 300.0})]})
    found = samples(metrics.device_families(subject))
    assert "trueload_gpu_power_watts" not in found
    assert found["trueload_gpu_up"] == {"GPU-a": 0.0, "GPU-b": 1.0}


def test_dcgm_exporters_names_come_in_its_units(subject: metrics.Subject) -> None:
    values = {
        "driver_util_ratio": 0.5,
        "memory_used_bytes": 3 * 1024**2,
        "energy_joules": 2.0,
        "sm_clock_hertz": 1.98e9,
        "power_watts": 300.0,
    }
    read(subject, {"nvml": [Reading("GPU-a", values)]})
    found = {
        name: by["GPU-a"] if "GPU-a" in by else by["0"] for name, by in samples(metrics.dcgm_families(subject)).items()
    }
    assert found == {
        "DCGM_FI_DEV_GPU_UTIL": 50.0,
        "DCGM_FI_DEV_FB_USED": 3.0,
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 2000.0,
        "DCGM_FI_DEV_SM_CLOCK": 1980.0,
        "DCGM_FI_DEV_POWER_USAGE": 300.0,
        "DCGM_FI_DEV_FB_FREE": 80 * 1024.0 - 3.0,
    }


def test_u26_twenty_thousand_short_jobs_leave_no_series_behind(subject: metrics.Subject) -> None:
    read(subject, {"nvml": [Reading(uuid, {"power_watts": 300.0}) for uuid in UUIDS]})
    counts = set()
    for number in range(0, 20_000, 50):  # every fiftieth scrape of the 20,000 jobs of one minute
        now = 60.0 * number
        held = tuple(
            Holding(f"c/{place}#0:1", uuid, 60.0 * place, 60.0 * (place + 1))
            for place in range(max(0, number - 3), number + 1)
            for uuid in UUIDS
        )
        shown = replace(subject, holdings=held, most_jobs=64)
        families = [*metrics.device_families(shown), *metrics.job_families(shown, now), *metrics.agent_families(shown)]
        counts.add(sum(len(family.samples) for family in families))
        assert all(len(sample.labels) <= 15 for family in families for sample in family.samples)
    assert len(counts) == 1


def test_u26_no_series_of_a_job_unless_a_number_is_allowed_and_no_more_than_that(subject: metrics.Subject) -> None:
    held = tuple(Holding(f"c/{place}#0:1", "GPU-a", 1.0, None, share_ratio=0.25) for place in range(4))
    assert "trueload_workload_gpu_allocated_ratio" not in samples(
        metrics.job_families(replace(subject, holdings=held), 5.0)
    )
    found = [*metrics.job_families(replace(subject, holdings=held, most_jobs=3), 5.0)]
    by_name = {family.name: [sample.value for sample in family.samples] for family in found}
    assert by_name["trueload_gpu_allocated_ratio"] == [1.0]
    assert by_name["trueload_workload_gpu_allocated_ratio"] == [0.25] * 3
    assert by_name["trueload_agent_workload_series_left_out"] == [1.0]


def test_reasons_of_errors_are_bounded(subject: metrics.Subject) -> None:
    subject.driver.failures.update({(f"call{number}", "why"): 1 for number in range(1000)})
    for family in metrics.agent_families(subject):
        assert len(family.samples) <= metrics.MOST_REASONS + 1


def test_what_a_scraper_gets_passes_promtool(subject: metrics.Subject, serve: Any) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("needs Debian package prometheus")
    everything = {
        "driver_util_ratio": 0.5, "gpu_bound_seconds": 0.1, "process_count": 3.0, "memory_used_bytes": 1e9,
        "energy_joules": 2.0, "temperature_celsius": 50.0, "sm_clock_hertz": 1e9, "power_watts": 300.0,
    }  # fmt: skip
    read(subject, {"nvml": [Reading("GPU-a", everything)]})
    seen = StepsSeen()
    seen.take([sample("p1", 5, "c/1#0:1")])
    subject.driver.last_xid["GPU-a"] = "79"
    shipper: Any = SimpleNamespace(
        **dict.fromkeys(("shipped_total", "refused_total", "failed_total", "lost_by_server_total"), 1),
        last_success_at=1.0,
        clock=Offset(-0.1, 0.2),
    )
    held = (Holding("c/1#0:1", "GPU-a", 1.0, None),)
    shown = replace(subject, holdings=held, most_jobs=10, rejected={"power_watts": 1}, steps=seen, shipper=shipper)
    answer = get(f"{serve(shown)}/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    ran = subprocess.run([promtool, "check", "metrics"], input=answer.data, capture_output=True, check=False)
    assert (ran.returncode, ran.stdout + ran.stderr) == (0, b"")
    foreign = get(f"{serve(shown, dcgm_names=True)}/metrics").data
    assert b"DCGM_FI_DEV_XID_ERRORS{" in foreign
    ran = subprocess.run([promtool, "check", "metrics"], input=foreign, capture_output=True, check=False)
    complaints = (ran.stdout + ran.stderr).decode().splitlines()
    # The one thing that it has against dcgm-exporter's conventions is the label modelName.
    assert all(line.startswith("DCGM_FI_") and "camelCase" in line for line in complaints)


def test_hostile_names_are_text(subject: metrics.Subject, serve: Any) -> None:
    read(subject, {"nvml": [Reading("GPU-a", {"power_watts": 300.0})]})
    families = text_string_to_metric_families(get(f"{serve(subject)}/metrics").data.decode())
    sample = next(
        sample for family in families for sample in family.samples if sample.name == "trueload_gpu_power_watts"
    )
    assert sample.labels == {"gpu_uuid": "GPU-a", "gpu": "0", "node": "node-1", "model": MODEL}


def test_health_is_of_the_process_and_readiness_of_its_readings(subject: metrics.Subject, serve: Any) -> None:
    url = serve(subject, "nothing was read yet")
    assert get(f"{url}/healthz").status == 200
    ready = get(f"{url}/readyz")
    assert (ready.status, ready.data) == (503, b"nothing was read yet\n")
    assert get(f"{serve(subject)}/readyz").status == 200
    assert get(f"{url}/anything").status == 404


def test_callers_that_say_nothing_cost_only_themselves(subject: metrics.Subject, serve: Any) -> None:
    url = serve(subject)
    port = int(url.rpartition(":")[2])
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(AT_A_TIME - 1)]
    try:
        assert get(f"{url}/healthz").status == 200
    finally:
        for connection in silent:
            connection.close()


def test_stuck_calls_are_counted(subject: metrics.Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Driver, "stuck", lambda _self: [StuckCall("GPU-a", "nvmlDeviceGetPowerUsage", 9.0)])
    assert samples(metrics.agent_families(subject))["trueload_agent_stuck_calls"] == {"": 1.0}


def test_an_agent_that_is_started_again_gets_its_address_back_at_once(subject: metrics.Subject) -> None:
    first = Exporter("127.0.0.1:0", list, lambda: None)
    address = f"127.0.0.1:{first.port}"
    with socket.create_connection(("127.0.0.1", first.port)) as caller:
        caller.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        while caller.recv(4096):  # to the end: the server hangs up first, and its side of the connection lingers
            pass
    first.close()
    Exporter(address, list, lambda: None).close()


@pytest.mark.parametrize("listen", ["nowhere", "127.0.0.1:port", "127.0.0.1:99999", "192.0.2.1:80"])
def test_an_address_that_cannot_be_had_is_named(listen: str) -> None:
    with pytest.raises(BadUseError, match=r"agent\.exporter_listen: cannot listen"):
        Exporter(listen, list, lambda: None)


def sample(process: str, steps: int | None, workload: str | None, device: str = "GPU-a") -> ProcessSample:
    where = ("c", "node-1", device, 7, 0.0, 10.0, "kernels")
    return ProcessSample(*where, attempt_key=workload, process_key=process, steps_total=steps)


def test_steps_are_counted_once_per_process_and_added_up_per_workload(subject: metrics.Subject) -> None:
    seen = StepsSeen()
    seen.take([sample("p1", 5, "c/1#0:1"), sample("p1", 5, "c/1#0:1", "GPU-b"), sample("p2", 2, "c/1#0:1")])
    seen.take(
        [sample("p1", 9, "c/1#0:1"), sample("p3", None, "c/2#0:1"), sample("p4", 3, None), Job("j", "c", "1", "s")]
    )
    seen.take([sample("p1", 4, "c/1#0:1")])  # a counter never goes back
    found = samples(metrics.job_families(replace(subject, steps=seen, most_jobs=10), 5.0))
    assert found["trueload_node_steps_total"] == {"": 14.0}
    families = metrics.job_families(replace(subject, steps=seen, most_jobs=10), 5.0)
    (family,) = (family for family in families if family.name == "trueload_workload_steps")
    assert [(one.labels["workload"], one.value) for one in family.samples] == [("c/1#0:1", 11.0)]


def test_u26_series_of_steps_are_bounded_and_those_that_hold_a_device_come_first(subject: metrics.Subject) -> None:
    seen = StepsSeen()
    seen.take([sample(f"p{number}", 1, f"c/{number}#0:1") for number in range(2 * MOST_REMEMBERED)])
    assert len(seen.of_workloads()) == MOST_REMEMBERED
    held = (Holding(f"c/{MOST_REMEMBERED + 5}#0:1", "GPU-a", 1.0, None),)
    families = list(metrics.job_families(replace(subject, steps=seen, holdings=held, most_jobs=3), 5.0))
    (family,) = (family for family in families if family.name == "trueload_workload_steps")
    last = 2 * MOST_REMEMBERED - 1
    wanted = [f"c/{number}#0:1" for number in (MOST_REMEMBERED + 5, last, last - 1)]
    assert [one.labels["workload"] for one in family.samples] == wanted
    assert not [
        family
        for family in metrics.job_families(replace(subject, steps=seen, holdings=held), 5.0)
        if "workload" in family.name
    ]


def test_dcgm_names_that_are_worked_out_and_those_without_a_value(subject: metrics.Subject) -> None:
    read(
        subject,
        {"nvml": [Reading("GPU-a", {"memory_used_bytes": 30 * 1024**3}), Reading("GPU-b", {"power_watts": 1.0})]},
    )
    assert "DCGM_FI_DEV_XID_ERRORS" not in samples(metrics.dcgm_families(subject))
    subject.driver.last_xid["GPU-b"] = "79"
    subject.driver.devices[0].memory_util_ratio = 0.25
    subject.driver.devices[1].memory_util_ratio = 0.5  # of a device whose memory was not read just now
    families = {
        family.name: {one.labels["UUID"]: one.value for one in family.samples}
        for family in metrics.dcgm_families(subject)
    }
    assert families["DCGM_FI_DEV_FB_FREE"] == {"GPU-a": 50 * 1024.0}
    assert families["DCGM_FI_DEV_MEM_COPY_UTIL"] == {"GPU-a": 25.0}
    assert families["DCGM_FI_DEV_XID_ERRORS"] == {"GPU-b": 79.0}


def test_what_a_shipper_did_is_told(subject: metrics.Subject) -> None:
    shipper: Any = SimpleNamespace(
        shipped_total=3, refused_total=1, failed_total=2, lost_by_server_total=0, last_success_at=None, clock=None
    )
    found = samples(metrics.agent_families(replace(subject, shipper=shipper)))
    assert found["trueload_agent_shipped_batches_total"] == {"": 3.0}
    assert "trueload_agent_last_shipped_timestamp_seconds" not in found
