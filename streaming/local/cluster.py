"""A local Spark standalone cluster of a master and workers, as child processes."""

from __future__ import annotations

import re
import signal
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

from streaming.errors import ClusterFailed
from streaming.local.java import FIRST_TIER, environment, find_java
from streaming.local.process import Child, end_of, tail, write_whole
from streaming.local.server import HOST

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_START_SECONDS = 300.0
"""Time in seconds within which the master, and then each worker, must start."""

_STOP_SECONDS = 10.0
"""Timeout of a graceful stop, after which a process is killed."""

_MASTER_STARTED = r"Starting Spark master at (spark://\S+)"
_WORKER_REGISTERED = r"Successfully registered with master (spark://\S+)"


class SparkCluster:
    """A standalone master and its workers, on free ports of the loopback interface.

    | Usage | Effect |
    |---|---|
    | `with SparkCluster(folder) as cluster:` | a master and two workers of one core each, stopped at the end |
    | `reexpand run --master $URL ...` | the job runs on it, with `cluster.url` as URL |
    | `.kill_worker(1)` | the worker and its executors end, as after a crash of their machine |

    All processes end with this process, even if it is killed. Not thread-safe.

    Args:
        folder: dedicated folder, created if needed, for the log of each process and, in `worker-N`, of each executor.
        workers: number of workers, numbered from 1.
        memory: memory of each worker, at least 1g, the default of an executor.
        options: Spark options of master and workers, stored in the folder `configuration`.

    Attributes:
        url: URL of the master, for `--master`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        workers: int = 2,
        memory: str = "1g",
        options: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.folder = folder.absolute()
        self._numbers = range(1, workers + 1)
        self._memory = memory
        self._options = options
        self.url = ""
        self._processes: dict[str, Child] = {}

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def configuration(self) -> Path:
        """Folder of Spark's configuration, for `SPARK_CONF_DIR` of a job with the same options."""
        return self.folder / "conf"

    def start(self) -> Self:
        """Start master and workers, and wait until the workers are registered.

        Raises:
            ClusterFailed: a process does not start. The error contains the end of its log.
        """
        try:
            self._launch("master", "master.Master")
            self.url = self._wait_for("master", _MASTER_STARTED)
            for number in self._numbers:
                self._launch_worker(number)
            for number in self._numbers:
                self._wait_for(f"worker-{number}", _WORKER_REGISTERED)
        except BaseException as error:
            self.stop()
            if isinstance(error, OSError):
                raise ClusterFailed(f"The Spark cluster cannot work in {self.folder}: {error}.") from error
            raise
        return self

    def kill_worker(self, number: int) -> None:
        """Kill a worker and its executors, as a crash of their machine would."""
        self._processes.pop(f"worker-{number}").kill_group()

    def stop(self) -> None:
        """Stop all processes gracefully; kill them after a timeout."""
        for process in reversed(self._processes.values()):  # workers would log the loss of their master as an error
            process.send(signal.SIGTERM)
            process.wait(_STOP_SECONDS)
            process.kill_group()
        self._processes.clear()

    def _launch_worker(self, number: int) -> None:
        name = f"worker-{number}"
        size = ("--cores", "1", "--memory", self._memory)
        self._launch(name, "worker.Worker", *size, "--work-dir", str(self.folder / name), self.url)

    def _wait_for(self, name: str, pattern: str) -> str:
        """Wait until the log of a process matches the pattern, and return its first group."""
        process, log_file = self._processes[name], self.folder / f"{name}.log"
        if match := process.wait_for(lambda: re.search(pattern, tail(log_file)), _START_SECONDS):
            return match[1]
        how = f"has not started after {_START_SECONDS:.0f} s" if process.running else "ended while starting"
        raise ClusterFailed(f"The Spark {name} {how}. {end_of(log_file)}")

    def _launch(self, name: str, class_name: str, *arguments: str) -> None:
        from pyspark.find_spark_home import _find_spark_home  # noqa: PLC0415 -- imports all of pyspark

        lines = "".join(f"{name} {value}\n" for name, value in self._options.items())
        write_whole(self.configuration / "spark-defaults.conf", lines.encode(), mode=0o600)
        home = _find_spark_home()  # the installation that the job's driver uses too
        variables = {
            **environment(find_java()),
            "SPARK_HOME": home,
            # The settings of this machine are for other clusters.
            "SPARK_CONF_DIR": str(self.configuration),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_LOCAL_DIRS": str(self.folder / "scratch"),
            # Master and worker need little; executors have separate options.
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": FIRST_TIER,
        }
        command = [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{class_name}"]
        command += ["--host", HOST, "--port", "0", "--webui-port", "0", *arguments]
        self._processes[name] = Child(command, self.folder / f"{name}.log", environment=variables)
