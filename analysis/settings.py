"""Settings of the judgement. A remedy's own settings stand beside its code."""

from __future__ import annotations

from warehouse.contract.rollups import ACTIVE_THRESHOLD_RATIO, CONTINUOUS_CADENCES
from warehouse.contract.settings import AnySetting, Setting

IDLE_STRETCH_SECONDS = Setting(
    "waste",
    "idle_stretch_seconds",
    300.0,
    "seconds",
    "A pause this long is longer than the checkpoints and evaluations of a job that is working; shorter ones are gaps.",
    0.0,
)
RUNG_COVERAGE_RATIO = Setting(
    "waste",
    "rung_coverage_ratio",
    0.9,
    "share of the known time",
    "A document uses the best rung that covers at least this share of what any rung covers, in all and for each job "
    "that weighs; with less, those whose work is measured finely would look worst.",
    0.0,
    1.0,
)
RUNG_SUBJECT_RATIO = Setting(
    "waste",
    "rung_subject_ratio",
    0.01,
    "share of the known time",
    "A job with a smaller share has no say in which rung a document uses: it could not change the picture.",
    0.0,
    1.0,
)
INFLATION_RATIO = Setting(
    "waste",
    "inflation_ratio",
    0.3,
    "share of time",
    "A driver utilization that exceeds the measured busy share by this much is worth a finding; the sampling of the "
    "driver alone explains a few hundredths.",
    0.0,
    1.0,
)
REPORT_ZONE = Setting(
    "report",
    "zone",
    "",
    "IANA zone",
    "Weeks and days begin at midnight of this zone. Empty: the zone of the cluster, cluster.zone.",
)
GPUS_FILE = Setting(
    "gpus",
    "file",
    "",
    "path",
    "What the site pays for an hour of its GPUs, and GPUs or figures that the catalogue lacks or has otherwise, as "
    "docs/gpus.md says; empty: the catalogue alone.",
)

SETTINGS: tuple[AnySetting, ...] = (
    ACTIVE_THRESHOLD_RATIO,
    IDLE_STRETCH_SECONDS,
    CONTINUOUS_CADENCES,
    RUNG_COVERAGE_RATIO,
    RUNG_SUBJECT_RATIO,
    INFLATION_RATIO,
    REPORT_ZONE,
    GPUS_FILE,
)
