"""Pages of metrics as text: dcgm-exporter, nvidia_gpu_exporter, nvitop-exporter, slurm-job-exporter, jobstats, our own.

Prometheus' text format and OpenMetrics, one page or many one after the other (``promtool``'s dumps for OpenMetrics, a
loop of ``curl``). A line without a time was read when the file was last written. Each line that is no comment is one
record; those of series that say nothing of a device's load are kept and become no rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

from warehouse.contract.errors import BadInputError
from warehouse.importer import Imported, Importer, ImportOptions, Rejected
from warehouse.imports._prom_fold import SOURCE, Fold
from warehouse.imports._prom_text import point
from warehouse.imports._prom_workloads import Workloads
from warehouse.imports._text import numbered_lines
from warehouse.imports._values import BadRowError, cluster_name


def read(path: Path, options: ImportOptions) -> Iterator[Imported | Rejected]:
    """Stream the records of a file; see ``Importer.read``."""
    cluster = cluster_name(options.cluster)
    fold = Fold(options, cluster, Workloads(options, cluster, SOURCE), None)
    digest = blake2b(digest_size=8)
    taken = refused = 0
    broken: BadInputError | None = None
    try:
        for line, text in numbered_lines(path, options.consumed):
            if not text.strip() or text.lstrip().startswith("#"):
                continue
            try:
                found = point(text.strip())
                fold.learn(found.labels)
                fold.add(found, _written_at(path) if found.at is None else found.at, is_stated=found.at is not None)
            except BadRowError as bad:
                refused += 1
                yield Rejected(line, bad.reason, bad.detail)
                continue
            taken += 1
            digest.update(text.encode("utf-8", "surrogatepass") + b"\n")
    except BadInputError as cause:
        broken = cause
    if not taken and not refused and broken is None:
        raise BadInputError(str(path), None, "holds no lines of metrics; expected NAME{LABELS} VALUE")
    yield from fold.records(digest.hexdigest(), 1)
    if broken is not None:
        raise broken


def _written_at(path: Path) -> float:
    return path.stat().st_mtime


EXAMPLE = """\
# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-00000000-0000-0000-0000-00000000000a",modelName="NVIDIA A100-SXM4-40GB",\
Hostname="gpu1",namespace="team-a",pod="train-0",container="main"} 93 1790000000000
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-00000000-0000-0000-0000-00000000000b",modelName="NVIDIA A100-SXM4-40GB",\
Hostname="gpu1"} 0 1790000000000
# HELP DCGM_FI_DEV_FB_USED Framebuffer memory used (in MiB).
# TYPE DCGM_FI_DEV_FB_USED gauge
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-00000000-0000-0000-0000-00000000000a",modelName="NVIDIA A100-SXM4-40GB",\
Hostname="gpu1",namespace="team-a",pod="train-0",container="main"} 12000 1790000000000
# HELP DCGM_FI_DEV_MEMORY_TEMP Memory temperature (in C).
# TYPE DCGM_FI_DEV_MEMORY_TEMP gauge
DCGM_FI_DEV_MEMORY_TEMP{gpu="0",UUID="GPU-00000000-0000-0000-0000-00000000000a",modelName="NVIDIA A100-SXM4-40GB",\
Hostname="gpu1",namespace="team-a",pod="train-0",container="main"} 9223372036854775794 1790000000000
"""

IMPORTER = Importer(
    name=SOURCE,
    description="Reads pages of metrics: dcgm-exporter, nvidia_gpu_exporter, nvitop, slurm-job-exporter, jobstats.",
    example=EXAMPLE,
    read=read,
    gives="driver utilization, engine and SM activity where the exporter has them; jobs where labels say",
)
