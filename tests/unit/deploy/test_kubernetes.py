"""Manifests for Kubernetes: valid, rendered where kubectl or kustomize is at hand, and of one mind with the job."""

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

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy" / "kubernetes"
RELEASE = "v1.36.3"
OF_OPERATORS = {"ServiceMonitor"}
"""Kinds that are no part of Kubernetes: their fields are checked by the operators that bring them."""
KUSTOMIZE = [["kustomize", "build"], ["kubectl", "kustomize"]]
RENDERER = next((command for command in KUSTOMIZE if shutil.which(command[0])), None)

rendered_only = pytest.mark.skipif(RENDERER is None, reason="neither kustomize nor kubectl is on the PATH")
Resource = dict[str, Any]


@cache
def schemas() -> dict[str, Any]:
    file = ROOT / "tests" / "fixtures" / "kubernetes" / f"{RELEASE}.json"
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def check(resource: Resource) -> None:
    """Raises what is wrong with a resource."""
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
    assert (OVERLAYS, COMPONENTS) == (["executors", "s3", "volume"], ["kafka-credentials", "service-monitor"])
    assert len(RESOURCES) == 11
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
