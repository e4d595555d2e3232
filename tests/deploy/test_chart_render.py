"""The chart is one that Helm and Kubernetes take: lint, schema, all files of ci/, a matrix of switches, old and new."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from tests.deploy import chart

OLDEST, NEWEST = "1.27", "1.37"
NOT_OF_KUBERNETES = {"PodMonitor", "ServiceMonitor", "PrometheusRule", "Certificate", "SecurityContextConstraints"}
GOLDEN = Path(__file__).with_name("golden") / "gitops.yaml"
STEADY: dict[str, Any] = {"tokens": {"existingSecret": "t"}, "tls": {"source": "existing", "existingSecret": "s"}}
PREVIOUS = sorted((Path(__file__).parent / "previous").glob("*-values.yaml"))
"""One file of values, all of them, for each version that was released; see tests/README.md."""

BAD: list[tuple[dict[str, Any], str]] = [
    ({"agnet": {}}, "at '': additional properties 'agnet'"),
    ({"agent": {"imge": {}}}, "at '/agent'"),
    ({"agent": {"image": {"tag": "latest"}}}, "at '/agent/image/tag'"),
    ({"server": {"image": {"tag": "latest"}}}, "at '/server/image/tag'"),
    ({"web": {"image": {"tag": 1.5}}}, "at '/web/image/tag'"),
    ({"report": {"image": {"digest": "sha256:abc"}}}, "at '/report/image/digest'"),
    ({"agent": {"image": {"pullPolicy": "Sometimes"}}}, "at '/agent/image/pullPolicy'"),
    ({"agent": {"enabled": "yes"}}, "at '/agent/enabled'"),
    ({"agent": {"nodeSelector": {"gpu": True}}}, "at '/agent/nodeSelector/gpu'"),
    ({"agent": {"tolerations": ["all"]}}, "at '/agent/tolerations/0'"),
    ({"agent": {"maxUnavailable": "a few"}}, "at '/agent/maxUnavailable'"),
    ({"agent": {"maxUnavailable": 0}}, "at '/agent/maxUnavailable'"),
    ({"agent": {"spoolHostPath": "var/lib"}}, "at '/agent/spoolHostPath'"),
    ({"agent": {"extraEnv": [{"value": "x"}]}}, "at '/agent/extraEnv/0'"),
    ({"clusterName": ""}, "at '/clusterName'"),
    ({"fullnameOverride": "Under_Score"}, "at '/fullnameOverride'"),
    ({"global": {"imageRegistry": "https://r example"}}, "at '/global/imageRegistry'"),
    ({"global": {"imagePullSecrets": [{"name": "x"}]}}, "at '/global/imagePullSecrets/0'"),
    ({"tls": {"source": "self-signed"}}, "at '/tls/source'"),
    ({"tls": {"certManager": {"issuerKind": "Vault"}}}, "at '/tls/certManager/issuerKind'"),
    ({"server": {"persistence": {"size": "100 GB"}}}, "at '/server/persistence/size'"),
    ({"server": {"replicas": 2}}, "at '/server'"),
    ({"web": {"replicas": 0}}, "at '/web/replicas'"),
    ({"web": {"signIn": {"mode": "ldap"}}}, "at '/web/signIn/mode'"),
    ({"web": {"ingress": {"host": "https://x.example"}}}, "at '/web/ingress/host'"),
    ({"report": {"schedule": "weekly"}}, "at '/report/schedule'"),
    ({"report": {"timeZone": "+02:00"}}, "at '/report/timeZone'"),
    ({"metrics": {"interval": "half a minute"}}, "at '/metrics/interval'"),
    ({"networkPolicy": {"apiServerPorts": [0]}}, "at '/networkPolicy/apiServerPorts/0'"),
    ({"settings": {"agent": {"cadence_seconds": "ten"}}}, "at '/settings/agent/cadence_seconds'"),
    ({"settings": {"agent": {"cadence_second": 10}}}, "at '/settings/agent'"),
    ({"settings": {"server": {"port": 80}}}, "at '/settings/server'"),
    ({"settings": {"store": {"memory_limit_ratio": 1.5}}}, "at '/settings/store/memory_limit_ratio'"),
    ({"settings": {"mail": {"operators": "amy@example.org"}}}, "at '/settings/mail/operators'"),
]

IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    ({"tls": {"source": "existing"}}, "tls.existingSecret"),
    ({"tls": {"source": "certManager"}}, "tls.certManager.issuerName"),
    ({"web": {"signIn": {"mode": "oidc"}}}, "web.signIn.existingSecret"),
    ({"web": {"ingress": {"enabled": True, "host": "x.example"}}}, "everybody would see everything"),
    ({"web": {"replicas": 2}}, "web.signIn.mode proxy"),
    ({"report": {"enabled": True}}, "settings.mail.smtp_host"),
    ({"metrics": {"server": {"serviceMonitor": True}}}, "metrics.server.existingSecret"),
]


def test_what_is_made_from_other_files_is_up_to_date() -> None:
    script = chart.REPOSITORY / "deploy" / "helm" / "generate.py"
    ran = subprocess.run(
        [sys.executable, str(script), "--check"],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(chart.REPOSITORY)},
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("path", chart.ci_files(), ids=lambda path: path.name.removesuffix("-values.yaml"))
def test_lint_has_nothing_to_say(path: Path) -> None:
    ran = chart.run("lint", "--strict", str(chart.CHART), "-f", str(path))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "WARNING" not in ran.stdout


@pytest.mark.parametrize(("values", "place"), BAD, ids=lambda one: one if isinstance(one, str) else "")
def test_the_schema_refuses_a_bad_value_and_says_where(values: dict[str, Any], place: str) -> None:
    ran = chart.template({**values})
    assert ran.returncode != 0
    assert place in ran.stderr, ran.stderr


@pytest.mark.parametrize(("values", "words"), IMPOSSIBLE, ids=lambda one: one if isinstance(one, str) else "")
def test_values_that_contradict_each_other_are_refused_in_one_line(values: dict[str, Any], words: str) -> None:
    ran = chart.template({**STEADY, **values})
    assert ran.returncode != 0
    assert words in ran.stderr, ran.stderr


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_kubernetes_knows_every_field_of_every_object(all_ci: dict[str, chart.Rendered], version: str) -> None:
    seen: set[str] = set()
    for one in (one for made in all_ci.values() for one in made.objects):
        text = repr(one)
        if one["kind"] in NOT_OF_KUBERNETES or text in seen:
            continue
        seen.add(text)
        kubernetes_validate.validate(one, version, strict=True)
    assert seen


def test_switches_go_together_in_any_way() -> None:
    for agent, jobs, web, tls, net in product([False, True], repeat=5):
        values = {
            **STEADY,
            "agent": {"enabled": agent},
            "jobs": {"enabled": jobs},
            "web": {"enabled": web},
            "tls": STEADY["tls"] if tls else {"source": "none"},
            "networkPolicy": {"enabled": net},
            "metrics": {"agents": {"podMonitor": True}},
        }
        made = chart.rendered(values)
        there = {component for component, _, _ in made.pods()}
        wanted = {("agent", agent), ("jobs", jobs), ("web", web), ("server", True), ("test", True)}
        assert there == {name for name, is_on in wanted if is_on}
        assert bool(made.of("NetworkPolicy")) == net
        assert bool(made.of("PodMonitor")) == agent


def test_a_cluster_that_is_too_old_is_refused_and_a_vendors_suffix_is_not() -> None:
    assert chart.template(STEADY, "--kube-version", "1.26.9").returncode != 0
    assert chart.template(STEADY, "--kube-version", "1.27.3-eks-a5565ad").returncode == 0


def test_no_registry_is_left_but_the_one_that_is_named() -> None:
    made = chart.rendered({**chart.ci_values(chart.CHART / "ci" / "everything-values.yaml"), **_registry()})
    images = [one["image"] for _, _, spec in made.pods() for one in chart.containers(spec)]
    assert images
    assert all(image.startswith("r.example:5000/x/") for image in images)


def _registry() -> dict[str, Any]:
    return {"global": {"imageRegistry": "r.example:5000/x", "imagePullSecrets": ["registry"]}}


def test_a_digest_wins_over_the_tag(all_ci: dict[str, chart.Rendered]) -> None:
    made = all_ci["closed-network"].one("DaemonSet", "agent")
    (agent,) = made["spec"]["template"]["spec"]["containers"]
    assert re.fullmatch(r"registry\.example\.org:5000/trueload/agent@sha256:a{64}", agent["image"])


def test_the_notes_say_what_is_on_what_is_off_and_what_to_do_next() -> None:
    ran = chart.run("install", "tl", str(chart.CHART), "-n", "gpu", "--dry-run=client")
    notes = ran.stdout.partition("NOTES:")[2]
    assert (
        "On:  server (https://tl-trueload-server.gpu.svc:8411), agents, jobs collector, pages (sign-in: none)" in notes
    )
    assert "Off: weekly report (report.enabled)" in notes
    assert "port-forward deployment/tl-trueload-web 8501" in notes
    assert "0 means that agent.nodeSelector or agent.tolerations fit no node" in notes
    assert "kubectl get nodes -l 'nvidia.com/gpu.present=true'" in notes


def test_the_render_of_a_site_is_the_one_that_was_reviewed() -> None:
    ran = chart.template(chart.ci_values(chart.CHART / "ci" / "gitops-values.yaml"))
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == GOLDEN.read_text(encoding="utf-8"), f"review the change, then write it to {GOLDEN}"


@pytest.mark.parametrize("path", PREVIOUS, ids=lambda path: path.name)
def test_values_of_a_version_that_was_released_still_do(path: Path) -> None:
    old = chart.rendered(chart.ci_values(path))
    names = {(one["kind"], one["metadata"]["name"]) for one in old.objects}
    assert ("StatefulSet", "tl-trueload-server") in names
    claims = old.one("StatefulSet", "server")["spec"]["volumeClaimTemplates"]
    assert [one["metadata"]["name"] for one in claims] == ["data"], "another name would begin with an empty store"
