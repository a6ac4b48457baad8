"""What is installed fits together, fits Kubernetes, and runs with as little as it can."""

import configparser
import fnmatch
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from controller.commands import descheduler, soft_tainter
from controller.policy.parse import default_policy
from tests.charts.helm import (
    CHART,
    NAMESPACE,
    RELEASE,
    ROOT,
    Object,
    named,
    of_kind,
    render,
    run_helm,
    try_template,
)
from tests.charts.matrix import MATRIX, rendered
from tests.charts.prometheus_operator import SCHEMAS
from tests.simulator.promtool import check_rules

COMMANDS = {"descheduler": descheduler, "soft-tainter": soft_tainter}
CLUSTER_SCOPED = {
    "ClusterRole",
    "ClusterRoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}
OF_THE_PROMETHEUS_OPERATOR = set(SCHEMAS)
matrix = pytest.mark.parametrize("name", MATRIX)


def pods(objects: list[Object]) -> list[tuple[str, Object]]:
    """Name of the owner and pod template of all that run pods."""
    return [(o["metadata"]["name"], o["spec"]["template"]) for o in of_kind(objects, "Deployment", "Job")]


def containers(objects: list[Object]) -> list[Object]:
    return [container for _, pod in pods(objects) for container in pod["spec"]["containers"]]


def selects(selector: dict[str, str], labels: dict[str, str]) -> bool:
    return selector.items() <= labels.items()


def kinds(objects: list[Object]) -> set[tuple[str, str]]:
    return {(o["kind"], o["metadata"]["name"]) for o in objects}


@matrix
@pytest.mark.parametrize("version", ["1.30", kubernetes_validate.latest_version()])
def test_fits_the_schemas_of_kubernetes(name: str, version: str) -> None:
    for obj in rendered(name):
        if obj["kind"] not in OF_THE_PROMETHEUS_OPERATOR:
            kubernetes_validate.validate(obj, version, strict=True)


@matrix
def test_fits_the_schemas_of_the_prometheus_operator(name: str) -> None:
    for obj in of_kind(rendered(name), *OF_THE_PROMETHEUS_OPERATOR):
        jsonschema.validate(obj, SCHEMAS[obj["kind"]])


@matrix
def test_prometheus_understands_the_rules(name: str, tmp_path: Path) -> None:
    for number, obj in enumerate(of_kind(rendered(name), "PrometheusRule")):
        file = tmp_path / f"{number}.yaml"
        file.write_text(yaml.safe_dump(obj["spec"]), encoding="utf-8")
        check_rules(file)


@matrix
def test_lints_without_a_warning(name: str) -> None:
    flags = [
        f for pair in zip(MATRIX[name], MATRIX[name][1:], strict=False) if pair[0] == "--values" for f in pair
    ]
    done = run_helm("lint", "--strict", str(CHART), *flags)
    assert done.returncode == 0, done.stdout


@matrix
def test_is_complete_and_unambiguous(name: str) -> None:
    objects = rendered(name)
    assert len({(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in objects}) == len(
        objects
    )
    for obj in objects:
        assert obj["metadata"]["labels"]["app.kubernetes.io/instance"] == RELEASE
        assert ("namespace" in obj["metadata"]) is (obj["kind"] not in CLUSTER_SCOPED)


@matrix
def test_fits_the_restricted_profile(name: str) -> None:
    """Pod Security Standards' `restricted`, and OpenShift's restricted-v2, which assigns users and groups itself."""
    for _, template in pods(rendered(name)):
        spec = template["spec"]
        assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & spec.keys()
        assert all(v.keys() & {"emptyDir", "configMap", "secret"} for v in spec["volumes"])
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
            }


@matrix
def test_every_reference_leads_to_something(name: str) -> None:
    objects = rendered(name)
    there = kinds(objects)
    for owner, template in pods(objects):
        spec = template["spec"]
        assert ("ServiceAccount", spec["serviceAccountName"]) in there, owner
        for volume in spec["volumes"]:
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in there, owner
    for binding in of_kind(objects, "RoleBinding", "ClusterRoleBinding"):
        role = binding["roleRef"]
        assert (role["kind"], role["name"]) in there or role["name"] == "cluster-monitoring-view"
        for subject in binding["subjects"]:
            assert ("ServiceAccount", subject["name"]) in there or subject[
                "namespace"
            ] == "openshift-monitoring"


@matrix
def test_the_programs_understand_their_arguments(name: str) -> None:
    objects = rendered(name)
    for container in containers(objects):
        program, *arguments = container["args"]
        given = COMMANDS[program].make_context(program, arguments).params
        for flag, kind in (("policy_configmap", "ConfigMap"), ("lease", "Role")):
            namespace, _, own = given[flag].partition("/")
            assert namespace == NAMESPACE
            if kind == "ConfigMap":
                assert (kind, own) in kinds(objects)


@matrix
def test_selectors_find_the_pods_they_mean(name: str) -> None:
    objects = rendered(name)
    labels = {owner: template["metadata"]["labels"] for owner, template in pods(objects)}
    for deployment in of_kind(objects, "Deployment"):
        own = deployment["metadata"]["name"]
        selectors = [deployment["spec"]["selector"]["matchLabels"]]
        selectors += [
            constraint["labelSelector"]["matchLabels"]
            for constraint in deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
        ]
        selectors += [
            o["spec"]["selector"]["matchLabels"]
            for o in of_kind(objects, "PodDisruptionBudget")
            if o["metadata"]["name"] == own
        ]
        selectors += [
            o["spec"]["selector"] for o in of_kind(objects, "Service") if o["metadata"]["name"] == own
        ]
        for selector in selectors:
            assert [owner for owner in labels if selects(selector, labels[owner])] == [own]
    for policy in of_kind(objects, "NetworkPolicy"):
        assert all(selects(policy["spec"]["podSelector"]["matchLabels"], found) for found in labels.values())
    for monitor in of_kind(objects, "ServiceMonitor"):
        services = of_kind(objects, "Service")
        assert services
        assert all(
            selects(monitor["spec"]["selector"]["matchLabels"], s["metadata"]["labels"]) for s in services
        )


def test_probes_and_metrics_are_where_the_program_listens() -> None:
    for deployment in of_kind(rendered("openshift"), "Deployment"):
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        listens = (
            COMMANDS[container["args"][0]].make_context("program", container["args"][1:]).params["listen"]
        )
        assert container["ports"] == [{"name": "metrics", "containerPort": listens[1], "protocol": "TCP"}]
        assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "metrics"}
        assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "metrics"}


def test_the_default_policy_finds_its_files_on_openshift() -> None:
    metrics = default_policy().metrics
    for container in containers(rendered("openshift")):
        mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert metrics.ca_file.rpartition("/")[0] in mounted
    config_map = named(rendered("openshift"), "ConfigMap", "service-ca")
    assert config_map["metadata"]["annotations"] == {"service.beta.openshift.io/inject-cabundle": "true"}
    assert metrics.ca_file.endswith("/service-ca.crt")


@pytest.mark.parametrize(
    ("url", "namespace", "port"),
    [
        (None, "openshift-monitoring", 9091),
        ("https://prometheus.monitoring.svc", "monitoring", 443),
        ("https://prometheus.monitoring.svc/prefix", "monitoring", 443),
        ("https://prometheus.monitoring.svc.cluster.local:9090/", "monitoring", 9090),
        ("https://svc.example.com:9443", None, 9443),
        ("https://a.b.svcs.example.com", None, 443),
        ("https://10.0.0.7:9090", None, 9090),
        ("https://[fd00::7]:9090/x", None, 9090),
    ],
)
def test_the_network_policy_follows_the_url(url: str | None, namespace: str | None, port: int) -> None:
    objects = render(values={"policy": {"metrics": {"url": url}}} if url else {})
    spec = named(objects, "NetworkPolicy")["spec"]
    prometheus = spec["egress"][-1]
    assert prometheus["ports"] == [{"protocol": "TCP", "port": port}]
    there = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}]
    assert prometheus.get("to") == (there if namespace else None)
    assert spec["ingress"][0]["from"] == (there if namespace else [{"namespaceSelector": {}}])


SWITCHES = {
    "softTainter.enabled": "*-soft-tainter *-cleanup",
    "softTainter.admissionPolicy.enabled": "ValidatingAdmissionPolicy/* ValidatingAdmissionPolicyBinding/*",
    "softTainter.cleanup.enabled": "Job/*",
    "monitoring.serviceMonitor.enabled": "ServiceMonitor/* PrometheusRule/*-alerts *-prometheus",
    "monitoring.recordingRules": "PrometheusRule/*-recording",
    "monitoring.alerts": "PrometheusRule/*-alerts",
    "monitoring.dashboard.enabled": "ConfigMap/*-dashboard",
    "networkPolicy.enabled": "NetworkPolicy/*",
    "podDisruptionBudget.enabled": "PodDisruptionBudget/*",
}


@pytest.mark.parametrize("switch", SWITCHES)
def test_a_switch_takes_off_what_it_names_and_nothing_else(switch: str) -> None:
    whole = {"/".join(key) for key in kinds(rendered("openshift"))}
    left = {"/".join(key) for key in kinds(render(*MATRIX["openshift"], f"--set={switch}=false"))}
    assert left < whole
    patterns = [p if "/" in p else f"*/{p}" for p in SWITCHES[switch].split()]
    gone = whole - left
    assert gone == {key for key in whole if any(fnmatch.fnmatchcase(key, p) for p in patterns)}


def test_what_needs_the_prometheus_operator_is_there_only_with_its_api() -> None:
    assert {o["kind"] for o in rendered("openshift")} >= OF_THE_PROMETHEUS_OPERATOR
    assert not {o["kind"] for o in rendered("openshift-old")} & OF_THE_PROMETHEUS_OPERATOR
    assert {o["kind"] for o in rendered("everything")} >= OF_THE_PROMETHEUS_OPERATOR  # forced


def test_refuses_a_kubernetes_without_admission_policies() -> None:
    assert "requires kubeVersion: >=1.30" in try_template("--kube-version", "1.29.9").stderr


def test_a_misspelt_value_is_refused() -> None:
    assert "podDisruptionBudgets" in try_template("--set=podDisruptionBudgets.enabled=false").stderr


def test_changing_the_policy_restarts_nothing() -> None:
    """A good policy takes effect without a restart."""
    changed = render(values={"policy": {"mode": "Automatic", "evictions": {"minGain": 0.5}}})
    assert of_kind(changed, "Deployment") == of_kind(render(), "Deployment")


def test_long_names_stay_within_a_label() -> None:
    objects = render("--set=fullnameOverride=" + "a-" * 40, "--set=nameOverride=" + "b-" * 40)
    for obj in objects:
        assert len(obj["metadata"]["name"]) <= 63
        assert all(len(value) <= 63 for value in obj["metadata"]["labels"].values())


def test_the_clean_up_runs_before_anything_is_deleted() -> None:
    job = named(rendered("openshift"), "Job", "cleanup")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"
    assert "hook-failed" not in job["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    (running,) = named(rendered("openshift"), "Deployment", "soft-tainter")["spec"]["template"]["spec"][
        "containers"
    ]
    assert "--cleanup" in container["args"]
    assert [a for a in container["args"] if a.startswith("--lease=")] == [
        a for a in running["args"] if a.startswith("--lease=")
    ]


def test_versions_are_the_project_s() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    chart: dict[str, Any] = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["version"] == chart["appVersion"] == setup["metadata"]["version"]
