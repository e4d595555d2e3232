"""A dcgm-exporter on this node: the only way to hardware counters before Hopper, where DCGM holds them.

Its text is scraped every few seconds and each value stands until the next scrape, as it does for Prometheus; the
exporter itself renews its values every 30 s by default. Labels about workloads are not looked at: whose a device is,
the agent finds out itself.
"""

from __future__ import annotations

import http.client
import math
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from collector.source import Reading, Source, SourceContext
from warehouse.contract.errors import BadUseError
from warehouse.contract.metrics import BY_NAME, is_possible
from warehouse.contract.settings import Setting

if TYPE_CHECKING:
    from collector.driver import Driver

DCGM_URL = Setting(
    "agent", "dcgm_url", "http://127.0.0.1:9400/metrics", "URL", "Where dcgm-exporter listens by default."
)
SCRAPE_SECONDS = Setting(
    "agent",
    "dcgm_scrape_seconds",
    10.0,
    "seconds",
    "A row of the agent; more often would only read the exporter's own 30 s again.",
    1.0,
    300.0,
)
TIMEOUT_SECONDS: Final = 0.4
"""A scrape on the same machine takes milliseconds; it has to end within the agent's patience with a source."""

ANSWER_BYTES_MAX: Final = 16 * 1024**2
STALE_SCRAPES: Final = 2.5
"""After so many scrapes without an answer the last values stand no more."""

BLANK: Final = 140_737_488_355_328.0
"""From here on a number is one of DCGM's markers for "no value" (dcgm_structs.h, ``DCGM_FP64_BLANK``)."""

FIELDS: Final = {
    "DCGM_FI_DEV_GPU_UTIL": ("driver_util_ratio", 0.01),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("engine_active_ratio", 1.0),
    "DCGM_FI_PROF_SM_ACTIVE": ("sm_active_ratio", 1.0),
    "DCGM_FI_PROF_SM_OCCUPANCY": ("sm_occupancy_ratio", 1.0),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("tensor_active_ratio", 1.0),
    "DCGM_FI_PROF_DRAM_ACTIVE": ("dram_active_ratio", 1.0),
    "DCGM_FI_PROF_PIPE_FP64_ACTIVE": ("fp64_active_ratio", 1.0),
    "DCGM_FI_PROF_PIPE_FP32_ACTIVE": ("fp32_active_ratio", 1.0),
    "DCGM_FI_PROF_PIPE_FP16_ACTIVE": ("fp16_active_ratio", 1.0),
    "DCGM_FI_DEV_FB_USED": ("memory_used_bytes", 1024.0**2),
    "DCGM_FI_DEV_POWER_USAGE": ("power_watts", 1.0),
    "DCGM_FI_DEV_GPU_TEMP": ("temperature_celsius", 1.0),
    "DCGM_FI_DEV_SM_CLOCK": ("sm_clock_hertz", 1e6),
    "DCGM_FI_DEV_MEM_CLOCK": ("memory_clock_hertz", 1e6),
}
"""The exporter's names, ours, and the scale from its unit to the base unit."""

Key = tuple[str, str]


class DcgmReader:
    """Scrapes one exporter."""

    def __init__(
        self, driver: Driver, url: str, scrape_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Scrape ``url``, at most once in ``scrape_seconds`` of a clock that only goes forward."""
        self.rejected: Counter[str] = Counter()
        """Values that cannot be true and lines that cannot be read, by the exporter's name."""
        self._driver = driver
        self._url = url
        self._scrape_seconds = scrape_seconds
        self._clock = clock
        self._next_at = -math.inf
        self._answered_at = -math.inf
        self._values: dict[Key, dict[str, float]] = {}
        # It is on this node: a proxy of the environment is for the server.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def read(self) -> list[Reading]:
        """Give what stands now, of devices that the driver knows; nothing once the exporter is silent for long.

        Raises:
            OSError: the exporter does not answer, and what it said last is too old.
            HTTPException: the same of one that does not speak HTTP.

        """
        now = self._clock()
        if now >= self._next_at:
            self._next_at = now + self._scrape_seconds
            try:
                self._values = self._scrape()
                self._answered_at = now
            except (OSError, http.client.HTTPException):
                if now - self._answered_at > STALE_SCRAPES * self._scrape_seconds:
                    self._values = {}
                    raise
        known = {(device.uuid, ""): device.uuid for device in self._driver.devices if device.parent_uuid is None}
        known |= {
            (device.parent_uuid, str(device.gpu_instance_id)): device.uuid
            for device in self._driver.devices
            if device.parent_uuid is not None
        }
        return [Reading(known[key], values) for key, values in self._values.items() if key in known]

    def close(self) -> None:
        """Nothing was opened."""

    def _scrape(self) -> dict[Key, dict[str, float]]:
        with self._opener.open(self._url, timeout=TIMEOUT_SECONDS) as answer:
            text = answer.read(ANSWER_BYTES_MAX).decode(errors="replace")
        found: dict[Key, dict[str, float]] = {}
        for field, labels, value in self._samples(text):
            name, scale = FIELDS[field]
            # Rounded before it is judged: 100 % times 0.01 must not come out above 1.
            scaled = round(value * scale, 9)
            if abs(value) >= BLANK or not is_possible(BY_NAME[name], scaled, self._scrape_seconds):
                self.rejected[field] += 1
                self._driver.count(field, "impossible or a marker for no value")
                continue
            found.setdefault((labels.get("UUID", ""), labels.get("GPU_I_ID", "")), {})[name] = scaled
        return found

    def _samples(self, text: str) -> Iterator[tuple[str, dict[str, str], float]]:
        """Give the samples of the fields that are known; a line that cannot be read costs one line."""
        from prometheus_client.parser import text_string_to_metric_families

        for line in text.splitlines():
            field = line.partition("{")[0].strip()
            if field not in FIELDS:
                continue
            try:
                samples = [sample for family in text_string_to_metric_families(line) for sample in family.samples]
            except (ValueError, KeyError, IndexError):
                self.rejected[field] += 1
                self._driver.count(field, "a line that cannot be read")
                continue
            for sample in samples:
                yield field, sample.labels, sample.value


def _open(context: SourceContext) -> DcgmReader:
    url = context.settings[DCGM_URL]
    if not url.startswith(("http://", "https://")):
        raise BadUseError(f"{DCGM_URL.name}: {url!r} is no address of a web server (http://HOST:PORT/metrics)")
    return DcgmReader(context.driver, url, context.settings[SCRAPE_SECONDS])


SOURCE = Source(
    name="dcgm",
    description="What a dcgm-exporter on this node says, where DCGM holds the counters (before Hopper).",
    metrics=tuple(name for name, _ in FIELDS.values()),
    open=_open,
    settings=(DCGM_URL, SCRAPE_SECONDS),
)
