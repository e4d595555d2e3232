"""Settings of the server's interface: what it shows, to whom, and for how long it works on an answer."""

from __future__ import annotations

from warehouse.contract.clocks import CLOCK_OFF_SECONDS
from warehouse.contract.settings import AnySetting, Setting

ANSWER_SECONDS = Setting(
    "server",
    "answer_seconds",
    100.0,
    "seconds",
    "Longer work is stopped; a client waits 120 s, so that it still hears why.",
    0.1,
    3600.0,
)
ANSWER_AGE_SECONDS = Setting(
    "server",
    "answer_age_seconds",
    30.0,
    "seconds",
    "As long as pages keep answers. While batches come in an answer is at most this old, and at most ten times as old "
    "as working it out takes; 0: each group of batches makes all answers anew.",
    0.0,
    3600.0,
)
LOG_FORMAT = Setting("server", "log_format", "text", "text or json", "People read text; collectors of logs want json.")
CERTIFICATE_FILE = Setting(
    "server", "certificate_file", "", "PEM file", "With a key the server speaks TLS; none on loopback."
)
KEY_FILE = Setting("server", "key_file", "", "PEM file", "The private key of the certificate.")
CLIENT_CA_FILE = Setting(
    "server",
    "client_ca_file",
    "",
    "PEM file",
    "A certificate that it signed stands for the agent's token of the node in its common name.",
)
SQL_OPEN = Setting(
    "sql",
    "over_http",
    False,  # noqa: FBT003 - the default of a setting
    "yes or no",
    "Free questions can be costly: operators switch them on. On the server's machine, without it, they need the file.",
)
SQL_ROWS = Setting(
    "sql", "most_rows", 10_000, "rows", "A person reads fewer; the rest is cut, and that is said.", 1, 10_000_000
)
SQL_SECONDS = Setting("sql", "most_seconds", 30.0, "seconds", "Longer statements are stopped.", 0.1, 3600.0)

FIGURES_SECONDS = Setting(
    "metrics",
    "figures_seconds",
    300.0,
    "seconds",
    "How old the figures of /metrics on accounts, families and advice may get; 0: they are not told at all.",
    0.0,
    86_400.0,
)
FIGURES_ROWS = Setting(
    "metrics", "figures_rows", 20, "rows", "Accounts, families and pieces of advice told: each is a series.", 1, 1000
)

SETTINGS: tuple[AnySetting, ...] = (
    ANSWER_SECONDS,
    ANSWER_AGE_SECONDS,
    LOG_FORMAT,
    CERTIFICATE_FILE,
    KEY_FILE,
    CLIENT_CA_FILE,
    SQL_OPEN,
    SQL_ROWS,
    SQL_SECONDS,
    FIGURES_SECONDS,
    FIGURES_ROWS,
    CLOCK_OFF_SECONDS,
)
