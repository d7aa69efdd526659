"""A Spark standalone cluster of a master and workers, as child processes with the lifetime of their parent."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

from streaming.errors import ClusterFailed
from streaming.local.cache import write_whole
from streaming.local.guardian import guarded
from streaming.local.java import FIRST_TIER, environment, find_java
from streaming.local.node import HOST
from streaming.local.process import end_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_POLL_SECONDS = 0.05
_STOP_SECONDS = 10.0
"""Seconds for an orderly end, after which a process is killed."""

_MASTER_STARTED = r"Starting Spark master at (spark://\S+)"
_WORKER_REGISTERED = r"Successfully registered with master (spark://\S+)"


class SparkCluster:
    """A standalone master and its workers, on free ports of the loopback interface.

    | Usage | What happens |
    |---|---|
    | `with SparkCluster(folder) as cluster:` | a master and two workers of one core each, stopped at the end |
    | `reexpand run --master $URL ...` | the job runs on it, with `cluster.url` as URL |
    | `.kill_worker(1)`, `.start_worker(1)` | for tests of a job during faults of the cluster |

    All processes die with this one, even when it is killed. Not for use from several threads at once.

    Args:
        folder: folder of its own, created when it does not exist, for the log of each process and, in `worker-N`, the
            logs of each executor.
        workers: number of workers; they are numbered from 1.
        cores: cores of each worker, which is the number of tasks that it runs at a time.
        memory: memory of each worker, at least the 1g that an executor has by default.
        timeout: seconds within which the master, and then each worker, must be up.
        options: options of Spark for master and workers; `configuration` is the folder with them.
    """

    def __init__(
        self,
        folder: Path,
        *,
        workers: int = 2,
        cores: int = 1,
        memory: str = "1g",
        timeout: float = 60,
        options: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.folder = folder.absolute()
        self._numbers = range(1, workers + 1)
        self._cores = cores
        self._memory = memory
        self._timeout = timeout
        self._options = options
        self._url = ""
        self._processes: dict[str, _Process] = {}

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def configuration(self) -> Path:
        """Folder of Spark's configuration, for `SPARK_CONF_DIR` of a job with the same options."""
        return self.folder / "conf"

    @property
    def url(self) -> str:
        """URL of the master, for `--master`."""
        return self._url

    def start(self) -> Self:
        """Start master and workers, and wait until the workers are registered.

        Raises:
            ClusterFailed: one of them does not come up; the message has the end of its log.
        """
        try:
            self._url = self._launch("master", "master.Master").wait_for(_MASTER_STARTED, self._timeout)
            for number in self._numbers:
                self._launch_worker(number)
            for number in self._numbers:
                self._wait_for_worker(number)
        except OSError as error:
            self.stop()
            raise ClusterFailed(f"The Spark cluster cannot work in {self.folder}: {error}.") from error
        except BaseException:
            self.stop()
            raise
        return self

    def start_worker(self, number: int) -> None:
        """Start a killed worker again, and wait until the master knows it; a running job gets an executor there.

        Raises:
            ClusterFailed: the worker does not come up.
        """
        self._launch_worker(number)
        self._wait_for_worker(number)

    def kill_worker(self, number: int) -> None:
        """Kill a worker and its executors, as the crash of their machine would."""
        self._processes.pop(f"worker-{number}").kill()

    def pause_worker(self, number: int) -> None:
        """Freeze a worker and its executors, as a hanging machine would, until `resume_worker`."""
        self._processes[f"worker-{number}"].signal(signal.SIGSTOP)

    def resume_worker(self, number: int) -> None:
        """Let a paused worker go on."""
        self._processes[f"worker-{number}"].signal(signal.SIGCONT)

    def stop(self) -> None:
        """Stop all processes; kill them if they do not end by themselves."""
        for process in reversed(self._processes.values()):  # workers would log the loss of their master as an error
            process.stop()
        self._processes.clear()

    def _launch_worker(self, number: int) -> None:
        name = f"worker-{number}"
        size = ("--cores", str(self._cores), "--memory", self._memory)
        self._launch(name, "worker.Worker", *size, "--work-dir", str(self.folder / name), self._url)

    def _wait_for_worker(self, number: int) -> None:
        self._processes[f"worker-{number}"].wait_for(_WORKER_REGISTERED, self._timeout)

    def _launch(self, name: str, class_name: str, *arguments: str) -> _Process:
        from pyspark.find_spark_home import _find_spark_home  # noqa: PLC0415 -- imports all of pyspark

        lines = "".join(f"{name} {value}\n" for name, value in self._options.items())
        write_whole(self.configuration / "spark-defaults.conf", lines.encode(), mode=0o600)
        home = _find_spark_home()  # the Spark that the job's driver finds: both must be the same
        variables = {
            **environment(find_java()),
            "SPARK_HOME": home,
            # The machine's own settings are for other clusters.
            "SPARK_CONF_DIR": str(self.configuration),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_LOCAL_DIRS": str(self.folder / "scratch"),
            # Neither master nor worker does much; executors have options of their own.
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": FIRST_TIER,
        }
        command = [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{class_name}"]
        command += ["--host", HOST, "--port", "0", "--webui-port", "0", *arguments]
        process = _Process(name, command, variables, self.folder / f"{name}.log")
        self._processes[name] = process
        return process


class _Process:
    """Master or worker, in one process group with its guardian and its child processes."""

    def __init__(self, name: str, command: list[str], variables: dict[str, str], log_file: Path) -> None:
        self._name = name
        self._log_file = log_file
        with log_file.open("wb") as log:
            self._guardian = subprocess.Popen(
                guarded(command),
                env=variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
                bufsize=0,
                start_new_session=True,  # Ctrl-C reaches this process only, which then stops the cluster
            )

    def wait_for(self, pattern: str, timeout: float) -> str:
        """Wait until the log matches the pattern, and return its first group."""
        deadline = time.monotonic() + timeout
        while self._guardian.poll() is None and time.monotonic() < deadline:
            if match := re.search(pattern, self._log()):
                return match[1]
            time.sleep(_POLL_SECONDS)
        how = f"is not up after {timeout:.0f} s" if self._guardian.poll() is None else "ended while starting"
        raise ClusterFailed(f"The Spark {self._name} {how}. The end of {self._log_file}:\n{end_of(self._log_file)}")

    def stop(self) -> None:
        """Ask the process to end, and its executors with it; kill them if they do not."""
        if self._guardian.stdin is not None:
            with suppress(BrokenPipeError):
                self._guardian.stdin.write(bytes([signal.SIGTERM]))
        with suppress(subprocess.TimeoutExpired):
            self._guardian.wait(_STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        """Kill the process and its executors."""
        with suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        self._guardian.communicate()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and its executors."""
        os.killpg(self._guardian.pid, number)

    def _log(self) -> str:
        return self._log_file.read_text(encoding="utf-8", errors="replace")
