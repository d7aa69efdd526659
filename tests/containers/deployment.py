"""Overlays of deploy/kubernetes on the cluster of kubectl's context."""

import json
import secrets
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Final

from tests.support.histories import expected
from tests.support.processes import eventually
from tests.support.running_job import SETTLE_SECONDS, START_SECONDS, TOPIC_SETTINGS, Streams, assert_equal_relations
from tests.support.s3_server import S3Server
from tests.support.simulator import Record

_MANIFESTS: Final = Path(__file__).parents[2] / "deploy/kubernetes"
_READY_SECONDS: Final = 240
_USER: Final = 10001


class Deployment(ABC):
    """An overlay of the manifests in a namespace of its own, which lets only restricted pods in.

    Args:
        streams: topics of the job.
        folder: place of the kustomization.
    """

    overlay: ClassVar[str]
    """Folder of the overlay."""

    def __init__(self, streams: Streams, folder: Path) -> None:
        self.name = f"reexpand-test-{secrets.token_hex(4)}"
        self._folder = folder
        self._settings = {
            "REEXPAND_BOOTSTRAP_SERVERS": streams.bootstrap_servers,
            **{f"REEXPAND_{name.upper()}": getattr(streams.settings, name) for name in TOPIC_SETTINGS},
        }
        self.kubectl("create", "namespace", self.name)
        self.kubectl("label", "namespace", self.name, "pod-security.kubernetes.io/enforce=restricted")
        self.provide()

    @abstractmethod
    def provide(self) -> None:
        """Make what the overlay needs."""

    def apply(self, **settings: str) -> None:
        """Apply the manifests, with these settings as well."""
        self._settings |= settings
        shutil.copytree(_MANIFESTS, self._folder / "kubernetes", dirs_exist_ok=True)
        # A third pod during a rollout, on a small node.
        small = [{"op": "replace", "path": "/spec/template/spec/containers/0/resources/requests/cpu", "value": "100m"}]
        kustomization = {
            "namespace": self.name,
            "resources": [f"kubernetes/{self.overlay}"],
            "configMapGenerator": [{
                "name": "reexpand-settings", "behavior": "merge",
                "literals": [f"{name}={value}" for name, value in self._settings.items()],
            }],
            "patches": [{"target": {"kind": "Deployment"}, "patch": json.dumps(small)}, *self.patches()],
        }  # fmt: skip
        (self._folder / "kustomization.yaml").write_text(json.dumps(kustomization))
        self.kubectl("apply", "--kustomize", str(self._folder))

    def patches(self) -> list[dict[str, Any]]:
        """Return further patches of the kustomization."""
        return []

    def rolled_out(self) -> None:
        """Wait until all pods are those of the last settings, and ready."""
        self.in_namespace("rollout", "status", "deployment/reexpand", f"--timeout={_READY_SECONDS}s")

    def pods(self) -> list[str]:
        """Return the names of the pods that are not about to end."""
        found = json.loads(self.in_namespace("get", "pods", "--output=json"))["items"]
        return [each["metadata"]["name"] for each in found if "deletionTimestamp" not in each["metadata"]]

    def restarts(self) -> int:
        """Return how often a container of the present pods was started again."""
        found = self.in_namespace(
            "get", "pods", "--output=jsonpath={.items[*].status.containerStatuses[*].restartCount}"
        )
        return sum(map(int, found.split()))

    def holder(self) -> str:
        """Wait until the driver of one pod works on the checkpoint, and return that pod's name."""
        found: list[str] = []

        def is_one() -> bool:
            found[:] = [name for name in self.pods() if self._holds(name)]
            return len(found) == 1

        assert eventually(is_one, START_SECONDS, 1), self.logs()
        return found[0]

    def kill(self, pod: str) -> None:
        """Let a pod end without notice."""
        self.in_namespace("delete", "pod", pod, "--grace-period=0", "--force")

    def remove(self) -> None:
        """Remove the namespace with all that is in it."""
        self.kubectl("delete", "namespace", self.name)

    def logs(self) -> str:
        """Return the last lines of all pods."""
        return self.in_namespace("logs", "--selector=app.kubernetes.io/name=reexpand", "--tail=20")

    def create(self, *things: dict[str, Any]) -> None:
        """Create things that are no part of the manifests."""
        for thing in things:
            file = self._folder / f"{thing['kind']}.json"
            file.write_text(json.dumps({"apiVersion": "v1", **thing}))
            self.kubectl("apply", "--filename", str(file))

    def in_namespace(self, *words: str) -> str:
        """Run kubectl in the namespace, and return what it prints."""
        return self.kubectl("--namespace", self.name, *words)

    @staticmethod
    def kubectl(*words: str) -> str:
        """Run kubectl, and return what it prints."""
        return subprocess.run(["kubectl", *words], capture_output=True, text=True, check=True, timeout=400).stdout

    def _holds(self, pod: str) -> bool:
        with suppress(subprocess.CalledProcessError):
            where = f"/api/v1/namespaces/{self.name}/pods/{pod}:9464/proxy/readyz?role=holder"
            return bool(json.loads(self.kubectl("get", "--raw", where))["ready"])
        return False


class OnVolume(Deployment):
    """The checkpoint is a folder of the node, which stays there."""

    overlay = "volume"

    def provide(self) -> None:
        """Make a volume, and give it to the job's user, which Kubernetes does for no folder of a node."""
        place = f"/var/lib/{self.name}"
        volume = {
            "kind": "PersistentVolume", "metadata": {"name": self.name},
            "spec": {
                "capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteMany"],
                "hostPath": {"path": place}, "claimRef": {"namespace": self.name, "name": "reexpand"},
            },
        }  # fmt: skip
        owner = {
            "kind": "Pod", "metadata": {"name": self.name, "namespace": "default"},
            "spec": {
                "restartPolicy": "Never", "automountServiceAccountToken": False,
                "volumes": [{"name": "place", "hostPath": {"path": place, "type": "DirectoryOrCreate"}}],
                "containers": [{
                    "name": "chown", "image": "reexpand:local", "command": ["chown", f"{_USER}:{_USER}", "/place"],
                    "securityContext": {"runAsUser": 0}, "volumeMounts": [{"name": "place", "mountPath": "/place"}],
                }],
            },
        }  # fmt: skip
        self.create(volume, owner)
        pod = (f"pod/{self.name}", "--namespace=default")
        self.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", *pod, f"--timeout={_READY_SECONDS}s")
        self.kubectl("delete", *pod)

    def patches(self) -> list[dict[str, Any]]:
        """Claim that volume, and none of a storage class."""
        static = [{"op": "add", "path": "/spec/storageClassName", "value": ""}]
        return [{"target": {"kind": "PersistentVolumeClaim"}, "patch": json.dumps(static)}]

    def remove(self) -> None:
        """Remove the volume as well."""
        super().remove()
        self.kubectl("delete", "persistentvolume", self.name)


class OnS3(Deployment):
    """The checkpoint is on an S3-compatible server of this machine.

    Args:
        streams: topics of the job.
        folder: place of the kustomization.
        server: the server.
    """

    overlay = "s3"

    def __init__(self, streams: Streams, folder: Path, server: S3Server) -> None:
        self._server = server
        super().__init__(streams, folder)
        self._settings["AWS_ENDPOINT_URL"] = server.variables["AWS_ENDPOINT_URL"]

    def provide(self) -> None:
        """Make the secret with the credentials."""
        credentials = {name: self._server.variables[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
        place = {"name": "reexpand-s3", "namespace": self.name}
        self.create({"kind": "Secret", "metadata": place, "stringData": credentials})


def settles(
    streams: Streams, records: list[Record], logs: Callable[[], str], is_read: Callable[[], bool] = lambda: True
) -> None:
    """Wait until the relation is that of these records.

    It may have been the same before all of them were read: `is_read` says so, where the checkpoint can be looked at.
    """
    wanted = expected([records]).relation()
    eventually(lambda: is_read() and streams.relation() == wanted, SETTLE_SECONDS, 1)
    assert_equal_relations(streams.relation(), wanted)
    assert streams.repeated() == 0, logs()
