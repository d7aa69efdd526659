"""Real YARN of one node: Hadoop's resource manager and node manager, each a process."""

import json
import os
import urllib.request
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, Self
from xml.sax.saxutils import escape

from streaming.local.jars import JarSets
from streaming.local.java import find_java
from streaming.local.server import HOST, Server, free_port

_HERE = Path(__file__).parent
JARS = JarSets(_HERE / "ivy.xml", _HERE / "jars.sha256", ("yarn",))
_START_SECONDS = 120
_SERVER = "org.apache.hadoop.yarn.server"
_MANAGERS = {
    "resources": f"{_SERVER}.resourcemanager.ResourceManager",
    "node": f"{_SERVER}.nodemanager.NodeManager",
}
_SETTINGS = {
    "yarn.resourcemanager.scheduler.class": f"{_SERVER}.resourcemanager.scheduler.fifo.FifoScheduler",
    "yarn.scheduler.minimum-allocation-mb": "256",
    "yarn.nodemanager.resource.memory-mb": "6144",
    "yarn.nodemanager.resource.cpu-vcores": "4",
    "yarn.nodemanager.vmem-check-enabled": "false",
    "yarn.nodemanager.disk-health-checker.enable": "false",
    "yarn.nodemanager.delete.debug-delay-sec": "600",
    "yarn.nodemanager.hostname": HOST,
    "yarn.resourcemanager.hostname": HOST,
}
_ADDRESSES = (
    *(f"yarn.resourcemanager.{name}" for name in ("", "scheduler.", "resource-tracker.", "admin.", "webapp.")),
    *(f"yarn.nodemanager.{name}" for name in ("", "localizer.", "webapp.")),
)


class _Manager(Server):
    """Resource or node manager; ready when a condition holds."""

    def __init__(self, folder: Path, kind: str, configuration: Path, answers: str) -> None:
        super().__init__(folder, "server.log", _START_SECONDS)
        self._kind, self._configuration, self._answers = kind, configuration, answers

    def _begin(self, lock: IO[str]) -> None:
        java = find_java()
        spec = find_spec("pyspark")
        assert spec is not None
        assert spec.submodule_search_locations is not None
        jars = [*map(str, JARS.jars("yarn")), f"{spec.submodule_search_locations[0]}/jars/*"]
        classpath = os.pathsep.join([str(self._configuration), *jars])
        options = ("-Xmx384m", "--add-opens=java.base/java.lang=ALL-UNNAMED", "-cp", classpath)
        command = [str(java.executable), *options, _MANAGERS[self._kind]]
        if not self._spawned(java, command, lock, lambda: _is_true(self._answers)):
            raise self._failed()


class Yarn:
    """Cluster with all its files in a folder.

    Attributes:
        configuration: folder for `HADOOP_CONF_DIR`.
    """

    def __init__(self, folder: Path) -> None:
        self.configuration = folder / "conf"
        self.configuration.mkdir(parents=True)
        settings = {f"{name}address": f"{HOST}:{free_port()}" for name in _ADDRESSES}
        self._url = f"http://{settings['yarn.resourcemanager.webapp.address']}/ws/v1/cluster"
        for name in ("local", "log"):
            settings[f"yarn.nodemanager.{name}-dirs"] = str(folder / name)
        settings |= {**_SETTINGS, "yarn.app.mapreduce.am.staging-dir": str(folder / "staging")}
        _write(self.configuration / "yarn-site.xml", settings)
        _write(
            self.configuration / "core-site.xml", {"fs.defaultFS": "file:///", "hadoop.tmp.dir": str(folder / "tmp")}
        )
        self._managers = [
            _Manager(folder / "resources", "resources", self.configuration, f"{self._url}/info"),
            _Manager(folder / "node", "node", self.configuration, f"{self._url}/nodes"),
        ]
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for manager in self._managers:
                stack.enter_context(manager)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def application(self) -> Mapping[str, Any]:
        found = (_read(f"{self._url}/apps")["apps"] or {}).get("app", [])
        return max(found, key=lambda app: int(app["id"].rpartition("_")[2]), default={})

    def kill_application(self) -> None:
        """End the last application, as `yarn application -kill` does."""
        request = urllib.request.Request(  # noqa: S310 - as in `_read`
            f"{self._url}/apps/{self.application()['id']}/state?user.name={os.environ.get('USER', 'root')}",
            json.dumps({"state": "KILLED"}).encode(),
            {"Content-Type": "application/json"},
            method="PUT",
        )
        urllib.request.urlopen(request, timeout=10).close()  # noqa: S310 - as in `_read`


def _is_true(url: str) -> bool:
    """Return True if a page of the resource manager has content."""
    with suppress(OSError):
        return any(_read(url).values())
    return False


def _read(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - the address is the resource manager's
        return json.load(answer)


def _write(path: Path, settings: Mapping[str, str]) -> None:
    lines = (
        f"<property><name>{name}</name><value>{escape(value)}</value></property>" for name, value in settings.items()
    )
    path.write_text("\n".join(("<configuration>", *lines, "</configuration>")))
