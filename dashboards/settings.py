"""Settings of the pages, of ``trueload up`` and of the report."""

from __future__ import annotations

from warehouse.contract.settings import AnySetting, Setting

PAGES_PORT = Setting("pages", "port", 8501, "TCP port", "What Streamlit users expect.", 1, 65535)
PAGES_URL = Setting(
    "pages", "url", "", "URL", "Where people reach the pages, for links in mails; empty: mails hold no links."
)
CACHE_SECONDS = Setting(
    "pages",
    "cache_seconds",
    30.0,
    "seconds",
    "A page opened twice asks once; a wall display is at most half a minute behind.",
    0.0,
    3600.0,
)
CACHE_ENTRIES = Setting(
    "pages", "cache_entries", 64, "documents", "Bounds the memory of the pages, whoever looks at what.", 1, 4096
)
MAX_TABLE_ROWS = Setting(
    "pages",
    "max_table_rows",
    500,
    "rows",
    "More is not read by anybody and only makes the page slow; what is left out is said.",
    10,
    100_000,
)
READY_SECONDS = Setting(
    "up", "ready_seconds", 90.0, "seconds", "A loaded two-core machine needs up to 20 s per part.", 1.0, 3600.0
)
STOP_SECONDS = Setting(
    "up", "stop_seconds", 5.0, "seconds", "Every part writes its last batch within two seconds.", 0.1, 300.0
)
ONCE_SECONDS = Setting(
    "up",
    "once_seconds",
    12.0,
    "seconds",
    "One reading and one shipment of every agent at their default cadence of 10 s.",
    1.0,
    3600.0,
)
TOP_FINDINGS = Setting("up", "top_findings", 3, "rows", "As many as anybody acts on in a week.", 1, 50)
REPORT_TOP_ROWS = Setting(
    "report", "top_rows", 10, "rows", "Keeps the mail on three screens and under 90 kB, where Gmail would cut.", 1, 50
)
REPORT_TOP_FINDINGS = Setting("report", "top_findings", 3, "findings", "More than three asks are read as none.", 1, 20)

SETTINGS: tuple[AnySetting, ...] = (
    PAGES_PORT,
    PAGES_URL,
    CACHE_SECONDS,
    CACHE_ENTRIES,
    MAX_TABLE_ROWS,
    READY_SECONDS,
    STOP_SECONDS,
    ONCE_SECONDS,
    TOP_FINDINGS,
    REPORT_TOP_ROWS,
    REPORT_TOP_FINDINGS,
)
