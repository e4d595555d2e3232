"""Settings of the store and of the site as a whole."""

from __future__ import annotations

from warehouse.contract.rollups import PAUSE_SECONDS
from warehouse.contract.settings import AnySetting, Setting

CLUSTER_NAME = Setting("cluster", "name", "cluster", "name", "Used where a file or sender does not name its cluster.")
CLUSTER_ZONE = Setting("cluster", "zone", "UTC", "IANA zone", "Times without an offset are read in this zone.")
SERVER_HOST = Setting("server", "host", "127.0.0.1", "address", "Loopback: nothing is served to the network unasked.")
SERVER_PORT = Setting("server", "port", 8411, "TCP port", "Free in the IANA registry's user range.", 0, 65535)
SHARED_AGENT_TOKEN = Setting(
    "server",
    "shared_agent_token",
    True,  # noqa: FBT003 - the default of a setting
    "yes or no",
    "For one machine. A cluster sets no, and its agents enrol: then a node can speak for itself alone.",
)
MEMORY_LIMIT_RATIO = Setting(
    "store",
    "memory_limit_ratio",
    0.6,
    "share of the machine's memory",
    "Leaves room for the server itself beside the database.",
    0.05,
    0.95,
)

IMPORT_CHUNK_RECORDS = Setting(
    "import",
    "chunk_records",
    20_000,
    "records",
    "Each chunk is one transaction: large enough to be quick, small enough to lose little when interrupted.",
    1,
    1_000_000,
)
IMPORT_CHUNK_CHARACTERS = Setting(
    "import",
    "chunk_characters",
    16_000_000,
    "characters of content",
    "Ends a chunk of long records early: a chunk travels to the server in one message.",
    1,
    64_000_000,
)
IMPORT_MAX_FIELD_CHARACTERS = Setting(
    "import",
    "max_field_characters",
    4096,
    "characters",
    "Holds every command line that a person reads; longer texts are shortened with an ellipsis, and counted.",
    16,
    1_000_000,
)

COMMIT_WINDOW_SECONDS = Setting(
    "store",
    "commit_window_seconds",
    0.25,
    "seconds",
    "Batches that arrive within it are written in one transaction; an acknowledgement waits at most this much longer.",
    0.0,
    10.0,
)
MAX_WAITING_ROWS = Setting(
    "store",
    "max_waiting_rows",
    1_000_000,
    "rows",
    "Rows taken but not yet written; about 600 MB. Beyond it senders are told to come again.",
    1,
    100_000_000,
)
FREE_SPACE_FLOOR_BYTES = Setting(
    "store",
    "free_space_floor_bytes",
    256 * 1024**2,
    "bytes",
    "Below it no new data are taken and reading goes on; leaves room for one checkpoint of the database.",
    0,
)
IMPORT_REQUEUE_WINDOW_SECONDS = Setting(
    "import",
    "requeue_window_seconds",
    3600.0,
    "seconds",
    "Slurm submits a lost job again within seconds, or after a long epilog; job ids come back only after months.",
    0.0,
    604_800.0,
)

IMPORT_LONE_CADENCE_SECONDS = Setting(
    "import",
    "lone_cadence_seconds",
    1.0,
    "seconds",
    "A reading with no neighbour in time speaks for the driver's own window, a second at most.",
    0.001,
    3600.0,
)
IMPORT_LONGEST_CADENCE_SECONDS = Setting(
    "import",
    "longest_cadence_seconds",
    600.0,
    "seconds",
    "Loggers and scrapers ask every few minutes at the least; what is further apart is a gap of a logger that was off.",
    1.0,
    86_400.0,
)
IMPORT_WORKLOAD_GAP_SECONDS = Setting(
    "import",
    "workload_gap_seconds",
    900.0,
    "seconds",
    "A workload of the same name that is seen again later than this is another one: longer than a scraper restarts.",
    1.0,
    86_400.0,
)
IMPORT_EXPORTER_PODS = Setting(
    "import",
    "exporter_pods",
    ("dcgm-exporter", "nvidia-gpu-exporter", "nvitop-exporter", "gpu-exporter", "trueload-agent"),
    "parts of names",
    "Pods and containers of exporters, as their charts name them: they are never the workload.",
)
IMPORT_PROMETHEUS_WINDOW_SECONDS = Setting(
    "import",
    "prometheus_window_seconds",
    3600.0,
    "seconds",
    "One answer of a server: an hour of 2,000 series at 15 s is half a million values. Halved where it is too much.",
    60.0,
    86_400.0,
)
IMPORT_PROMETHEUS_PAGE_SERIES = Setting(
    "import",
    "prometheus_page_series",
    2000,
    "series",
    "Targets are asked for together up to this many series, so that an answer stays near 20 MB.",
    1,
    1_000_000,
)
IMPORT_PROMETHEUS_TIMEOUT_SECONDS = Setting(
    "import",
    "prometheus_timeout_seconds",
    60.0,
    "seconds",
    "Prometheus itself gives up on a query after two minutes (query.timeout); a window is halved before that.",
    1.0,
    600.0,
)
IMPORT_PROMETHEUS_TOKEN_FILE = Setting(
    "import",
    "prometheus_token_file",
    "",
    "path",
    "Holds the bearer token of a server that wants one; a name and password may stand in the address.",
)

SEAL_AFTER_SECONDS = Setting(
    "lake",
    "seal_after_seconds",
    26 * 3600.0,
    "seconds after a day's end (UTC)",
    "Agents that were away for a day still find it hot; later batches cost a rewrite of the day.",
    0.0,
)
KEEPER_INTERVAL_SECONDS = Setting(
    "lake",
    "keeper_interval_seconds",
    1800.0,
    "seconds",
    "How often ended days are looked for; a round with nothing to do costs milliseconds.",
    1.0,
)
KEEP_REPLACED_SECONDS = Setting(
    "lake",
    "keep_replaced_seconds",
    3600.0,
    "seconds",
    "Files of a replaced generation stay this long for engines that still read them.",
    0.0,
)
COPY_ADDRESS = Setting(
    "lake",
    "copy_address",
    "",
    "path, file://, s3://BUCKET/PREFIX",
    "Empty: the lake lies on the server's disk alone. Else a server copies it there in each round, and engines read it "
    "there. Credentials come from the environment or ~/.aws, never from here.",
)
COPY_ENDPOINT_URL = Setting(
    "lake",
    "copy_endpoint_url",
    "",
    "address",
    "Empty: Amazon's own; else the server of an object store that speaks S3.",
)
COPY_REGION = Setting(
    "lake", "copy_region", "", "S3 region", "Empty: what the environment or ~/.aws says; many other stores need none."
)
ROLL_AFTER_SECONDS = Setting(
    "rollup",
    "after_seconds",
    300.0,
    "seconds after an hour's end",
    "Batches that wait for a slow network still come in; later ones cost that the hour is summed up once more.",
    0.0,
)
KEEP_DAYS = Setting(
    "lake",
    "keep_days",
    90,
    "days",
    "Samples older than this go away, once they are summed up; 0 keeps all. A quarter is what people look back on in "
    "detail; 2,000 GPUs at 10 s take about 0.4 GB a day.",
    0,
)
KEEP_MINUTES_DAYS = Setting(
    "lake",
    "keep_1m_days",
    400,
    "days",
    "Roll-ups by minute older than this go away; 0 keeps all. A year and a month, so that this month can be held "
    "against that of last year; they take about a third of what samples do.",
    0,
)
KEEP_HOURS_DAYS = Setting(
    "lake",
    "keep_1h_days",
    0,
    "days",
    "Roll-ups by hour older than this go away; 0 keeps all: reports of any week can be made again, at some hundredths "
    "of what samples take. Summaries of attempts stay in any case.",
    0,
)

SPARK_MASTER = Setting(
    "spark", "master", "local[*]", "Spark master", "All cores of this machine; a cluster is spark://HOST:7077 or yarn."
)
SPARK_DRIVER_HOST = Setting(
    "spark",
    "driver_host",
    "127.0.0.1",
    "address",
    "Nothing listens to the network unasked; on a cluster the address at which its workers reach this machine.",
)
SPARK_DRIVER_MEMORY_BYTES = Setting(
    "spark",
    "driver_memory_bytes",
    2 * 1024**3,
    "bytes",
    "Holds the answer's rows, and with a local master all of the work.",
    512 * 1024**2,
)
SPARK_EXECUTOR_MEMORY_BYTES = Setting(
    "spark",
    "executor_memory_bytes",
    4 * 1024**3,
    "bytes",
    "For each executor of a cluster; a day of 2,000 GPUs was sorted within it.",
    512 * 1024**2,
)
SPARK_SHUFFLE_PARTITIONS = Setting(
    "spark",
    "shuffle_partitions",
    8,
    "partitions",
    "Enough for a few cores; about three for each core of a cluster. Spark's own 200 are mostly overhead here.",
    1,
    100_000,
)

SETTINGS: tuple[AnySetting, ...] = (
    CLUSTER_NAME,
    CLUSTER_ZONE,
    SERVER_HOST,
    SERVER_PORT,
    SHARED_AGENT_TOKEN,
    MEMORY_LIMIT_RATIO,
    COMMIT_WINDOW_SECONDS,
    MAX_WAITING_ROWS,
    FREE_SPACE_FLOOR_BYTES,
    SEAL_AFTER_SECONDS,
    KEEPER_INTERVAL_SECONDS,
    KEEP_REPLACED_SECONDS,
    COPY_ADDRESS,
    COPY_ENDPOINT_URL,
    COPY_REGION,
    ROLL_AFTER_SECONDS,
    PAUSE_SECONDS,
    KEEP_DAYS,
    KEEP_MINUTES_DAYS,
    KEEP_HOURS_DAYS,
    IMPORT_CHUNK_RECORDS,
    IMPORT_CHUNK_CHARACTERS,
    IMPORT_MAX_FIELD_CHARACTERS,
    IMPORT_REQUEUE_WINDOW_SECONDS,
    IMPORT_LONE_CADENCE_SECONDS,
    IMPORT_LONGEST_CADENCE_SECONDS,
    IMPORT_WORKLOAD_GAP_SECONDS,
    IMPORT_EXPORTER_PODS,
    IMPORT_PROMETHEUS_WINDOW_SECONDS,
    IMPORT_PROMETHEUS_PAGE_SERIES,
    IMPORT_PROMETHEUS_TIMEOUT_SECONDS,
    IMPORT_PROMETHEUS_TOKEN_FILE,
    SPARK_MASTER,
    SPARK_DRIVER_HOST,
    SPARK_DRIVER_MEMORY_BYTES,
    SPARK_EXECUTOR_MEMORY_BYTES,
    SPARK_SHUFFLE_PARTITIONS,
)
