"""Puts the agent together from its settings: driver, sources, owners, spool and shipper."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from collector import settings as names
from collector.agent import Agent, chosen_sources, node_name
from collector.clock import ClockWatch
from collector.driver import Driver
from collector.inventory import Inventory
from collector.poster import Endpoint, Trust
from collector.publish import open_exporter
from collector.recent import Recent
from collector.registry import job_sources
from collector.ship import Shipper
from collector.source import SourceContext
from collector.spool import Bounds, Spool
from collector.sweep import SourceHealth, sweep
from warehouse.contract.errors import BadUseError

if TYPE_CHECKING:
    from collector.aggregate import Moment
    from collector.job_source import JobReader
    from collector.source import Reading
    from warehouse.contract.settings import Settings

LOG = logging.getLogger("trueload.agent")
NODE_TOKEN_FILE: Final = "node.token"  # noqa: S105 - the name of a file
"""Where an agent that enrols keeps its own token, beside its batches, unless a setting says otherwise."""

FIRST_PATIENCE_SECONDS: Final = 10.0
"""How long a single look waits for a device: nobody else is kept waiting by it."""


def run_agent(settings: Settings, stop: threading.Event) -> None:
    """Measure until told to stop; then spool what was collected, try once to send it, and return.

    Raises:
        BadUseError: a setting names something that does not exist, or the spool cannot be used.

    """
    folder = Path(settings[names.SPOOL_DIR])
    driver = Driver(
        settings[names.NVML_LIBRARY],
        reprobe_seconds=settings[names.REPROBE_SECONDS],
        patience_seconds=settings[names.CALL_PATIENCE_SECONDS],
    )
    jobs = _open_jobs(settings)
    with open_spool(settings, folder, node_name(settings)) as spool:
        recent = Recent(
            interval_seconds=settings[names.INTERVAL_SECONDS], history_seconds=settings[names.DETAIL_SECONDS]
        )
        shipper = None
        if settings[names.TOKEN_FILE] or settings[names.JOIN_TOKEN_FILE]:
            shipper = Shipper(spool, endpoint(settings), lambda ask: recent.series(ask.device_uuid, ask.since_at))
        if shipper is None:
            LOG.warning("%s is not set: batches are spooled in %s and not sent", names.TOKEN_FILE.name, folder)
        else:
            shipper.start()
        inventory = Inventory(folder / "inventory.json", settings[names.CLUSTER], node_name(settings))
        agent = Agent(settings, driver, spool, inventory, jobs, (lambda: None) if shipper is None else shipper.wake)
        clock = ClockWatch(settings[names.GAP_INTERVALS] * settings[names.INTERVAL_SECONDS])

        def note(moment: Moment, found: Mapping[str, Sequence[Reading]]) -> None:
            clock.look(moment)
            recent.add(moment, found)

        agent.on_readings = note
        exporter = open_exporter(settings, agent, driver, recent, spool, shipper)
        try:
            agent.run(stop)
        finally:
            if exporter is not None:
                exporter.close()
            if shipper is not None:
                shipper.stop(settings[names.STOP_SECONDS])
            _report(agent, driver, spool)


def read_once(settings: Settings) -> dict[str, object]:
    """Read every source over one interval, without keeping or sending anything; give a document of it.

    Raises:
        TrueloadError: the driver cannot be opened.

    """
    driver = Driver(settings[names.NVML_LIBRARY], patience_seconds=FIRST_PATIENCE_SECONDS)
    driver.open()
    try:
        context = SourceContext(driver, settings)
        readers = {source.name: source.open(context) for source in chosen_sources(settings)}
        health = {name: SourceHealth() for name in readers}
        sweep(driver, readers, health, LOG.warning)
        time.sleep(settings[names.INTERVAL_SECONDS])
        found: dict[str, dict[str, dict[str, float]]] = {device.uuid: {} for device in driver.devices}
        for name, readings in sweep(driver, readers, health, LOG.warning).items():
            for reading in readings:
                found.setdefault(reading.device_uuid, {})[name] = dict(reading.values)
        for reader in readers.values():
            reader.close()
        devices = [
            {"device_uuid": device.uuid, "gpu_model": device.gpu_model, "readings": found[device.uuid]}
            for device in driver.devices
        ]
    finally:
        driver.close()
    return {"node": node_name(settings), "devices": devices}


def open_spool(settings: Settings, folder: Path, sender: str) -> Spool:
    """Open a sender's spool within the bounds of the settings."""
    bounds = Bounds(
        max_bytes=settings[names.SPOOL_MAX_BYTES],
        max_age_seconds=settings[names.SPOOL_MAX_AGE_SECONDS],
        kept_max_bytes=settings[names.SPOOL_KEPT_MAX_BYTES],
        kept_max_age_seconds=settings[names.SPOOL_KEPT_MAX_AGE_SECONDS],
        memory_max_bytes=settings[names.SPOOL_MEMORY_MAX_BYTES],
    )
    return Spool(folder, sender, bounds)


def endpoint(settings: Settings) -> Endpoint:
    """Give where batches go."""
    return Endpoint(
        url=settings[names.SERVER_URL],
        token_file=Path(settings[names.TOKEN_FILE] or Path(settings[names.SPOOL_DIR]) / NODE_TOKEN_FILE),
        timeout_seconds=settings[names.POST_TIMEOUT_SECONDS],
        longest_wait_seconds=settings[names.LONGEST_WAIT_SECONDS],
        trust=Trust(*(_path(settings[n]) for n in (names.TLS_CA_FILE, names.TLS_CERTIFICATE_FILE, names.TLS_KEY_FILE))),
        join_token_file=_path(settings[names.JOIN_TOKEN_FILE]),
        node=node_name(settings),
        token_max_age_seconds=settings[names.TOKEN_MAX_AGE_SECONDS],
    )


def _path(text: str) -> Path | None:
    return Path(text) if text else None


def _open_jobs(settings: Settings) -> JobReader | None:
    name = settings[names.JOB_SOURCE]
    if not name:
        return None
    known = job_sources()
    if name not in known:
        raise BadUseError(f"{names.JOB_SOURCE.name}: no job source {name!r}; there are {', '.join(known)}")
    return known[name].open(settings)


def _report(agent: Agent, driver: Driver, spool: Spool) -> None:
    for name, health in agent.health.items():
        mean_seconds = health.seconds / health.reads if health.reads else 0.0
        LOG.info(
            *("source %s: %d reads, mean %.4f s, slowest %.4f s", name, health.reads, mean_seconds),
            health.slowest_seconds,
        )
        for reason, count in health.failures.items():
            LOG.warning("source %s: %d reads failed: %s", name, count, reason)
    for (call, reason), count in driver.failures.items():
        LOG.warning("%s: %d times %s", call, count, reason)
    if spool.dropped_total or agent.lost_batches_total:
        LOG.warning(
            "%d batches dropped by the bounds of the spool, %d not written",
            spool.dropped_total,
            agent.lost_batches_total,
        )
