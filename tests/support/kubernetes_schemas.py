"""Schemas of the Kubernetes resources in deploy/, from the OpenAPI description of a release.

curl -fsSLO https://raw.githubusercontent.com/kubernetes/kubernetes/v1.36.3/api/openapi-spec/swagger.json
python -m tests.support.kubernetes_schemas swagger.json > tests/fixtures/kubernetes/v1.36.3.json
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

KINDS = {
    "apps/v1/Deployment": "io.k8s.api.apps.v1.Deployment",
    "networking.k8s.io/v1/NetworkPolicy": "io.k8s.api.networking.v1.NetworkPolicy",
    "policy/v1/PodDisruptionBudget": "io.k8s.api.policy.v1.PodDisruptionBudget",
    "rbac.authorization.k8s.io/v1/Role": "io.k8s.api.rbac.v1.Role",
    "rbac.authorization.k8s.io/v1/RoleBinding": "io.k8s.api.rbac.v1.RoleBinding",
    "v1/ConfigMap": "io.k8s.api.core.v1.ConfigMap",
    "v1/PersistentVolumeClaim": "io.k8s.api.core.v1.PersistentVolumeClaim",
    "v1/Pod": "io.k8s.api.core.v1.Pod",
    "v1/Service": "io.k8s.api.core.v1.Service",
    "v1/ServiceAccount": "io.k8s.api.core.v1.ServiceAccount",
}
"""Definition of each kind of resource."""

_OPEN = {"IntOrString": ["string", "integer"], "Quantity": ["string", "number"]}
"""Allowed types of definitions that are not objects, by the end of their names."""

_UNUSED = {"default", "description", "format"}


def extract(definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Extract the kinds with all required definitions, and forbid undefined fields."""
    needed: dict[str, Any] = {}
    to_do = list(KINDS.values())
    while to_do:
        name = to_do.pop()
        if name not in needed:
            needed[name] = _strict(definitions[name])
            to_do += _references(needed[name])
    return {"kinds": KINDS, "definitions": needed}


def _strict(schema: Mapping[str, Any]) -> dict[str, Any]:
    reference = schema.get("$ref", "")
    for end, types in _OPEN.items():
        if reference.endswith(end):
            return {"type": types}
    if schema.get("format") == "int-or-string":
        return {"type": _OPEN["IntOrString"]}
    found = {key: value for key, value in schema.items() if key not in _UNUSED and not key.startswith("x-")}
    for key in ("items", "additionalProperties"):
        if key in found:
            found[key] = _strict(found[key])
    if "properties" in found:
        found["properties"] = {name: _strict(field) for name, field in found["properties"].items()}
        found.setdefault("additionalProperties", False)
    return found


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"].rpartition("/")[2]
        for value in schema.values():
            yield from _references(value)


if __name__ == "__main__":
    swagger = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    json.dump(extract(swagger["definitions"]), sys.stdout, separators=(",", ":"), sort_keys=True)
