"""The front door: one command, ``connect()`` for notebooks, ``step()`` for training jobs.

This module is the composition root: it alone knows all rooms, and hands the store its questions and every command
its settings. Jobs import it for :func:`step`: so by itself it loads nothing but the standard library.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collector.tracer.steps import step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dashboards.notebook import Connection
    from warehouse.client import Answer, Document, Parameters
    from warehouse.contract.benchmark import Benchmark
    from warehouse.contract.settings import AnySetting, Settings

__all__ = ("connect", "step")
"""What notebooks and jobs may use."""

COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("dashboards.commands", "Start everything here: server, pages and, without a GPU, a demo cluster."),
    "pages": ("dashboards.commands", "The pages, before a server elsewhere or of this machine."),
    "import": ("warehouse.commands", "Read foreign history into the store; importing twice changes nothing."),
    "waste": ("analysis.commands", "Where the allocated GPU time went, ranked by idle GPU-hours."),
    "families": ("analysis.commands", "Jobs that are the same work repeated."),
    "recommend": ("analysis.commands", "Which change would give GPU time back, with a range."),
    "recommendations": ("analysis.outcome_commands", "Advice that was given, and what became of it."),
    "job": ("analysis.commands", "What one job did with its GPUs."),
    "report": ("dashboards.commands", "The weekly report."),
    "trace": ("analysis.trace_commands", "What a profiler timeline says."),
    "gpus": ("analysis.gpu_commands", "What is known of GPU models: peaks, memory, MIG profiles, prices."),
    "analyze": ("analysis.commands", "Bring roll-ups and judgement up to date."),
    "serve": ("warehouse.commands", "The server: owns the store, takes batches, answers questions."),
    "backup": ("warehouse.backup_commands", "Copy the store into a folder, opened and counted."),
    "restore": ("warehouse.backup_commands", "Make a store of a backup."),
    "verify": ("warehouse.backup_commands", "Read everything and hold the counts against each other."),
    "purge": ("warehouse.purge_commands", "Delete a person's or project's data for good."),
    "sql": ("warehouse.sql_commands", "Free questions in SQL, read-only, for operators."),
    "token": ("warehouse.token_commands", "Tokens of people and agents: new, list, rotate, revoke."),
    "agent": ("collector.commands", "The node agent."),
    "doctor": ("collector.commands", "What can be read, mapped and traced on this node, and why not."),
    "jobs": ("collector.jobs_commands", "What a scheduler's accounting knows of jobs: once, or for ever."),
    "demo": ("collector.commands", "Parts of the demo cluster, as `trueload up --demo` starts them."),
    "bench": ("analysis.commands", "The benchmarks."),
    "settings": ("warehouse.commands", "Every setting with its value and origin."),
    "schema": ("warehouse.schema_commands", "Tables and columns of the store."),
}
"""Every command with the module that holds it (as ``<name>_command``) and its line in the help."""

HIDDEN = {"demo"}
SETTING_MODULES = (
    "warehouse.settings",
    "warehouse.server_settings",
    "warehouse.contract.identity",
    "collector.settings",
    "collector.accounting",
    "analysis.settings",
    "analysis.repetition",
    "analysis.recommend",
    "analysis.outcome",
    "dashboards.settings",
    "dashboards.mail_settings",
    "dashboards.sign_in_settings",
)
"""Modules with a tuple ``SETTINGS``; each room's own, and those of its plug-ins, gathered by the room."""


BENCHMARK_PACKAGES = ("analysis.benchmarks", "collector.benchmarks")


def own_version() -> str:
    """Give the installed version, or ``0+unknown`` when run from a tree that is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("trueload")
    except PackageNotFoundError:
        return "0+unknown"


def registry() -> tuple[AnySetting, ...]:
    """Give every setting of every room, in order of name."""
    found: list[AnySetting] = []
    for name in SETTING_MODULES:
        found += importlib.import_module(name).SETTINGS
    return tuple(sorted(found, key=lambda setting: setting.name))


def load_settings(path: Path | None = None) -> Settings:
    """Read the settings: the file named, or in $TRUELOAD_CONFIG, or ./trueload.toml; then the environment."""
    from warehouse.contract import settings as contract_settings

    chosen = path or _default_settings_file()
    return contract_settings.load(registry(), chosen, os.environ)


def _default_settings_file() -> Path | None:
    named = os.environ.get("TRUELOAD_CONFIG")
    if named:
        return Path(named)
    here = Path("trueload.toml")
    return here if here.exists() else None


def answers() -> Mapping[str, Answer]:
    """Give the questions that the data can be asked."""
    from analysis.pipeline import ANSWERS

    return ANSWERS


def benchmarks() -> dict[str, Benchmark]:
    """Give every benchmark of every room, by name."""
    from warehouse.contract.benchmark import Benchmark
    from warehouse.contract.errors import PluginError
    from warehouse.contract.plugins import scan

    found: dict[str, Benchmark] = {}
    for package in BENCHMARK_PACKAGES:
        for name, benchmark in scan(package, "BENCHMARK", Benchmark).items():
            if name in found:
                raise PluginError(f"{package}: there is another benchmark {name!r}")
            found[name] = benchmark
    return dict(sorted(found.items()))


def connect(data: str | Path = "trueload-data", *, token_file: str | Path | None = None) -> Connection:
    """Reach the data of a directory (through its server if one runs) or of a server: for notebooks and scripts.

    >>> tl = connect("trueload-data")  # doctest: +SKIP
    >>> tl.waste(by="user")  # doctest: +SKIP

    A server elsewhere (``https://…``) wants a token (`trueload token new`), in a file named here or by the variable
    TRUELOAD_TOKEN_FILE.

    Raises:
        BadUseError: an address without a token.
        StoreError: there is no store.
        StoreBusyError: another process owns the store and serves nothing.

    """
    from dashboards.notebook import Connection
    from warehouse.client import client_of, open_client
    from warehouse.contract.errors import BadUseError

    if str(data).startswith(("http://", "https://")):
        named = token_file or os.environ.get("TRUELOAD_TOKEN_FILE")
        if not named:
            raise BadUseError(f"{data}: needs a token: give token_file, or set TRUELOAD_TOKEN_FILE to the file's path")
        return Connection(client_of(str(data), Path(named)))
    return Connection(open_client(Path(data), answers(), load_settings()))


def ask_engine(data: Path, engine: str, question: str, parameters: Parameters, settings: Settings) -> Document:
    """Have an engine answer from a directory's lake; see ``warehouse.engines``."""
    from warehouse import engines

    return engines.ask(data, engines.Engine(engine), question, parameters, answers(), settings)


def main() -> None:
    """Run the command line."""
    from trueload_cli import run

    run()


def __getattr__(name: str) -> Any:
    """Give ``cli``, the command itself, which is made only when it is asked for."""
    if name == "cli":
        import trueload_cli

        return trueload_cli.cli
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if __name__ == "__main__":
    main()
