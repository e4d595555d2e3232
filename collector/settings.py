"""Settings of the agent, and of its sources and job sources, which declare theirs beside their code."""

from __future__ import annotations

from collector.doctor import settings as doctor_settings
from collector.registry import job_sources, sources
from collector.tracer import settings as tracer_settings
from warehouse.contract.settings import AnySetting, Setting

NODE = Setting("agent", "node", "", "name", "Empty: the host's own name, which is what schedulers use.")
CLUSTER = Setting("agent", "cluster", "cluster", "name", "The cluster that the node belongs to.")
SOURCES = Setting(
    "agent",
    "sources",
    ("nvml", "gpm", "kernels", "host"),
    "names",
    "What every driver can tell, what Hopper and later add to it, what traced processes tell, and the host.",
)
JOB_SOURCE = Setting("agent", "job_source", "", "name", "Empty: nobody is asked whose a device is.")
PROC_ROOT = Setting("agent", "proc_root", "/proc", "path", "Where every Linux has it; a container may have another.")
NVML_LIBRARY = Setting(
    "agent",
    "nvml_library",
    "",
    "path",
    "Empty: the loader finds libnvidia-ml.so.1; a path serves driver roots elsewhere and the stand-in.",
)
INTERVAL_SECONDS = Setting(
    "agent",
    "interval_seconds",
    1.0,
    "seconds",
    "The driver renews its utilization about once a second, and GPM needs 0.1 s between two samples.",
    0.2,
    60.0,
)
CADENCE_SECONDS = Setting(
    "agent",
    "cadence_seconds",
    10.0,
    "seconds",
    "Shows pauses of half a minute, at a tenth of the rows of one per second.",
    1.0,
    3600.0,
)
GAP_INTERVALS = Setting(
    "agent",
    "gap_intervals",
    2.5,
    "intervals",
    "One late or missed reading is bridged; two in a row are time without data.",
    1.0,
    10.0,
)
LEAST_COVERED_RATIO = Setting(
    "agent",
    "least_covered_ratio",
    0.5,
    "share of the row's time",
    "A mean over less than half of the time that it stands for would say more than was seen.",
    0.0,
    1.0,
)
REPROBE_SECONDS = Setting(
    "agent",
    "reprobe_seconds",
    60.0,
    "seconds",
    "A lost card or a driver that went away comes back after a reset at best; asking is not free.",
    1.0,
    3600.0,
)
NUMB_ROUNDS = Setting(
    "agent",
    "numb_rounds",
    10,
    "readings",
    "Counters that read exactly nothing for a row's time on a card that the driver calls busy have gone numb.",
    2,
    3600,
)
EXIT_WHEN_SILENT_SECONDS = Setting(
    "agent",
    "exit_when_silent_seconds",
    0.0,
    "seconds",
    "With 0 never; containers that can lose their devices while they run get them back by being started anew.",
    0.0,
    86400.0,
)
CALL_PATIENCE_SECONDS = Setting(
    "agent",
    "call_patience_seconds",
    0.5,
    "seconds",
    "A round of reading takes milliseconds; who has not answered by then is left out, so that the others keep time.",
    0.05,
    60.0,
)
SERVER_URL = Setting("agent", "server_url", "http://127.0.0.1:8411", "URL", "Where trueload serve listens by default.")
TOKEN_FILE = Setting("agent", "token_file", "", "path", "A file of mode 600; empty: nothing is sent, only spooled.")
SPOOL_DIR = Setting(
    "agent", "spool_dir", "/var/lib/trueload/spool", "path", "A service keeps its state below /var/lib."
)
SPOOL_MAX_BYTES = Setting(
    "agent",
    "spool_max_bytes",
    512 * 1024**2,
    "bytes",
    "Weeks of an ordinary node's batches, and little beside a node's disk.",
    1024,
)
SPOOL_MAX_AGE_SECONDS = Setting(
    "agent",
    "spool_max_age_seconds",
    7 * 86400.0,
    "seconds",
    "A server that is away longer than a week is no longer waited for.",
    60.0,
)
SPOOL_KEPT_MAX_BYTES = Setting(
    "agent",
    "spool_kept_max_bytes",
    128 * 1024**2,
    "bytes",
    "More than a day of a node with eight cards: what the server has is kept until its nightly backup has it too.",
    0,
)
SPOOL_KEPT_MAX_AGE_SECONDS = Setting(
    "agent",
    "spool_kept_max_age_seconds",
    2 * 86400.0,
    "seconds",
    "One nightly backup may fail before what the server acknowledged is given up.",
    0.0,
)
SPOOL_MEMORY_MAX_BYTES = Setting(
    "agent",
    "spool_memory_max_bytes",
    8 * 1024**2,
    "bytes",
    "A few hours of batches while the disk is full or read-only, and little beside a job's memory.",
    1024,
)
JOIN_TOKEN_FILE = Setting(
    "agent",
    "join_token_file",
    "",
    "path",
    "Set: the agent enrols with the join secret in this file, and keeps its own token in agent.token_file, by default "
    "in the spool.",
)
TOKEN_MAX_AGE_SECONDS = Setting(
    "agent",
    "token_max_age_seconds",
    30 * 86400.0,
    "seconds",
    "An enrolled node replaces its token once a month, so that one that leaked ends by itself; 0: never.",
    0.0,
)
TLS_CA_FILE = Setting("agent", "tls_ca_file", "", "path", "Empty: the authorities that the system trusts.")
TLS_CERTIFICATE_FILE = Setting(
    "agent", "tls_certificate_file", "", "path", "Only where the server, or what stands before it, asks for one."
)
TLS_KEY_FILE = Setting("agent", "tls_key_file", "", "path", "Empty: the key is in the certificate's file.")
POST_TIMEOUT_SECONDS = Setting(
    "agent", "post_timeout_seconds", 10.0, "seconds", "A busy server still answers in a few seconds.", 0.1, 300.0
)
LONGEST_WAIT_SECONDS = Setting(
    "agent",
    "longest_wait_seconds",
    60.0,
    "seconds",
    "A server that comes back is found within a minute.",
    0.1,
    3600.0,
)
DETAIL_SECONDS = Setting(
    "agent",
    "detail_seconds",
    3600.0,
    "seconds",
    "What a page may look at as it was read: the last hour, 2 MB of memory for eight cards; 0 keeps none.",
    0.0,
    86400.0,
)
EXPORTER_LISTEN = Setting(
    "agent",
    "exporter_listen",
    "127.0.0.1:9412",
    "HOST:PORT",
    "Loopback: who wants to scrape from elsewhere says so; empty: no exporter; port 0: any free one.",
)
EXPORTER_DCGM_NAMES = Setting(
    "agent",
    "exporter_dcgm_names",
    default=False,
    unit="yes or no",
    reason="Dashboards made for dcgm-exporter go on working; off, or every value would be stored twice.",
)
EXPORTER_MOST_JOB_SERIES = Setting(
    "agent",
    "exporter_most_job_series",
    0,
    "series",
    "Jobs are told to the server, not to Prometheus: a label per job grows without end; 0: none.",
    0,
    10_000,
)
STOP_SECONDS = Setting(
    "agent",
    "stop_seconds",
    3.0,
    "seconds",
    "For the last batch to be sent when the agent is told to stop; it is spooled before.",
    0.0,
    60.0,
)

SETTINGS: tuple[AnySetting, ...] = (
    *(NODE, CLUSTER, SOURCES, JOB_SOURCE, PROC_ROOT, NVML_LIBRARY),
    *(INTERVAL_SECONDS, CADENCE_SECONDS, GAP_INTERVALS, LEAST_COVERED_RATIO, REPROBE_SECONDS),
    *(NUMB_ROUNDS, EXIT_WHEN_SILENT_SECONDS, CALL_PATIENCE_SECONDS),
    *(SERVER_URL, TOKEN_FILE, SPOOL_DIR, SPOOL_MAX_BYTES, SPOOL_MAX_AGE_SECONDS),
    *(SPOOL_KEPT_MAX_BYTES, SPOOL_KEPT_MAX_AGE_SECONDS, SPOOL_MEMORY_MAX_BYTES),
    *(JOIN_TOKEN_FILE, TOKEN_MAX_AGE_SECONDS, TLS_CA_FILE, TLS_CERTIFICATE_FILE, TLS_KEY_FILE),
    *(DETAIL_SECONDS, EXPORTER_LISTEN, EXPORTER_DCGM_NAMES, EXPORTER_MOST_JOB_SERIES),
    *(POST_TIMEOUT_SECONDS, LONGEST_WAIT_SECONDS, STOP_SECONDS),
    *tracer_settings.SETTINGS,
    *doctor_settings.SETTINGS,
    *(setting for source in sources().values() for setting in source.settings),
    *(setting for source in job_sources().values() for setting in source.settings),
)
