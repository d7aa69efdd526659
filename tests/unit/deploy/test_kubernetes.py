"""Manifests and Helm chart: valid, consistent with the job, and rendered if kubectl, kustomize or helm is installed."""

import base64
import json
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click import Option

from streaming.cli.run import run
from streaming.config import Settings
from streaming.local.process import cache_folder
from streaming.monitor.server import checked_token

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy" / "kubernetes"
RELEASE = "v1.36.3"
OF_OPERATORS = {"ServiceMonitor"}
"""Kinds that are no part of Kubernetes: their fields are checked by the operators that bring them."""
KUSTOMIZE = [["kustomize", "build"], ["kubectl", "kustomize"]]
RENDERER = next((command for command in KUSTOMIZE if shutil.which(command[0])), None)

CHART = ROOT / "deploy" / "helm"
HELM = shutil.which("helm") or next(map(str, cache_folder().glob("helm/*/helm")), None)
"""Program on the PATH, or the one that `make test-helm` builds."""

helm_only = pytest.mark.skipif(HELM is None, reason="helm is not installed (make test-helm builds it)")
rendered_only = pytest.mark.skipif(RENDERER is None, reason="neither kustomize nor kubectl is on the PATH")
Resource = dict[str, Any]


@cache
def schemas() -> dict[str, Any]:
    file = ROOT / "tests" / "fixtures" / "kubernetes" / f"{RELEASE}.json"
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def check(resource: Resource) -> None:
    if resource["kind"] not in OF_OPERATORS:
        kind = schemas()["kinds"][f"{resource['apiVersion']}/{resource['kind']}"]
        schema = {"$ref": f"#/definitions/{kind}", "definitions": schemas()["definitions"]}
        jsonschema.Draft4Validator(schema).validate(resource)


def load(file: Path) -> Resource:
    found: Resource = yaml.safe_load(file.read_text(encoding="utf-8"))
    return found


KUSTOMIZATIONS = {file.parent.name: load(file) for file in sorted(FOLDER.glob("*/kustomization.yaml"))}
COMPONENTS = [name for name, found in KUSTOMIZATIONS.items() if found["kind"] == "Component"]
OVERLAYS = [name for name, found in KUSTOMIZATIONS.items() if found["kind"] == "Kustomization" and name != "base"]
RESOURCES = [
    FOLDER / name / file
    for name, found in KUSTOMIZATIONS.items()
    for file in found.get("resources", [])
    if file.endswith(".yaml")
]


def render(folder: Path, overlay: str) -> dict[str, Resource]:
    """An overlay with all components, by kind; options of Spark are apart from the settings, and policies by name."""
    assert RENDERER
    near = os.path.relpath(FOLDER, folder.resolve())  # absolute paths are refused
    content = {"resources": [f"{near}/{overlay}"], "components": [f"{near}/{name}" for name in COMPONENTS]}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    output = subprocess.run([*RENDERER, folder], capture_output=True, text=True, check=True).stdout
    return {_key(resource["kind"], resource["metadata"]["name"]): resource for resource in yaml.safe_load_all(output)}


def _key(kind: str, name: str) -> str:
    if name.startswith("reexpand-spark"):
        return "spark"
    return f"{kind} {name}" if kind == "NetworkPolicy" else kind


def deployment() -> Resource:
    return load(FOLDER / "base" / "deployment.yaml")


def container(resource: Resource) -> dict[str, Any]:
    (found,) = resource["spec"]["template"]["spec"]["containers"]
    return dict(found)


def pod_labels() -> dict[str, str]:
    return dict(deployment()["spec"]["template"]["metadata"]["labels"])


def settings_of(folder: str) -> dict[str, str]:
    """The variables that a kustomization sets."""
    lines = []
    for generator in KUSTOMIZATIONS[folder].get("configMapGenerator", []):
        if generator["name"] != "reexpand-settings":
            continue
        lines += generator.get("literals", [])
        for file in generator.get("envs", []):
            lines += (FOLDER / folder / file).read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_each_resource_is_valid() -> None:
    assert (OVERLAYS, COMPONENTS) == (["executors", "s3", "volume"], ["egress", "kafka-credentials", "service-monitor"])
    assert len(RESOURCES) == 12
    for file in RESOURCES:
        check(load(file))


def test_a_misspelt_field_is_found() -> None:
    """And a value of another type."""
    wrong = deployment()
    wrong["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    with pytest.raises(jsonschema.ValidationError, match="readinesProbe"):
        check(wrong)
    wrong = deployment()
    wrong["spec"]["replicas"] = "two"
    with pytest.raises(jsonschema.ValidationError, match="two"):
        check(wrong)


@rendered_only
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_what_is_applied_is_valid(overlay: str, tmp_path: Path) -> None:
    """With all components: the drivers get the settings, and the secrets are where the settings say."""
    found = render(tmp_path, overlay)
    for resource in found.values():
        check(resource)
    given = container(found["Deployment"])
    settings = found["ConfigMap"]
    assert given["envFrom"][0]["configMapRef"]["name"] == settings["metadata"]["name"]
    below = settings_of("s3") if overlay == "executors" else {}
    wanted = settings_of("base") | below | settings_of(overlay) | settings_of("kafka-credentials")
    assert settings["data"] == wanted
    mounts = {mount["name"]: mount["mountPath"] for mount in given["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in found["Deployment"]["spec"]["template"]["spec"]["volumes"]}
    assert mounts.keys() == volumes.keys()
    assert wanted["REEXPAND_KAFKA_OPTIONS"] == f"{mounts['kafka']}/kafka.properties"
    assert given["envFrom"][1] == {"secretRef": {"name": "reexpand-http", "optional": True}}
    if overlay == "volume":
        assert volumes["home"] == {"name": "home", "persistentVolumeClaim": {"claimName": "reexpand"}}
        assert wanted["REEXPAND_CHECKPOINT"].startswith(f"{mounts['home']}/")
    else:
        assert given["envFrom"][2:] == [{"secretRef": {"name": "reexpand-s3"}}]


def test_each_variable_is_a_setting() -> None:
    """Of the job, of Spark, or of S3."""
    names = {name for folder in KUSTOMIZATIONS for name in settings_of(folder)}
    of_the_job = {name.removeprefix("REEXPAND_").lower() for name in names if name.startswith("REEXPAND_")}
    assert of_the_job <= {*Settings.model_fields}
    assert {name for name in names if not name.startswith(("REEXPAND_", "AWS_"))} == {
        "SPARK_CONF_DIR", "SPARK_DRIVER_MEMORY", "SPARK_EXECUTOR_IMAGE",
    }  # fmt: skip


@rendered_only
def test_executors_are_pods_as_restricted_as_the_drivers(tmp_path: Path) -> None:
    """Their template is where Spark looks for it, is valid, and is none of those whose metrics are read."""
    found = render(tmp_path, "executors")
    pod, files = found["Deployment"]["spec"]["template"]["spec"], found["spark"]["data"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container(found["Deployment"])["volumeMounts"]}
    (volume,) = [each for each in pod["volumes"] if each["name"] == "spark"]
    assert volume["configMap"]["name"] == found["spark"]["metadata"]["name"]
    assert settings_of("executors")["SPARK_CONF_DIR"] == mounts["spark"]
    lines = [line.split() for line in files["spark-defaults.conf"].splitlines() if line and not line.startswith("#")]
    options = dict(lines)
    assert options["spark.kubernetes.executor.podTemplateFile"] == f"{mounts['spark']}/executor.yaml"
    template = yaml.safe_load(files["executor.yaml"])
    check(template)
    (executor,) = template["spec"]["containers"]
    assert options["spark.kubernetes.executor.podTemplateContainerName"] == executor["name"]
    assert executor["securityContext"] == container(found["Deployment"])["securityContext"]
    assert template["spec"]["securityContext"].items() <= pod["securityContext"].items()
    assert template["spec"]["automountServiceAccountToken"] is False
    assert template["metadata"]["labels"].items().isdisjoint(pod_labels().items())
    variables = {each["name"] for each in container(found["Deployment"])["env"]} | settings_of("executors").keys()
    assert {name for value in options.values() for name in re.findall(r"\$\{env:(\w+)\}", value)} <= variables
    account = found["ServiceAccount"]["metadata"]["name"]
    assert [each["name"] for each in found["RoleBinding"]["subjects"]] == [account] == [pod["serviceAccountName"]]


@rendered_only
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_pods_are_reached_by_those_that_need_them(overlay: str, tmp_path: Path) -> None:
    """Executors and drivers reach each other on all ports, others the page of a driver."""
    found = render(tmp_path, overlay)
    policies = {
        name.partition(" ")[2]: each["spec"] for name, each in found.items() if name.startswith("NetworkPolicy ")
    }
    driver = {"matchLabels": {"app.kubernetes.io/name": "reexpand"}}
    assert driver["matchLabels"] == pod_labels()
    egress = policies.pop("reexpand-egress")
    (pods,) = egress["podSelector"]["matchExpressions"]
    assert pods["values"] == ["reexpand", "reexpand-executor"]
    assert egress["policyTypes"] == ["Egress"]
    assert egress["egress"][1] == {"to": [{"podSelector": egress["podSelector"]}]}
    ports = {
        port
        for each in egress["egress"][0]["ports"]
        for port in range(each["port"], each.get("endPort", each["port"]) + 1)
    }
    assert ports == {53, 443, 6443, 9092, 9093, 9094}
    for spec in policies.values():
        assert spec["policyTypes"] == ["Ingress"]
    (page,) = policies["reexpand"]["ingress"]
    assert policies["reexpand"]["podSelector"] == driver
    assert page["ports"] == [{"protocol": "TCP", "port": container(deployment())["ports"][0]["name"]}]
    assert all(each.get("podSelector") == {} or each["namespaceSelector"]["matchLabels"] for each in page["from"])
    if overlay != "executors":
        assert policies.keys() == {"reexpand"}
        return
    template = yaml.safe_load(found["spark"]["data"]["executor.yaml"])
    executor = {"matchLabels": template["metadata"]["labels"]}
    assert {name: spec["podSelector"] for name, spec in policies.items()} == {
        "reexpand": driver, "reexpand-driver": driver, "reexpand-executor": executor,
    }  # fmt: skip
    assert policies["reexpand-driver"]["ingress"] == [{"from": [{"podSelector": executor}]}]
    assert policies["reexpand-executor"]["ingress"] == [{"from": [{"podSelector": driver}, {"podSelector": executor}]}]


def test_the_executors_image_is_that_of_the_drivers() -> None:
    (image,) = KUSTOMIZATIONS["base"]["images"]
    assert settings_of("executors")["SPARK_EXECUTOR_IMAGE"] == f"{image['newName']}:{image['newTag']}"


def test_the_drivers_are_started_as_the_command_has_it() -> None:
    verb, *options = container(deployment())["args"]
    known = {option for parameter in run.params if isinstance(parameter, Option) for option in parameter.opts}
    assert verb == run.name
    assert set(options) <= known


def test_the_probes_ask_where_the_job_answers() -> None:
    _, _, port = settings_of("base")["REEXPAND_HTTP"].rpartition(":")
    given = container(deployment())
    (own,) = given["ports"]
    assert own["containerPort"] == int(port)
    for probe, path in {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}.items():
        assert given[probe]["httpGet"] == {"path": path, "port": own["name"]}
    (served,) = load(FOLDER / "base" / "service.yaml")["spec"]["ports"]
    assert (served["targetPort"], served["port"]) == (own["name"], own["containerPort"])


def test_all_speak_of_the_same_pods() -> None:
    spec = deployment()["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == labels
    assert load(FOLDER / "base" / "service.yaml")["spec"]["selector"] == labels
    assert load(FOLDER / "base" / "disruption-budget.yaml")["spec"]["selector"]["matchLabels"] == labels
    assert load(FOLDER / "service-monitor" / "service-monitor.yaml")["spec"]["selector"]["matchLabels"] == labels


def test_the_drivers_have_no_rights_that_they_do_not_need() -> None:
    """Neither on their node, nor in Kubernetes."""
    pod, given = deployment()["spec"]["template"]["spec"], container(deployment())
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["automountServiceAccountToken"] is False
    assert given["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    user = f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}"
    assert f"USER {user}\n" in dockerfile


S3: dict[str, Any] = {
    "kafka": {"bootstrapServers": "a:9092,b:9093", "secretName": "reexpand-kafka"},
    "checkpoint": {"s3": {"uri": "s3a://reexpand/checkpoint", "endpoint": "https://s3.us-east-1.amazonaws.com"}},
    "serviceMonitor": {"enabled": True},
}
VOLUME: dict[str, Any] = {"kafka": S3["kafka"], "checkpoint": {"volume": {"enabled": True}}}
SMALL: dict[str, Any] = {
    "replicas": 1,
    "image": {"digest": f"sha256:{'a' * 64}"},
    "kafka": {"bootstrapServers": "a:9092"},
    "checkpoint": {"volume": {"enabled": True, "existingClaim": "mine"}},
    "console": {"enabled": False},
    "networkPolicy": {"enabled": False},
}


def helm(folder: Path, values: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    assert HELM
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    command = [HELM, "template", "reexpand", str(CHART), "--kube-version", RELEASE, "--values", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def chart(folder: Path, values: dict[str, Any]) -> dict[str, Resource]:
    done = helm(folder, values)
    assert done.returncode == 0, done.stderr
    found = [resource for resource in yaml.safe_load_all(done.stdout) if resource]
    for resource in found:
        check(resource)
    return {resource["kind"]: resource for resource in found}


@helm_only
@rendered_only
@pytest.mark.parametrize(("overlay", "values"), [("s3", S3), ("volume", VOLUME)], ids=["s3", "volume"])
def test_the_chart_starts_the_pods_of_kustomize(overlay: str, values: dict[str, Any], tmp_path: Path) -> None:
    """Only their labels, and the names of ConfigMap and Secret, differ."""
    ours, theirs = chart(tmp_path, values), render(tmp_path, overlay)
    settings = theirs["ConfigMap"]["data"] | {"REEXPAND_BOOTSTRAP_SERVERS": "a:9092,b:9093"}
    assert ours["ConfigMap"]["data"] == settings
    pods = []
    for found in (ours, theirs):
        spec = found["Deployment"]["spec"]["template"]["spec"]
        (only,) = spec["containers"]
        assert only.pop("envFrom")[0]["configMapRef"]["name"] == found["ConfigMap"]["metadata"]["name"]
        only.pop("imagePullPolicy", None)
        for each in spec["topologySpreadConstraints"]:
            assert each.pop("labelSelector")["matchLabels"].items() >= pod_labels().items()
        pods.append({**spec, "volumes": sorted(spec["volumes"], key=lambda each: str(each["name"]))})
        only["volumeMounts"].sort(key=lambda each: str(each["name"]))
    assert pods[0] == pods[1]
    for kind in ("Service", "PodDisruptionBudget", "PersistentVolumeClaim"):
        assert (kind in ours) == (kind in theirs)
        for found in (ours, theirs):
            found.get(kind, {}).get("spec", {}).pop("selector", None)
        assert ours.get(kind, {}).get("spec") == theirs.get(kind, {}).get("spec")


@helm_only
def test_parts_of_the_chart_are_optional(tmp_path: Path) -> None:
    """A single driver has no budget, which would keep it on its node."""
    found = chart(tmp_path, SMALL)
    assert found.keys() == {"ConfigMap", "Deployment", "Service", "ServiceAccount"}
    assert container(found["Deployment"])["image"] == f"reexpand@sha256:{'a' * 64}"
    assert found["Deployment"]["spec"]["template"]["spec"]["volumes"][1]["persistentVolumeClaim"]["claimName"] == "mine"
    assert "ServiceMonitor" in chart(tmp_path, S3)


@helm_only
def test_the_chart_generates_the_token_of_the_console(tmp_path: Path) -> None:
    """Without a Secret of your own."""
    found = [chart(tmp_path, S3) for _ in range(2)]
    tokens = {base64.b64decode(each["Secret"]["data"]["REEXPAND_HTTP_TOKEN"]).decode() for each in found}
    assert len(tokens) == 2
    assert all(checked_token(token, "the chart") for token in tokens)
    name = {"secretRef": {"name": found[0]["Secret"]["metadata"]["name"]}}
    assert container(found[0]["Deployment"])["envFrom"][1:] == [name, {"secretRef": {"name": "reexpand-s3"}}]
    own = chart(tmp_path, VOLUME | {"console": {"tokenSecretName": "mine"}})
    assert "Secret" not in own
    assert container(own["Deployment"])["envFrom"][1:] == [{"secretRef": {"name": "mine"}}]


@helm_only
def test_the_chart_limits_traffic_to_what_the_drivers_need(tmp_path: Path) -> None:
    """Out: DNS, brokers and storage. In: the page, as with kustomize."""

    def ports(values: dict[str, Any]) -> list[int]:
        policy = chart(tmp_path, values)["NetworkPolicy"]["spec"]
        assert policy["ingress"] == load(FOLDER / "base" / "network-policy.yaml")["spec"]["ingress"]
        assert policy["policyTypes"] == ["Ingress", "Egress"]
        assert policy["podSelector"]["matchLabels"].items() >= pod_labels().items()
        ((rule),) = policy["egress"]
        assert rule["ports"][0] == {"protocol": "UDP", "port": 53}
        return [each["port"] for each in rule["ports"][1:] if each["protocol"] == "TCP"]

    assert ports(S3) == [53, 9092, 9093, 443]
    assert ports(VOLUME | {"networkPolicy": {"extraPorts": [30_092]}}) == [53, 9092, 9093, 30_092]
    storage = {"s3": {"uri": "s3a://a/b", "endpoint": "http://minio.storage.svc:9000"}}
    assert ports(VOLUME | {"checkpoint": storage}) == [53, 9092, 9093, 9000]


@helm_only
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"kafka": {}}, "/kafka/bootstrapServers"),
        ({"checkpoint": {}}, "set either checkpoint.s3.uri or checkpoint.volume.enabled"),
        ({"checkpoint": S3["checkpoint"] | VOLUME["checkpoint"]}, "set either checkpoint.s3.uri or"),
        ({"replica": 3}, "additional properties 'replica' not allowed"),
        ({"settings": {"REEXPAND_HTTP": "off"}}, "invalid propertyName 'REEXPAND_HTTP'"),
    ],
    ids=["no broker", "no checkpoint", "two checkpoints", "misspelt", "set elsewhere"],
)
def test_the_chart_rejects_wrong_values(wrong: dict[str, Any], error: str, tmp_path: Path) -> None:
    done = helm(tmp_path, VOLUME | wrong)
    assert done.returncode != 0
    assert error in done.stderr
