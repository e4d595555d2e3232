"""Slurm's accounting as ``sacct -P`` prints it. docs/import.md says which columns to ask for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from warehouse.importer import Imported, Importer, ImportOptions, Rejected
from warehouse.imports._sacct_reading import read_rows
from warehouse.imports._sacct_records import SOURCE
from warehouse.imports._sacct_rows import sacct_rows


def read(path: Path, options: ImportOptions) -> Iterator[Imported | Rejected]:
    """Stream the records of a file; see ``Importer.read``."""
    return read_rows(lambda consumed: sacct_rows(path, consumed), options)


EXAMPLE = """\
JobID|JobIDRaw|JobName|User|Account|Partition|QOS|State|ExitCode|Submit|Start|End|ElapsedRaw|TimelimitRaw|NNodes|NCPUS\
|NodeList|ReqTRES|AllocTRES|MaxRSS|TotalCPU|Comment|SubmitLine|WorkDir|Cluster|DBIndex
101|101|train|alice|ml|gpu|normal|COMPLETED|0:0|1790000000|1790000010|1790003610|3600|1440|1|8|gpu1\
|billing=8,cpu=8,gres/gpu=2,mem=64G,node=1|billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,mem=64G,node=1||01:10:00|\
|sbatch train.sh|/home/alice|example|11
101.batch|101.batch|batch||ml|||COMPLETED|0:0|1790000010|1790000010|1790003610|3600||1|8|gpu1||cpu=8,mem=64G,node=1\
|93168K|01:10:00||||example|11
102_1|103|sweep|bob|bio|gpu|normal|RUNNING|0:0|1790000100|1790000200|Unknown|500|60|1|2|gpu2|cpu=2,gres/gpu=1,node=1\
|cpu=2,gres/gpu:a100=1,gres/gpu=1,node=1||00:00:00||sbatch --array=1-3 sweep.sh|/home/bob|example|12
102_[2-3]|102|sweep|bob|bio|gpu|normal|PENDING|0:0|1790000100|Unknown|Unknown|0|60|1|2|None assigned\
|cpu=2,gres/gpu=1,node=1|||00:00:00||sbatch --array=1-3 sweep.sh|/home/bob|example|13
104|104|long|alice|ml|gpu|normal|REQUEUED|0:0|1790000300|1790000310|1790000400|90|60|2|4|gpu[1-2]\
|cpu=4,gres/gpu=4,node=2|cpu=4,gres/gpu:a100=4,gres/gpu=4,node=2||00:03:00||sbatch long.sh|/home/alice|example|14
104|104|long|alice|ml|gpu|normal|COMPLETED|0:0|1790000400|1790000500|1790000600|100|60|2|4|gpu[1-2]\
|cpu=4,gres/gpu=4,node=2|cpu=4,gres/gpu:a100=4,gres/gpu=4,node=2||00:03:20||sbatch long.sh|/home/alice|example|15
"""

IMPORTER = Importer(
    name=SOURCE,
    description="Reads Slurm's accounting as `sacct -P` prints it, with steps, arrays and requeued jobs.",
    example=EXAMPLE,
    read=read,
    gives="nothing of how busy by itself; jobs, attempts and counts of GPUs; means and peaks where jobstats left them",
)
