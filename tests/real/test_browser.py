"""A real headless browser opens every page of the demo and sees the numbers that the command line prints.

Numbers are compared over the last complete week: the demo is alive, and what it measures meanwhile lies outside.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Dialog, Page, expect, sync_playwright

from dashboards import units
from dashboards.page import pages

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS = 90_000
HOSTILE = '<script>alert("x")</script> **bold** [x](http://evil.example) $x$ :smile: <b>b</b>'
PARTS = {
    "Allocated": "allocated",
    "Used": "used",
    "Held idle": "held_idle",
    "Unknown": "unknown",
    "No process": "no_process",
    "With process": "with_process",
    "Gaps": "gaps",
}
CAPACITY_PARTS = {"Capacity": "capacity", "Unallocated": "unallocated", "Down": "down", "Unreported": "unreported"}


@dataclass(frozen=True)
class Demo:
    """A running `trueload up --demo`."""

    data: Path
    url: str

    def say(self, *arguments: str) -> Any:
        """Give the document that a command prints with --json."""
        ran = subprocess.run(
            [sys.executable, "-m", "trueload", *arguments, "--data", str(self.data)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)


def _free_ports(count: int) -> list[str]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [str(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


@pytest.fixture(scope="module")
def demo(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """Start everything as a person would, wait until it says that it is ready, and end it as a person would."""
    data = tmp_path_factory.mktemp("demo")
    port, pages_port = _free_ports(2)
    child = subprocess.Popen(
        [sys.executable, "-m", "trueload", "up", "--demo", "--data", data, "--port", port, "--pages-port", pages_port],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TRUELOAD_UP__READY_SECONDS": "240"},
    )
    assert child.stdout is not None
    with child.stdout as said:
        heard = []
        for line in said:
            heard.append(line)
            if line.startswith("Ctrl-C"):
                break
        else:
            pytest.fail(f"trueload up ended with {child.wait()} after saying: {''.join(heard)}")
        assert "Top findings" in "".join(heard)
        yield Demo(data, f"http://127.0.0.1:{pages_port}")
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 0
    assert not (data / "server.json").exists()


@pytest.fixture(scope="module")
def week(demo: Demo) -> str:
    """Give the last complete week of the demo, which no longer changes."""
    return str(demo.say("report", "weekly", "--format", "json")["week"])


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        yield launched
        launched.close()


@pytest.fixture
def tab(browser: Browser) -> Iterator[Page]:
    opened = browser.new_page(viewport={"width": 1280, "height": 1600})
    opened.set_default_timeout(PATIENCE_MS)
    yield opened
    opened.close()


def _await_end(tab: Page) -> None:
    """Wait until the script of a page that has begun to draw has run to its end."""
    expect(tab.locator("[data-testid=stApp][data-test-script-state=notRunning]")).to_be_attached(timeout=PATIENCE_MS)


def _open(tab: Page, address: str) -> None:
    """Open a page and wait until its script has run to the end without an exception."""
    tab.goto(address)
    expect(tab.locator("h1")).to_be_visible(timeout=PATIENCE_MS)
    _await_end(tab)
    expect(tab.get_by_role("dialog")).to_have_count(0)
    expect(tab.get_by_test_id("stException")).to_have_count(0)
    expect(tab.get_by_test_id("stAlertContentError")).to_have_count(0)


def _metrics(tab: Page) -> dict[str, str]:
    found = tab.get_by_test_id("stMetric").all()
    labels = [one.get_by_test_id("stMetricLabel").inner_text().strip() for one in found]
    values = [one.get_by_test_id("stMetricValue").inner_text().strip() for one in found]
    return dict(zip(labels, values, strict=True))


def _expect_metrics(tab: Page, expected: dict[str, str]) -> None:
    """Wait until the page shows these metrics: what a script sent is drawn a moment after it has ended."""
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while not expected.items() <= (shown := _metrics(tab)).items() and time.monotonic() < deadline:
        tab.wait_for_timeout(200)
    assert {label: shown.get(label) for label in expected} == expected


def _shown(document: Any, parts: dict[str, str]) -> dict[str, str]:
    return {label: units.gpu_hours(document["gpu_seconds"][key], unit=False) for label, key in parts.items()}


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_every_page_opens_by_its_address(demo: Demo, tab: Page, page: Any) -> None:
    _open(tab, f"{demo.url}/{page.name}")
    assert tab.locator("h1").inner_text() == page.title


def test_the_menu_leads_to_every_page(demo: Demo, tab: Page) -> None:
    _open(tab, demo.url)
    for page in pages():
        tab.get_by_test_id("stSidebarNav").get_by_role("link", name=page.title, exact=True).click()
        expect(tab.locator("h1")).to_have_text(page.title)


def test_the_fleet_page_shows_the_figures_of_the_command_line(demo: Demo, tab: Page, week: str) -> None:
    document = demo.say("waste", "--week", week, "--json")
    _open(tab, f"{demo.url}/fleet?week={week}")
    expected = _shown(document, {**PARTS, **CAPACITY_PARTS})
    _expect_metrics(tab, {**expected, "Used ratio": units.percent(document["used_ratio"])})
    expect(tab.locator(".js-plotly-plot .bars").first).to_be_attached(timeout=PATIENCE_MS)


def test_the_waste_page_shows_the_figures_of_the_command_line(demo: Demo, tab: Page, week: str) -> None:
    document = demo.say("waste", "--by", "account", "--week", week, "--json")
    _open(tab, f"{demo.url}/waste?by=account&week={week}")
    _expect_metrics(tab, _shown(document, PARTS))
    bars = tab.locator(".js-plotly-plot .ytick")
    expect(bars).to_have_text([row["key"] for row in document["rows"]], timeout=PATIENCE_MS)


def test_another_rung_gives_other_figures_and_says_so(demo: Demo, tab: Page, week: str) -> None:
    document = demo.say("waste", "--week", week, "--rung", "driver_util", "--json")
    _open(tab, f"{demo.url}/waste?week={week}&rung=driver_util")
    _expect_metrics(tab, _shown(document, {"Used": "used"}))
    expect(tab.get_by_text("busy = driver utilization")).to_be_visible()


def test_the_families_page_counts_as_the_command_line_does(demo: Demo, tab: Page, week: str) -> None:
    document = demo.say("families", "--week", week, "--json")
    _open(tab, f"{demo.url}/families?week={week}")
    expected = {
        "Families": units.count(len(document["families"])),
        "Jobs in no family": units.count(len(document["ungrouped"])),
    }
    _expect_metrics(tab, expected)


def test_the_recommendations_page_counts_as_the_command_line_does(demo: Demo, tab: Page, week: str) -> None:
    document = demo.say("recommend", "--week", week, "--json")
    _open(tab, f"{demo.url}/recommendations?week={week}")
    expected = {
        "Recommendations": units.count(len(document["recommendations"])),
        "Refusals": units.count(len(document["refusals"])),
    }
    _expect_metrics(tab, expected)
    first = document["recommendations"][0]["saving_gpu_seconds"]
    said = units.bounds(first["low"], first["likely"], first["high"])
    expect(tab.get_by_test_id("stExpander").first).to_contain_text(said)


def test_a_deep_link_opens_a_job_with_the_figures_of_the_command_line(demo: Demo, tab: Page, week: str) -> None:
    rows = demo.say("waste", "--by", "job", "--week", week, "--json")["rows"]
    key = next(row["key"] for row in rows if row["state"] == "completed" and row["name"] == "ppo-humanoid")
    document = demo.say("job", key, "--json")
    _open(tab, f"{demo.url}/job?id={quote(key, safe='')}")
    expect(tab.get_by_role("heading", name=key)).to_be_visible()
    _expect_metrics(tab, _shown(document, PARTS))
    inflation = document["attempts"][0]["inflation_ratio"]
    expect(tab.get_by_test_id("stAlert").first).to_contain_text(f"inflated by {units.points(inflation)}")
    expect(tab.locator(".js-plotly-plot .scatterlayer .trace").first).to_be_attached(timeout=PATIENCE_MS)


def test_a_week_chosen_on_one_page_holds_on_the_next_and_in_the_address(demo: Demo, tab: Page, week: str) -> None:
    _open(tab, f"{demo.url}/fleet?week={week}")
    tab.get_by_test_id("stSidebarNav").get_by_role("link", name="Waste", exact=True).click()
    expect(tab.locator("h1")).to_have_text("Waste")
    _expect_metrics(tab, _shown(demo.say("waste", "--week", week, "--json"), PARTS))
    assert f"week={week}" in tab.url


def test_an_unknown_job_is_said_in_words(demo: Demo, tab: Page) -> None:
    _open(tab, f"{demo.url}/job?id=nobody%2F1%230")
    expect(tab.get_by_test_id("stAlert")).to_contain_text("nobody/1#0")


def test_what_users_wrote_is_text_on_every_page(demo: Demo, tab: Page, tmp_path: Path) -> None:
    file = tmp_path / "jobs.csv"
    job = {
        "job_id": "666",
        "cluster": "demo",
        "gpu_count": "4",
        "start_at": "2020-01-06T00:00:00Z",
        "end_at": "2020-01-07T00:00:00Z",
        "name": HOSTILE,
        "user": HOSTILE,
        "account": HOSTILE,
        "driver_util_ratio": "0.5",
    }
    with file.open("w", encoding="utf-8", newline="") as opened:
        writer = csv.DictWriter(opened, list(job))
        writer.writeheader()
        writer.writerow(job)
    ran = subprocess.run(
        [sys.executable, "-m", "trueload", "import", "jobs_csv", str(file), "--data", str(demo.data)], check=False
    )
    assert ran.returncode == 0
    dialogs: list[str] = []

    def note(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    tab.on("dialog", note)
    _open(tab, f"{demo.url}/job?id=demo%2F666%230&week=2020-W02")
    expect(tab.get_by_text(HOSTILE.split("http", maxsplit=1)[0]).first).to_be_visible()
    _open(tab, f"{demo.url}/waste?by=account&week=2020-W02")
    expect(tab.locator(".js-plotly-plot .ytick").first).to_contain_text('<script>alert("x")</script>')
    for page in pages():
        _open(tab, f"{demo.url}/{page.name}?week=2020-W02")
        assert tab.locator("a[href*='evil.example']").count() == 0
        assert tab.get_by_test_id("stMain").locator("script").count() == 0
    assert dialogs == []
