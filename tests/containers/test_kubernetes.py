"""deploy/kubernetes for real: two drivers on a cluster of one node, a rollout under load, and a driver that is killed.

The cluster is that of kubectl's present context. Its node has the image `reexpand:local`, and `REEXPAND_TEST_KAFKA` is
the address of a broker that pods and this machine reach. The checkpoint is a folder of the node.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.support.histories import Profile, expected, history
from tests.support.processes import eventually
from tests.support.running_job import SETTLE_SECONDS, TOPIC_SETTINGS, Streams, assert_equal_relations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.simulator import Record

_MANIFESTS: Final = Path(__file__).parents[2] / "deploy/kubernetes"
_KAFKA: Final = os.environ.get("REEXPAND_TEST_KAFKA", "")
_READY_SECONDS: Final = 240
_USER: Final = 10001

pytestmark = [
    pytest.mark.containers,
    pytest.mark.timeout(1_800),
    pytest.mark.skipif(not _KAFKA, reason="REEXPAND_TEST_KAFKA names no broker that pods reach"),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl"),
]


class Deployment:
    """The overlay `volume` in a namespace of its own, which lets only restricted pods in.

    Args:
        streams: topics of the job.
        folder: place of the kustomization.
    """

    def __init__(self, streams: Streams, folder: Path) -> None:
        self.name = f"reexpand-test-{secrets.token_hex(4)}"
        self._folder = folder
        self._place = f"/var/lib/{self.name}"  # of the node
        self._settings = {
            "REEXPAND_BOOTSTRAP_SERVERS": streams.bootstrap_servers,
            **{f"REEXPAND_{name.upper()}": getattr(streams.settings, name) for name in TOPIC_SETTINGS},
        }
        self.kubectl("create", "namespace", self.name)
        self.kubectl("label", "namespace", self.name, "pod-security.kubernetes.io/enforce=restricted")
        self._own_place()

    def apply(self, **settings: str) -> None:
        """Apply the manifests, with these settings as well."""
        self._settings |= settings
        shutil.copytree(_MANIFESTS, self._folder / "kubernetes", dirs_exist_ok=True)
        volume = {
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": self.name},
            "spec": {
                "capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteMany"],
                "hostPath": {"path": self._place}, "claimRef": {"namespace": self.name, "name": "reexpand"},
            },
        }  # fmt: skip
        (self._folder / "volume.yaml").write_text(json.dumps(volume))
        # A third pod during a rollout, on a small node.
        small = [{"op": "replace", "path": "/spec/template/spec/containers/0/resources/requests/cpu", "value": "100m"}]
        static = [{"op": "add", "path": "/spec/storageClassName", "value": ""}]
        kustomization = {
            "namespace": self.name,
            "resources": ["volume.yaml", "kubernetes/volume"],
            "configMapGenerator": [{
                "name": "reexpand-settings", "behavior": "merge",
                "literals": [f"{name}={value}" for name, value in self._settings.items()],
            }],
            "patches": [{"target": {"kind": "Deployment"}, "patch": json.dumps(small)},
                        {"target": {"kind": "PersistentVolumeClaim"}, "patch": json.dumps(static)}],
        }  # fmt: skip
        (self._folder / "kustomization.yaml").write_text(json.dumps(kustomization))
        self.kubectl("apply", "--kustomize", str(self._folder))

    def rolled_out(self) -> None:
        """Wait until all pods are those of the last settings, and ready."""
        self._in_namespace("rollout", "status", "deployment/reexpand", f"--timeout={_READY_SECONDS}s")

    def pods(self) -> list[str]:
        """Return the names of the pods that are not about to end."""
        found = json.loads(self._in_namespace("get", "pods", "--output=json"))["items"]
        return [each["metadata"]["name"] for each in found if "deletionTimestamp" not in each["metadata"]]

    def restarts(self) -> int:
        """Return how often a container of the present pods was started again."""
        found = self._in_namespace(
            "get", "pods", "--output=jsonpath={.items[*].status.containerStatuses[*].restartCount}"
        )
        return sum(map(int, found.split()))

    def holders(self) -> list[str]:
        """Return the names of the pods whose driver works on the checkpoint."""
        return [name for name in self.pods() if self._holds(name)]

    def kill(self, pod: str) -> None:
        """Let a pod end without notice."""
        self._in_namespace("delete", "pod", pod, "--grace-period=0", "--force")

    def remove(self) -> None:
        """Remove all of it but the folder of the node."""
        self.kubectl("delete", "namespace", self.name)
        self.kubectl("delete", "persistentvolume", self.name)

    def logs(self) -> str:
        """Return the last lines of all pods."""
        return self._in_namespace("logs", "--selector=app.kubernetes.io/name=reexpand", "--tail=20")

    def _holds(self, pod: str) -> bool:
        with suppress(subprocess.CalledProcessError):
            where = f"/api/v1/namespaces/{self.name}/pods/{pod}:9464/proxy/readyz?role=holder"
            return bool(json.loads(self.kubectl("get", "--raw", where))["ready"])
        return False

    def _own_place(self) -> None:
        """Give the folder of the node to the job's user, which Kubernetes does for no such volume."""
        pod: dict[str, Any] = {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": self.name, "namespace": "default"},
            "spec": {
                "restartPolicy": "Never", "automountServiceAccountToken": False,
                "volumes": [{"name": "place", "hostPath": {"path": self._place, "type": "DirectoryOrCreate"}}],
                "containers": [{
                    "name": "chown", "image": "reexpand:local", "command": ["chown", f"{_USER}:{_USER}", "/place"],
                    "securityContext": {"runAsUser": 0}, "volumeMounts": [{"name": "place", "mountPath": "/place"}],
                }],
            },
        }  # fmt: skip
        file = self._folder / "owner.json"
        file.write_text(json.dumps(pod))
        self.kubectl("apply", "--filename", str(file))
        succeeded = "--for=jsonpath={.status.phase}=Succeeded"
        self.kubectl("wait", succeeded, f"pod/{self.name}", "--namespace=default", f"--timeout={_READY_SECONDS}s")
        self.kubectl("delete", "--filename", str(file))

    def _in_namespace(self, *words: str) -> str:
        return self.kubectl("--namespace", self.name, *words)

    @staticmethod
    def kubectl(*words: str) -> str:
        """Run kubectl, and return what it prints."""
        done = subprocess.run(["kubectl", *words], capture_output=True, text=True, check=False, timeout=400)
        if done.returncode:
            raise subprocess.CalledProcessError(done.returncode, done.args, done.stdout, done.stderr)
        return done.stdout


@pytest.fixture
def streams() -> Streams:
    return Streams(_KAFKA, Path("/var/lib/reexpand/checkpoint")).create()


@pytest.fixture
def deployment(streams: Streams, tmp_path: Path) -> Iterator[Deployment]:
    deployed = Deployment(streams, tmp_path)
    try:
        yield deployed
    finally:
        deployed.remove()


def test_a_rollout_and_a_killed_driver_cost_no_row(deployment: Deployment, streams: Streams) -> None:
    """One of two drivers works; the other one takes over, in order and without notice."""
    records = history(Random(8), 1_200, Profile(dialects=True))
    third = len(records) // 3
    feed = streams.producer()
    deployment.apply()
    deployment.rolled_out()
    assert eventually(lambda: len(deployment.holders()) == 1, _READY_SECONDS, 1), deployment.logs()
    before = deployment.pods()
    assert len(before) == 2
    assert deployment.restarts() == 0
    feed.send_slowly(records[:third])
    settles(deployment, streams, records[:third])

    deployment.apply(REEXPAND_MAX_OFFSETS_PER_TRIGGER="5000")
    feed.send_slowly(records[third : 2 * third])
    deployment.rolled_out()
    assert eventually(lambda: len(deployment.holders()) == 1, _READY_SECONDS, 1), deployment.logs()
    assert set(before).isdisjoint(deployment.pods())
    settles(deployment, streams, records[: 2 * third])

    (holder,) = deployment.holders()
    deployment.kill(holder)
    feed.send_slowly(records[2 * third :])
    settles(deployment, streams, records)
    assert eventually(lambda: len(deployment.holders()) == 1, _READY_SECONDS, 1), deployment.logs()
    assert deployment.holders() != [holder]
    deployment.rolled_out()


def settles(deployment: Deployment, streams: Streams, records: list[Record]) -> None:
    """Wait until the relation is that of these records."""
    wanted = expected([records]).relation()
    eventually(lambda: streams.relation() == wanted, SETTLE_SECONDS, 1)
    assert_equal_relations(streams.relation(), wanted)
    assert streams.repeated() == 0, deployment.logs()
