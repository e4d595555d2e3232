"""The command ``gpus``: the GPU catalogue, without a store."""

from __future__ import annotations

import difflib
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from analysis.gpu_catalogue import FACTS, Catalogue, Gpu, MigProfile
from analysis.gpu_file import read_catalogue
from analysis.gpu_names import find
from analysis.gpu_tables import gpu_options_text, gpus_table, gpus_text
from analysis.settings import GPUS_FILE
from analysis.tables import plain, show
from warehouse.contract.errors import BadUseError, NotFoundError
from warehouse.options import data_option, json_option, pass_composition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warehouse.client import Composition, Document


@click.command("gpus")
@click.argument("name", metavar="[NAME]", required=False)
@click.option("--family", metavar="ID", help="Compare all GPUs for this family (or job key) of the store instead.")
@data_option
@json_option
@pass_composition
def gpus_command(composition: Composition, name: str | None, family: str | None, data: Path, *, as_json: bool) -> None:
    """What is known of GPU models: peaks, memory, MIG profiles, dated prices, each with its source.

    NAME is an id of the list, or a name as a driver or scheduler spells it ("NVIDIA A100-SXM4-80GB", a100); all
    variants that it leaves open are shown. With --family: time, cost and energy of that work on every GPU, as ratios
    over the GPU that it has (docs/remedies/choose_gpu.md). Setting gpus.file names the site's own prices and GPUs
    (docs/gpus.md).
    """
    if family is not None:
        _compare(composition, family, name, data, as_json=as_json)
        return
    catalogue = read_catalogue(composition.settings()[GPUS_FILE])
    chosen = catalogue.gpus if name is None else _found(catalogue, name)
    document = gpus_document(catalogue, chosen, name)
    if as_json:
        click.echo(json.dumps(document, indent=2, allow_nan=False))
    else:
        show(gpus_table(document) if name is None else gpus_text(document))


def _compare(composition: Composition, family: str, name: str | None, data: Path, *, as_json: bool) -> None:
    """Show every GPU for a family or job of the store."""
    if name is not None:
        raise BadUseError(f"give a NAME ({plain(name)}) or --family, not both")
    client = composition.open_client(data, False)  # noqa: FBT003 - a question creates no store
    try:
        document = client.ask("gpu_options", {"id": family})
    finally:
        client.close()
    if as_json:
        click.echo(json.dumps(document, indent=2, allow_nan=False))
    else:
        show(gpu_options_text(document))


def _found(catalogue: Catalogue, name: str) -> tuple[Gpu, ...]:
    chosen = find(catalogue, name)
    if not chosen:
        near = difflib.get_close_matches(name.casefold()[:100], [gpu.id for gpu in catalogue.gpus], n=1, cutoff=0.0)
        raise NotFoundError(
            f"{plain(name)}: no such GPU is known; the nearest is {near[0]}, and `trueload gpus` lists all. A GPU that "
            f"is missing can be added in the file of setting {GPUS_FILE.name} (docs/gpus.md)"
        )
    return chosen


def gpus_document(catalogue: Catalogue, chosen: Sequence[Gpu], asked: str | None) -> dict[str, Any]:
    """Give the document of some GPUs of the catalogue."""
    gpus = [
        {
            "id": gpu.id,
            "name": gpu.name,
            "model": gpu.model,
            "vendor": gpu.vendor,
            "form_factor": gpu.form_factor,
            "note": gpu.note,
            "facts": {key: _fact(gpu, key) for key in FACTS},
            "mig_profiles": [_mig_profile(one) for one in catalogue.mig_profiles_of(gpu)],
            "prices": [
                {key: value for key, value in asdict(one).items() if key != "gpu"} for one in catalogue.prices_of(gpu)
            ],
        }
        for gpu in chosen
    ]
    return {"asked": asked, "gpus": gpus, "sources": dict(catalogue.sources)}


def _mig_profile(one: MigProfile) -> Document:
    origin = one.origins["profile"]
    return {
        "profile": one.profile,
        "max_instances": one.max_instances,
        "memory_ratio": one.memory_ratio,
        "sm_ratio": one.sm_ratio,
        "sm_count": _fact(one, "sm_count"),
        "memory_bytes": _fact(one, "memory_bytes"),
        "source": origin.source,
        "confidence": origin.confidence.value,
        "note": one.note,
    }


def _fact(one: Gpu | MigProfile, key: str) -> Document | None:
    origin = one.origins.get(key)
    if origin is None:
        return None
    value = getattr(one, key)
    return {
        "value": list(value) if isinstance(value, tuple) else value,
        "source": origin.source,
        "confidence": origin.confidence.value,
    }
