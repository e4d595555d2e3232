"""What no schema of Kubernetes sees: selectors, ports, secrets, rights, Pod Security, and who may speak to whom."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from collector.jobs import _kube_reflect, _kube_watch, _resource_slices
from tests.deploy import chart
from tests.deploy.chart import Object, Rendered

SITE_MAKES = {
    *("trueload-tokens", "trueload-tls", "trueload-identity", "trueload-proxy", "trueload-smtp", "trueload-oidc"),
    *("trueload-metrics", "trueload-web-tls", "registry"),
}
"""Secrets that the files of ci/ name as the site's own."""

NO_PROBES = {"jobs", "report", "test"}
"""Listens to nobody; or runs to its end."""

AGENT_PATHS = {
    "/var/lib/trueload": False,
    "/var/lib/kubelet/pod-resources": True,
    "/var/log/pods": True,
    "/sys/fs/cgroup": True,
}
"""What the agent sees of its node, and whether it may read alone."""

OUTSIDE = "outside"
FLOWS = {
    *((client, "server", 8411) for client in ("agent", "jobs", "web", "report", "test")),
    ("monitoring", "server", 8411),
    ("monitoring", "agent", 9412),
    ("ingress", "web", 8501),
}
"""The picture of README.md, inside the cluster."""

OUTWARD = {("jobs", 443), ("jobs", 6443), ("agent", 443), ("agent", 6443), ("report", 465)}
PEERS: dict[str, dict[str, str]] = {
    "monitoring": {"kubernetes.io/metadata.name": "monitoring"},
    "ingress": {"kubernetes.io/metadata.name": "ingress"},
    "elsewhere": {"kubernetes.io/metadata.name": "elsewhere"},
}


@pytest.fixture(params=[path.name.removesuffix("-values.yaml") for path in chart.ci_files()])
def made(request: pytest.FixtureRequest, all_ci: dict[str, Rendered]) -> Rendered:
    return all_ci[request.param]


def matches(selector: Object | None, labels: Mapping[str, str]) -> bool:
    """Say whether a label selector takes these labels; an empty one takes all."""
    selector = selector or {}
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for one in selector.get("matchExpressions") or ():
        assert one["operator"] == "In"
        if labels.get(one["key"]) not in one["values"]:
            return False
    return True


def test_every_selector_takes_the_pods_of_its_own_part_and_no_others(made: Rendered) -> None:
    pods = {component: metadata["labels"] for component, metadata, _ in made.pods()}
    for one in made.objects:
        template, kind = chart.pod_template(one), one["kind"]
        if kind in {"Deployment", "DaemonSet", "StatefulSet"} and template is not None:
            assert matches(one["spec"]["selector"], template["metadata"]["labels"])
        if kind in {"Deployment", "DaemonSet", "StatefulSet", "PodDisruptionBudget", "PodMonitor"}:
            taken = {name for name, labels in pods.items() if matches(one["spec"]["selector"], labels)}
            assert taken == {one["metadata"]["labels"]["app.kubernetes.io/component"]}
        if kind == "Service":
            taken = {name for name, labels in pods.items() if matches({"matchLabels": one["spec"]["selector"]}, labels)}
            assert taken == {one["metadata"]["labels"]["app.kubernetes.io/component"]}


def test_every_port_that_is_named_is_there(made: Rendered) -> None:
    ports = {
        component: {one["name"]: one["containerPort"] for c in spec["containers"] for one in c.get("ports") or ()}
        for component, _, spec in made.pods()
    }
    services: dict[str, set[str]] = {}
    for one in made.of("Service"):
        component = one["metadata"]["labels"]["app.kubernetes.io/component"]
        services[one["metadata"]["name"]] = {port["name"] for port in one["spec"]["ports"]}
        assert {port["targetPort"] for port in one["spec"]["ports"]} <= set(ports[component])
    for component, _, spec in made.pods():
        for container in chart.containers(spec):
            probes = (container.get(f"{name}Probe") or {} for name in ("startup", "liveness", "readiness"))
            assert {probe["httpGet"]["port"] for probe in probes if "httpGet" in probe} <= set(ports[component])
    for one in made.of("Ingress"):
        backend = one["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
        assert backend["port"]["name"] in services[backend["name"]]
    for one in made.of("ServiceMonitor"):
        assert {end["port"] for end in one["spec"]["endpoints"]} <= set().union(*services.values())
    for one in made.of("PodMonitor"):
        assert {end["port"] for end in one["spec"]["podMetricsEndpoints"]} <= set(ports["agent"])


def test_arguments_name_the_port_and_the_address_of_the_service(made: Rendered) -> None:
    (server,) = [one for one in made.of("Service") if one["metadata"]["name"].endswith("-server")]
    scheme = server["spec"]["ports"][0]["name"]
    expected = f"{scheme}://{server['metadata']['name']}.gpu.svc:{server['spec']['ports'][0]['port']}"
    told = {
        word
        for _, _, spec in made.pods()
        for container in chart.containers(spec)
        for text in [*(container.get("args") or ()), *(str(one.get("value")) for one in container.get("env") or ())]
        for word in re.findall(r"https?://[a-z0-9.-]+:8411", text)
    }
    assert told == {expected}


def test_every_volume_is_of_something_that_the_chart_or_the_site_makes_and_is_mounted(made: Rendered) -> None:
    ours = {(one["kind"], one["metadata"]["name"]) for one in made.objects}
    secrets = SITE_MAKES | {one["spec"]["secretName"] for one in made.of("Certificate")}
    for _, _, spec in made.pods():
        volumes = {one["name"]: one for one in spec.get("volumes") or ()}
        mounted = {one["name"] for container in chart.containers(spec) for one in container["volumeMounts"]}
        claimed = {"data"} if any(made.of("StatefulSet")) else set()
        assert set(volumes) <= mounted
        assert mounted <= set(volumes) | claimed
        for one in volumes.values():
            if "secret" in one:
                name = one["secret"]["secretName"]
                assert ("Secret", name) in ours or name in secrets
            if "configMap" in one:
                name = one["configMap"]["name"]
                assert ("ConfigMap", name) in ours or name == "trueload-gpus"
            if "persistentVolumeClaim" in one:
                name = one["persistentVolumeClaim"]["claimName"]
                assert ("PersistentVolumeClaim", name) in ours or name == "trueload-data"
        assert {one["name"] for one in spec.get("imagePullSecrets") or ()} <= SITE_MAKES
        accounts = {one["metadata"]["name"] for one in made.of("ServiceAccount")} | {"default"}
        assert spec.get("serviceAccountName", "default") in accounts


def test_a_token_is_seen_by_the_part_that_needs_it_alone(made: Rendered) -> None:
    seen: dict[str, set[str]] = {}
    for component, _, spec in made.pods():
        for volume in spec["volumes"]:
            if volume["name"] == "tokens":
                seen[component] = {item["key"] for item in volume["secret"]["items"]}
    wanted = {
        "agent": {"join-token"},
        "jobs": {"agent-token"},
        "web": {"operator-token"},
        "report": {"operator-token"},
        "test": {"operator-token"},
        "server": {"join-token", "agent-token", "operator-token"},
    }
    assert seen == {component: wanted[component] for component in seen}


def test_no_secret_stands_in_a_variable_an_argument_or_a_config_map(made: Rendered) -> None:
    for _, _, spec in made.pods():
        for container in chart.containers(spec):
            assert not any("secretKeyRef" in repr(one) for one in container.get("env") or ())
            assert "envFrom" not in container


def test_no_service_puts_variables_into_a_pod(made: Rendered) -> None:
    # TRUELOAD_SERVER_PORT of a Service "trueload-server" would be an unknown setting, and no part would start.
    assert all(spec["enableServiceLinks"] is False for _, _, spec in made.pods())


def restricted(spec: Object) -> Iterator[str]:
    """Give what of a pod Pod Security "restricted" refuses (Kubernetes' Pod Security Standards)."""
    for name in ("hostPID", "hostIPC", "hostNetwork"):
        if spec.get(name):
            yield name
    allowed = {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
    for volume in spec.get("volumes") or ():
        yield from (f"volume {kind}" for kind in set(volume) - {"name"} - allowed)
    whole = spec.get("securityContext") or {}
    for container in chart.containers(spec):
        yield from _restricted_container(container, whole)


def _restricted_container(container: Object, whole: Object) -> Iterator[str]:
    own = container.get("securityContext") or {}
    capabilities = own.get("capabilities") or {}
    yield from (f"capability {one}" for one in set(capabilities.get("add") or ()) - {"NET_BIND_SERVICE"})
    seccomp = (own.get("seccompProfile") or whole.get("seccompProfile") or {}).get("type")
    refused = {
        "capabilities not dropped": "ALL" not in (capabilities.get("drop") or ()),
        "privileged": bool(own.get("privileged")),
        "allowPrivilegeEscalation": own.get("allowPrivilegeEscalation") is not False,
        "runAsNonRoot": not own.get("runAsNonRoot", whole.get("runAsNonRoot")),
        "runAsUser 0": own.get("runAsUser", whole.get("runAsUser")) == 0,
        "seccompProfile": seccomp not in {"RuntimeDefault", "Localhost"},
        "hostPort": any("hostPort" in port for port in container.get("ports") or ()),
    }
    yield from (name for name, is_so in refused.items() if is_so)


def test_all_but_the_agent_pass_restricted_and_the_agents_exceptions_are_these(made: Rendered) -> None:
    for component, _, spec in made.pods():
        found = set(restricted(spec))
        if component == "agent":
            assert found == {
                *("hostPID", "volume hostPath", "runAsNonRoot", "runAsUser 0"),
                *("capability SYS_PTRACE", "capability DAC_READ_SEARCH"),
            }
        else:
            assert found == set(), component


def test_every_root_is_read_only_every_container_bounded_and_every_service_probed(made: Rendered) -> None:
    for component, _, spec in made.pods():
        for container in chart.containers(spec):
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert {"cpu", "memory"} <= set(container["resources"]["requests"])
            assert "memory" in container["resources"]["limits"]
            assert not container["image"].endswith(":latest")
            assert "nvidia.com/gpu" not in repr(container["resources"])
        probed = {"livenessProbe", "readinessProbe"} <= set(spec["containers"][0])
        assert probed == (component not in NO_PROBES)


def test_the_agent_sees_four_folders_of_its_node_and_writes_one(all_ci: dict[str, Rendered]) -> None:
    spec = all_ci["default"].one("DaemonSet", "agent")["spec"]["template"]["spec"]
    paths = {one["name"]: one["hostPath"]["path"] for one in spec["volumes"] if "hostPath" in one}
    mounts = {one["name"]: one.get("readOnly", False) for one in spec["containers"][0]["volumeMounts"]}
    assert {path: mounts[name] for name, path in paths.items()} == AGENT_PATHS
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in spec["tolerations"]


def test_a_users_pod_that_opts_in_to_tracing_passes_restricted() -> None:
    found = yaml.safe_load((chart.CHART / "ci" / "traced-pod.yaml").read_text(encoding="utf-8"))
    assert set(restricted(found["spec"])) == set()


# ------------------------------------------------------------------------------------------------------ rights


def granted(made: Rendered, part: str) -> set[tuple[str, str, str]]:
    """Give (group, resource, verb) of a part's ClusterRole."""
    roles = [one for one in made.of("ClusterRole") if one["metadata"]["name"].endswith(f"-{part}")]
    rules = [rule for one in roles for rule in one["rules"]]
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_collector_of_jobs_may_list_and_watch_exactly_what_its_code_follows(everything: Rendered) -> None:
    followed = {
        _of_path(path) for path in (_kube_watch.PODS, *(one for kind in _kube_reflect.KINDS for one in kind.paths))
    }
    may = granted(everything, "jobs")
    assert {(group, resource) for group, resource, verb in may if verb != "get"} == followed
    assert {verb for *_, verb in may} == {"get", "list", "watch"}, "it writes nothing"
    for group, resource in followed:
        assert {(group, resource, "list"), (group, resource, "watch")} <= may


def test_it_may_get_the_owners_of_pods_and_no_secret_or_config_map(everything: Rendered) -> None:
    gets = {(group, resource) for group, resource, verb in granted(everything, "jobs") if verb == "get"}
    assert {group for group, resource in gets if resource == "*"} == {
        *("jobset.x-k8s.io", "kubeflow.org", "ray.io", "batch.volcano.sh", "argoproj.io")
    }
    assert {one for one in gets if one[1] != "*"} == {
        *(("apps", name) for name in ("replicasets", "deployments", "statefulsets")),
        ("batch", "jobs"),
    }


def test_the_agent_may_list_resource_slices_and_only_where_it_is_told_to(all_ci: dict[str, Rendered]) -> None:
    source = Path(_resource_slices.__file__).read_text(encoding="utf-8")
    assert "resource.k8s.io" in source
    assert granted(all_ci["everything"], "agent") == {("resource.k8s.io", "resourceslices", "list")}
    assert granted(all_ci["default"], "agent") == set()


def test_a_token_of_the_api_server_is_mounted_where_the_api_is_used_alone(made: Rendered) -> None:
    holders = {component for component, _, spec in made.pods() if spec["automountServiceAccountToken"]}
    bound = {one["subjects"][0]["name"].rpartition("-")[2] for one in made.of("ClusterRoleBinding")}
    assert holders == bound
    for one in made.of("ClusterRoleBinding"):
        assert one["roleRef"]["name"] in {role["metadata"]["name"] for role in made.of("ClusterRole")}


def _of_path(path: str) -> tuple[str, str]:
    parts = path.strip("/").split("/")
    return (parts[1] if parts[0] == "apis" else "", parts[-1])


# ----------------------------------------------------------------------------------------------------- network


def allowed(made: Rendered, policy_type: str, labels: Mapping[str, str]) -> list[tuple[list[Any] | None, set[int]]]:
    """Give the rules of all policies that hold for a pod: peers (None: anybody) and ports."""
    found: list[tuple[list[Any] | None, set[int]]] = []
    for one in made.of("NetworkPolicy"):
        spec = one["spec"]
        if policy_type in spec["policyTypes"] and matches(spec["podSelector"], labels):
            rules = spec.get(policy_type.lower()) or ()
            side = "from" if policy_type == "Ingress" else "to"
            found += [(rule.get(side), {port["port"] for port in rule["ports"]}) for rule in rules]
    return found


def reaches(peer: Object, labels: Mapping[str, str] | None, namespace: Mapping[str, str] | None) -> bool:
    """Say whether a peer means a pod (``labels``) of this namespace, or one of another (``namespace``)."""
    if "ipBlock" in peer:
        return False
    if namespace is None:
        return "namespaceSelector" not in peer and labels is not None and matches(peer["podSelector"], labels)
    return "namespaceSelector" in peer and matches(peer["namespaceSelector"], namespace)


def test_what_the_picture_shows_may_pass_and_nothing_else(everything: Rendered) -> None:
    pods = {component: metadata["labels"] for component, metadata, _ in everything.pods()}
    sources: list[tuple[str, Mapping[str, str] | None, Mapping[str, str] | None]] = [
        *((name, labels, None) for name, labels in pods.items()),
        *((name, None, namespace) for name, namespace in PEERS.items()),
    ]
    passing: set[tuple[str, str, int]] = set()
    for target, target_labels in pods.items():
        for name, labels, namespace in sources:
            into = {
                port
                for peers, ports in allowed(everything, "Ingress", target_labels)
                for port in ports
                if peers is None or any(reaches(peer, labels, namespace) for peer in peers)
            }
            out = into if labels is None else _ports_out(everything, labels, target_labels)
            passing |= {(name, target, port) for port in into & out}
    assert passing == FLOWS


def _ports_out(made: Rendered, labels: Mapping[str, str], target: Mapping[str, str]) -> set[int]:
    return {
        port
        for peers, ports in allowed(made, "Egress", labels)
        for port in ports
        if peers is None or any(reaches(peer, target, None) for peer in peers)
    }


def test_what_goes_out_of_the_cluster_is_names_the_api_server_and_mail(everything: Rendered) -> None:
    outward = {
        (component, port)
        for component, metadata, _ in everything.pods()
        for peers, ports in allowed(everything, "Egress", metadata["labels"])
        for port in ports
        if peers is None or any("ipBlock" in peer for peer in peers)
    }
    assert outward == OUTWARD


def test_the_provider_is_reached_by_the_pages_alone(all_ci: dict[str, Rendered]) -> None:
    made = all_ci["oidc"]
    to_anybody = {
        component
        for component, metadata, _ in made.pods()
        for peers, ports in allowed(made, "Egress", metadata["labels"])
        if peers is None and ports == {443}
    }
    assert to_anybody == {"web"}


# ------------------------------------------------------------------------------------------- what else is said


def test_pages_that_nobody_signs_in_to_listen_inside_their_pod_and_have_no_service(all_ci: dict[str, Rendered]) -> None:
    made = all_ci["default"]
    (web,) = made.one("Deployment", "web")["spec"]["template"]["spec"]["containers"]
    assert web["args"][web["args"].index("--host") + 1] == "127.0.0.1"
    assert not [one for one in made.of("Service") if one["metadata"]["name"].endswith("-web")]


def test_dashboards_and_rules_are_those_of_deploy(everything: Rendered) -> None:
    (rule,) = everything.of("PrometheusRule")
    source = chart.REPOSITORY / "deploy" / "prometheus" / "trueload.rules.yaml"
    assert rule["spec"] == yaml.safe_load(source.read_text(encoding="utf-8"))
    boards = {name: text for one in everything.of("ConfigMap") for name, text in one["data"].items() if ".json" in name}
    for name, text in boards.items():
        source = chart.REPOSITORY / "deploy" / "grafana" / name
        assert json.loads(text) == json.loads(source.read_text(encoding="utf-8"))
    assert set(boards) == {path.name for path in (chart.REPOSITORY / "deploy" / "grafana").glob("*.json")}


def test_monitors_take_the_labels_of_what_they_scrape_as_they_are(everything: Rendered) -> None:
    (pods,), (services,) = everything.of("PodMonitor"), everything.of("ServiceMonitor")
    assert pods["spec"]["podMetricsEndpoints"][0]["honorLabels"] is True
    assert services["spec"]["endpoints"][0]["honorLabels"] is True


def test_each_kind_of_object_that_a_site_must_allow_is_known(all_ci: dict[str, Rendered]) -> None:
    assert all_ci["default"].of("SecurityContextConstraints") == []
    (one,) = all_ci["openshift"].of("SecurityContextConstraints")
    assert one["users"] == ["system:serviceaccount:gpu:tl-trueload-agent"]
    assert one["allowedCapabilities"] == ["SYS_PTRACE", "DAC_READ_SEARCH"]
    assert one["allowPrivilegedContainer"] is False


def test_every_object_bears_the_sites_labels_and_every_namespaced_one_the_namespace(everything: Rendered) -> None:
    for one in everything.objects:
        assert one["metadata"]["labels"]["team"] == "platform"
        assert one["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm"
        if not one["kind"].startswith(("ClusterRole", "SecurityContextConstraints")):
            assert one["metadata"]["namespace"] == "gpu"
