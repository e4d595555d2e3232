"""What ``trueload up`` starts, in which order: the server, the demo cluster, the pages; and what it says meanwhile."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from collector.simulate import demo
from collector.simulate.scenario import load_scenario
from dashboards import serving
from dashboards.settings import ONCE_SECONDS, PAGES_PORT, READY_SECONDS, STOP_SECONDS
from dashboards.supervise import Part, Stop, Supervisor, answers_ok, require_free, some_free_port

if TYPE_CHECKING:
    from warehouse.client import Document
    from warehouse.contract.settings import Settings

HOST = "127.0.0.1"
"""Loopback: what one person starts on the own machine is for nobody else."""
AGENT_TOKEN = Path("tokens") / "agent.token"
DRIVER_SIGNS = (Path("/proc/driver/nvidia/version"), Path("/dev/dxg"))
"""What a loaded NVIDIA driver leaves: on Linux, and in Windows' subsystem for it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to start. ``pages_port`` None: no pages; ``port`` 0: any free one.

    ``beside``: a server owns the directory already, and its agents are its own; only the pages are missing.
    """

    data: Path
    with_demo: bool
    with_agent: bool
    port: int
    pages_port: int | None
    beside: bool = False


def has_driver() -> bool:
    """Say whether this machine has an NVIDIA driver."""
    return any(sign.exists() for sign in DRIVER_SIGNS)


def choose(data: Path, *, demo_wanted: bool | None, driver: bool) -> tuple[bool, bool]:
    """Decide on demo and agent when the person did not: (demo, agent).

    A directory that holds data of a real site never gets a demo unasked; one that once held a demo goes on with it.
    """
    if demo_wanted is not None:
        return demo_wanted, driver and not demo_wanted
    if (data / "demo").exists():
        return True, False
    is_new = not data.exists() or not any(data.glob("*.duckdb"))
    return (not driver and is_new), driver


def run(
    plan: Plan,
    settings: Settings,
    say: Callable[[str], None],
    answer: Callable[[], Document],
    show: Callable[[Document, str | None], None],
) -> None:
    """Start the parts, ask for the findings, show them, and stay until asked to stop (without pages: come back).

    ``say`` reports progress, ``answer`` asks the server for its recommendations, ``show`` prints them with the address
    of the pages (None without pages).

    Raises:
        BadUseError: a port is taken.
        PartDiedError: a part ended by itself or never got ready; the others have been ended.

    """
    port = plan.port or some_free_port(HOST)
    if not plan.beside:
        require_free(HOST, port, "--port", "the setting server.port")
    if plan.pages_port is not None:
        require_free(HOST, plan.pages_port, "--pages-port", f"the setting {PAGES_PORT.name}")
    stop = Stop()
    ready, end = settings[READY_SECONDS], settings[STOP_SECONDS]
    with stop.on_signals(), Supervisor(plan.data / "logs", stop, ready, end) as supervisor:
        if plan.beside:
            say(f"asking the server that owns {plan.data}")
        else:
            say("starting the server")
            _start(supervisor, _server(plan, port))
        pages = None if plan.pages_port is None else _pages(plan, plan.pages_port, settings)
        if pages is not None:
            supervisor.start(pages)  # it loads while the demo tells its past
        if not plan.beside:
            _feed(supervisor, plan, port, settings, say)
        if pages is not None:
            say("waiting for the pages")
            supervisor.await_ready(pages)
        if stop.asked.is_set():
            return
        say("judging")
        show(answer(), None if plan.pages_port is None else f"http://{HOST}:{plan.pages_port}")
        if pages is not None:
            supervisor.watch()
            say("stopping")


def _feed(supervisor: Supervisor, plan: Plan, port: int, settings: Settings, say: Callable[[str], None]) -> None:
    """Start what measures; without pages, let it do so for a while."""
    began = time.monotonic()
    if plan.with_agent:
        say("starting the agent of this machine")
        supervisor.start(_agent(plan, port))
    if plan.with_demo:
        _start_demo(supervisor, plan, port, say)
    if plan.pages_port is None:
        left = began + settings[ONCE_SECONDS] - time.monotonic()
        say(f"collecting for {max(left, 0.0):.0f} s more")
        supervisor.watch(left)


def _start(supervisor: Supervisor, part: Part) -> None:
    supervisor.start(part)
    supervisor.await_ready(part)


def _server(plan: Plan, port: int) -> Part:
    arguments = (
        sys.executable,
        "-m",
        "trueload",
        "serve",
        "--data",
        str(plan.data),
        "--host",
        HOST,
        "--port",
        str(port),
    )
    return Part("server", arguments, lambda: answers_ok(f"http://{HOST}:{port}/healthz"))


def _pages(plan: Plan, port: int, settings: Settings) -> Part:
    return Part(
        "pages",
        serving.command(HOST, port, settings),
        lambda: answers_ok(f"http://{HOST}:{port}/_stcore/health"),
        serving.environment(serving.Source(plan.data), settings),
    )


def _agent(plan: Plan, port: int) -> Part:
    environment = {
        "TRUELOAD_AGENT__SERVER_URL": f"http://{HOST}:{port}",
        "TRUELOAD_AGENT__TOKEN_FILE": str(plan.data / AGENT_TOKEN),
        "TRUELOAD_AGENT__SPOOL_DIR": str(plan.data / "spool"),
    }
    return Part("agent", (sys.executable, "-m", "trueload", "agent", "run"), environment=environment)


def _start_demo(supervisor: Supervisor, plan: Plan, port: int, say: Callable[[str], None]) -> None:
    """Start the demo cluster: the player, then its agents, then tell the past to its end."""
    say("starting the demo cluster")
    scenario = load_scenario()
    url = f"http://{HOST}:{port}"
    player, *others = demo.children(plan.data, url, plan.data / AGENT_TOKEN, scenario)
    first = _part(player, lambda: demo.is_playing(plan.data, scenario))
    _start(supervisor, first)
    for child in others:
        if child.ends:
            say("telling the past two weeks of the demo cluster")
            supervisor.run(_part(child))
        else:
            supervisor.start(_part(child))


def _part(child: demo.Child, is_ready: Callable[[], bool] = lambda: True) -> Part:
    return Part(child.name, child.arguments, is_ready, child.environment)
