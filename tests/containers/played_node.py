"""A node that is played: pods of a real API of Kubernetes, run as processes of this machine in mounts of their own."""

import base64
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError

from tests.containers.kubernetes_api import KubernetesApi
from tests.support.scene import repeated

_POLL_SECONDS: Final = 0.3
_PROJECT: Final = Path(__file__).parents[2]
_WORKING_DIRECTORY: Final = "/var/lib/reexpand"
"""Of the image."""

Resource = dict[str, Any]


class _Process:
    """A pod that runs: its only container."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.is_told = False
        """Whether the API knows how it ended."""

    def kill(self) -> None:
        """End it with all that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def played_node(api: KubernetesApi, namespace: str, folder: Path) -> Iterator["PlayedNode"]:
    """Run the pods of a namespace, with their files and logs in a folder."""
    node = PlayedNode(api, namespace, folder)
    try:
        with repeated(lambda _: node.look(), _POLL_SECONDS):
            yield node
    finally:
        node.remove()


class PlayedNode:
    """What scheduler, kubelet and a container engine do for the pods of a namespace.

    Variables, Secrets, ConfigMaps, tokens and empty folders are those of the pod, in a mount namespace of its own,
    which needs root. Not played are limits, users, probes and networks: each pod is a process of this user.
    """

    def __init__(self, api: KubernetesApi, namespace: str, folder: Path) -> None:
        self._api = api
        self._namespace = namespace
        self._folder = folder
        self._running: dict[str, _Process] = {}
        self._made: list[Path] = []
        # Executors with one address would read each other's files.
        self._addresses = (f"127.0.1.{number}" for number in count(1))

    def kill(self, pod: str) -> None:
        """Let the process of a pod end, as for want of memory."""
        self._running[pod].kill()

    def remove(self) -> None:
        """End all pods, and remove the places of their mounts."""
        for each in self._running.values():
            each.kill()
        for folder in reversed(self._made):
            with suppress(OSError):
                folder.rmdir()

    def logs(self) -> str:
        """Return the end of what each pod has said."""
        logs = sorted(self._folder.glob("*.log"))
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-2_000:]}" for log in logs)

    def look(self) -> None:
        """Start and end what the API says, and tell it what has ended."""
        pods = {pod["metadata"]["name"]: pod for pod in self._get("pods")["items"]}
        for name in self._running.keys() - pods.keys():
            self._running.pop(name).kill()
        for name, pod in pods.items():
            if "deletionTimestamp" in pod["metadata"]:
                self._end(name)
            elif name not in self._running:
                with suppress(_Missing):  # Spark makes the ConfigMap of a pod after the pod
                    self._running[name] = self._start(name, pod)
            else:
                self._tell(name, self._running[name])

    def _start(self, name: str, pod: Resource) -> _Process:
        (container,) = pod["spec"]["containers"]
        address = pod["status"]["podIP"] = next(self._addresses)
        words = [*container.get("command", ["reexpand"]), *container.get("args", [])]
        mounts = self._mounts(name, pod, container)
        steps = [*(f"mount --bind '{source}' '{place}'" for source, place in mounts), f"cd {_WORKING_DIRECTORY}"]
        script = " && ".join([*steps, 'exec "$@"'])
        with (self._folder / f"{name}.log").open("wb") as output:
            process = subprocess.Popen(
                ["unshare", "--mount", "sh", "-c", script, "pod", *words],
                env=self._variables(pod, container), stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        self._status(name, {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]})
        return _Process(process)

    def _end(self, name: str) -> None:
        if found := self._running.get(name):
            found.kill()
        with suppress(HTTPError):
            self._api.call(f"{self._path('pods')}/{name}", "DELETE", {"gracePeriodSeconds": 0})

    def _tell(self, name: str, found: _Process) -> None:
        code = found.process.poll()
        if code is not None and not found.is_told:
            found.is_told = True
            state = {"terminated": {"exitCode": code if code >= 0 else 128 - code, "reason": "Ended"}}
            status = {
                "name": "container",
                "state": state,
                "ready": False,
                "restartCount": 0,
                "image": "",
                "imageID": "",
            }
            self._status(name, {"phase": "Failed" if code else "Succeeded", "containerStatuses": [status]})

    def _status(self, name: str, status: Resource) -> None:
        with suppress(HTTPError):  # it may be gone
            self._api.call(f"{self._path('pods')}/{name}/status", "PATCH", {"status": status})

    def _variables(self, pod: Resource, container: Resource) -> dict[str, str]:
        found = {
            "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])), "HOME": str(Path.home()),
            "PYTHONPATH": str(_PROJECT),
        }  # fmt: skip
        for source in container.get("envFrom", []):
            ((kind, reference),) = source.items()
            found |= self._content(kind.removesuffix("Ref"), reference["name"], reference.get("optional", False))
        for each in container.get("env", []):
            source = each.get("valueFrom", {})
            if "fieldRef" in source:
                found[each["name"]] = _field(pod, source["fieldRef"]["fieldPath"])
            else:
                found[each["name"]] = each.get("value", "")
        return found

    def _mounts(self, name: str, pod: Resource, container: Resource) -> list[tuple[Path, Path]]:
        volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", [])}
        found = []
        for mount in container.get("volumeMounts", []):
            source = self._folder / name / mount["name"]
            source.mkdir(parents=True, exist_ok=True)
            for file, content in self._files(pod, volumes[mount["name"]]).items():
                (source / file).write_text(content)
            place = Path(mount["mountPath"])
            self._make(place)
            found.append((source, place))
        # What hides other places comes last.
        return sorted(found, key=lambda pair: pair[1] == Path("/tmp"))  # noqa: S108

    def _make(self, place: Path) -> None:
        """Make a place to mount at, which is removed at the end."""
        for each in (*reversed(place.parents), place):
            if not each.exists():
                each.mkdir()
                self._made.append(each)

    def _files(self, pod: Resource, volume: Resource) -> dict[str, str]:
        if "configMap" in volume:
            return self._content("configMap", volume["configMap"]["name"])
        found: dict[str, str] = {}
        for source in volume.get("projected", {}).get("sources", []):
            if "serviceAccountToken" in source:
                account = pod["spec"]["serviceAccountName"]
                request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}
                answer = self._api.call(f"{self._path('serviceaccounts')}/{account}/token", "POST", request)
                found["token"] = answer["status"]["token"]
            elif "configMap" in source:
                found |= self._content("configMap", source["configMap"]["name"])
            else:
                found["namespace"] = self._namespace
        return found

    def _content(self, kind: str, name: str, optional: bool = False) -> dict[str, str]:  # noqa: FBT001, FBT002
        try:
            found = self._get(f"{kind.lower()}s/{name}").get("data", {})
        except HTTPError as error:
            if error.code != 404:
                raise
            if optional:
                return {}
            raise _Missing(name) from error
        if kind == "secret":
            return {key: base64.b64decode(value).decode() for key, value in found.items()}
        return dict(found)

    def _get(self, what: str) -> Resource:
        return self._api.call(self._path(what))

    def _path(self, what: str) -> str:
        return f"/api/v1/namespaces/{self._namespace}/{what}"


class _Missing(Exception):
    """A Secret or ConfigMap that a pod names is not there yet."""


def _field(pod: Resource, path: str) -> str:
    found: Any = pod
    for name in path.split("."):
        found = found[name]
    return str(found)
