"""What the agent shows of itself: puts the exporter together from the parts of a running agent."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from collector import settings as names
from collector.agent import node_name
from warehouse.contract.errors import BadUseError

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from collector.agent import Agent
    from collector.driver import Driver
    from collector.exporter import Exporter
    from collector.recent import Recent
    from collector.ship import Shipper
    from collector.spool import Spool
    from warehouse.contract.settings import Settings

LOG = logging.getLogger("trueload.exporter")


def open_exporter(
    settings: Settings, agent: Agent, driver: Driver, recent: Recent, spool: Spool, shipper: Shipper | None
) -> Exporter | None:
    """Begin to serve; None when the settings say so, or the address is taken: the agent works without, and says it."""
    if not settings[names.EXPORTER_LISTEN]:
        return None
    from collector import exporter_metrics as metrics
    from collector.exporter import Exporter

    current_seconds = 2 * settings[names.GAP_INTERVALS] * settings[names.INTERVAL_SECONDS]

    def families() -> Iterator[Metric]:
        subject = metrics.Subject(
            node_name(settings),
            own_version(),
            settings[names.SOURCES],
            *(driver, recent, spool, dict(agent.health), tuple(agent.holdings)),
            rejected=Counter(agent.rejected),
            shipper=shipper,
            current_seconds=current_seconds,
            most_jobs=settings[names.EXPORTER_MOST_JOB_SERIES],
            steps=agent.steps,
        )
        yield from metrics.device_families(subject)
        yield from metrics.job_families(subject, time.time())
        yield from metrics.agent_families(subject)
        if settings[names.EXPORTER_DCGM_NAMES]:
            yield from metrics.dcgm_families(subject)

    def not_ready() -> str | None:
        if recent.last is None:
            return "nothing was read yet"
        silent_seconds = time.monotonic() - recent.last.monotonic
        if silent_seconds > current_seconds:
            return f"nothing was read for {silent_seconds:.0f} s"
        if agent.silent_seconds > current_seconds:
            return (
                f"no device has given a value for {agent.silent_seconds:.0f} s ({driver.last_failure}); "
                "a container that has lost its devices gets them back when it is started anew"
            )
        return None

    try:
        exporter = Exporter(settings[names.EXPORTER_LISTEN], families, not_ready)
    except BadUseError as error:
        LOG.warning("%s; the agent goes on without /metrics", error)
        return None
    LOG.info("metrics on %s, port %d", settings[names.EXPORTER_LISTEN], exporter.port)
    return exporter


def own_version() -> str:
    """Give the installed release, or ``0+unknown`` in a tree that is not installed."""
    try:
        return version("trueload")
    except PackageNotFoundError:
        return "0+unknown"
