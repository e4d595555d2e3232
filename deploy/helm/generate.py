"""Makes what the chart has twice: its schema and README.md from values.yaml, and copies of rules and dashboards.

``python deploy/helm/generate.py`` writes, ``--check`` says what is out of date (exit code 1). In values.yaml
``# -- text`` explains the value below it, and ``# @schema {...}`` adds to the schema that its default already gives.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import trueload
from warehouse.contract.settings import AnySetting

HERE = Path(__file__).resolve().parent
CHART = HERE / "trueload"
DEPLOY = HERE.parent

OF_THE_CHART = frozenset(
    {
        *("agent.cgroup_root", "agent.cluster", "agent.exporter_listen", "agent.host_cgroup_root", "agent.job_source"),
        *("agent.join_token_file", "agent.kubelet_socket", "agent.kubernetes_resource_slices", "agent.node"),
        *(
            "agent.pod_logs_dir",
            "agent.server_url",
            "agent.spool_dir",
            "agent.tls_ca_file",
            "agent.tls_certificate_file",
        ),
        *("agent.tls_key_file", "agent.token_file", "gpus.file", "identity.file", "identity.use_getent"),
        *("jobs.kubernetes_url", "jobs.source", "mail.ca_file", "mail.password_file", "pages.port"),
        *("server.certificate_file", "server.client_ca_file", "server.host", "server.key_file", "server.port"),
        *("server.shared_agent_token", "sign_in.mode", "sign_in.proxy_secret_file", "sign_in.secrets_file"),
    }
)
"""Settings that follow from other values, or name files that only the chart knows: values may not set them."""

OF_OTHER_MACHINES = frozenset({"doctor", "import", "spark", "up"})
"""Sections that no part of the chart reads."""

KINDS = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
COMMENT = re.compile(r"\s*# (--|@schema) (.*)")
KEY = re.compile(r"( *)([A-Za-z]+):")


@dataclass(frozen=True, slots=True)
class Told:
    """What the comments above a value say."""

    text: str
    extra: Mapping[str, Any]


def told(text: str) -> dict[str, Told]:
    """Give the comments of values.yaml by the path of the value below them, such as ``agent.image.tag``."""
    found: dict[str, Told] = {}
    above: list[tuple[int, str]] = []
    words, extra = "", {}
    for line in text.splitlines():
        if comment := COMMENT.match(line):
            if comment[1] == "--":
                words = comment[2]
            else:
                extra = json.loads(comment[2])
        elif key := KEY.match(line):
            depth = len(key[1])
            above = [one for one in above if one[0] < depth] + [(depth, key[2])]
            if words:
                found[".".join(name for _, name in above)] = Told(words, extra)
            words, extra = "", {}
    return found


def schema(values: Mapping[str, Any], comments: Mapping[str, Told], settings: dict[str, Any]) -> dict[str, Any]:
    """Give the JSON schema of the values: what is not named is refused."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart trueload",
        **_of(values, "", comments, settings),
    }


def _of(value: Any, path: str, comments: Mapping[str, Told], settings: dict[str, Any]) -> dict[str, Any]:
    here = comments.get(path)
    extra = dict(here.extra) if here else {}
    if extra.pop("$settings", False):
        return {"description": here.text if here else "", **settings}
    made: dict[str, Any] = {"type": KINDS[type(value)]}
    if here:
        made["description"] = here.text
    if isinstance(value, dict) and "additionalProperties" not in extra:
        made["additionalProperties"] = False
        made["properties"] = {
            key: _of(below, f"{path}.{key}" if path else key, comments, settings) for key, below in value.items()
        }
    return {**made, **extra}


def settings_schema(registry: tuple[AnySetting, ...]) -> dict[str, Any]:
    """Give what ``settings`` may hold: sections and keys of the product, with types and bounds of their own."""
    sections: dict[str, dict[str, Any]] = {}
    for setting in registry:
        if setting.name in OF_THE_CHART or setting.section in OF_OTHER_MACHINES:
            continue
        sections.setdefault(setting.section, {})[setting.key] = _of_setting(setting)
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            section: {"type": "object", "additionalProperties": False, "properties": keys}
            for section, keys in sorted(sections.items())
        },
    }


def _of_setting(setting: AnySetting) -> dict[str, Any]:
    default = setting.default
    if isinstance(default, tuple):
        kind: dict[str, Any] = {"type": "array", "items": {"type": "string"}}
    else:
        kind = {"type": KINDS[type(default)]}
    bounds = {"minimum": setting.lowest, "maximum": setting.highest}
    kind |= {name: bound for name, bound in bounds.items() if bound is not None}
    return kind | {"description": f"{setting.unit}; {setting.reason}"}


def _leaves(values: Mapping[str, Any], comments: Mapping[str, Told], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        here = f"{path}.{key}" if path else key
        if here in comments:
            yield here, value
        elif isinstance(value, dict):
            yield from _leaves(value, comments, here)


def readme(values: Mapping[str, Any], comments: Mapping[str, Told], text: str) -> str:
    """Give README.md: what a person wrote, and the table of values."""
    rows = [
        f"| `{path}` | `{json.dumps(value)}` | {comments[path].text.replace('|', '/')} |"
        for path, value in _leaves(values, comments)
    ]
    table = "\n".join(["| value | default | what it is |", "| --- | --- | --- |", *rows])
    return text.replace("{{ values }}", table)


def outputs() -> dict[Path, str]:
    """Give everything that is made, by path."""
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    values, comments = yaml.safe_load(text), told(text)
    made = {
        CHART / "values.schema.json": json.dumps(
            schema(values, comments, settings_schema(trueload.registry())), indent=2
        )
        + "\n",
        CHART / "README.md": readme(values, comments, (CHART / "README.md.gotmpl").read_text(encoding="utf-8")),
    }
    for source in (DEPLOY / "prometheus" / "trueload.rules.yaml", *sorted((DEPLOY / "grafana").glob("*.json"))):
        made[CHART / "files" / source.name] = source.read_text(encoding="utf-8")
    return made


def stale() -> list[Path]:
    """Give the files that differ from what would be made."""
    return [path for path, text in outputs().items() if not path.exists() or path.read_text(encoding="utf-8") != text]


def main(arguments: list[str]) -> int:
    """Write, or with ``--check`` say what is out of date."""
    late = stale()
    if "--check" in arguments:
        sys.stderr.writelines(f"{path}: out of date; run python deploy/helm/generate.py\n" for path in late)
        return 1 if late else 0
    made = outputs()
    for path in late:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made[path], encoding="utf-8")
        sys.stdout.write(f"wrote {path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
