"""A Spark standalone cluster of one master and some workers, as processes that end with the one that started them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from streaming.errors import ClusterFailed
from streaming.local.guardian import guarded
from streaming.local.java import FIRST_TIER, environment, find_java
from streaming.local.node import HOST

if TYPE_CHECKING:
    from pathlib import Path

_LOG_LINES_SHOWN = 15
_POLL_SECONDS = 0.05
_STOP_SECONDS = 10.0
_MASTER_STARTED = r"Starting Spark master at (spark://\S+)"
_WORKER_REGISTERED = r"Successfully registered with master (spark://\S+)"


class Cluster:
    """A standalone master and its workers, on the loopback interface only and on ports that are free.

    | Usage | What happens |
    |---|---|
    | `with Cluster(folder) as cluster:` | a master and two workers of one core each, stopped at the end |
    | `reexpand run --master $URL ...` | the job runs on it, with `cluster.url` as URL |
    | `.kill_worker(1)`, `.start_worker(1)` | for tests of what happens around it |

    All of it dies with this process even when that is killed. Not for use from several threads at once.

    Args:
        folder: of its own, made when it does not exist; gets a log of each process and, in `worker-N`, of each
            executor.
        workers: how many are started; they are numbered from 1.
        cores: of each worker; so many tasks run there at a time.
        memory: of each worker, at least the 1g that an executor has by default.
        timeout: seconds within which the master, and then each worker, must be up.
    """

    def __init__(
        self, folder: Path, *, workers: int = 2, cores: int = 1, memory: str = "1g", timeout: float = 60
    ) -> None:
        self.folder = folder.absolute()
        self._numbers = range(1, workers + 1)
        self._cores = cores
        self._memory = memory
        self._timeout = timeout
        self._url = ""
        self._processes: dict[str, _Process] = {}

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """What `--master` must be."""
        return self._url

    def start(self) -> Self:
        """Start master and workers, and wait until the workers are registered.

        Raises:
            ClusterFailed: one of them does not come up, with the end of its log.
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
        """Start a worker that was killed, and wait until the master knows it; a job that runs gets an executor there.

        Raises:
            ClusterFailed: it does not come up.
        """
        self._launch_worker(number)
        self._wait_for_worker(number)

    def kill_worker(self, number: int) -> None:
        """End a worker and its executors at once, as the crash of their machine would."""
        self._processes.pop(f"worker-{number}").kill()

    def pause_worker(self, number: int) -> None:
        """Stop a worker and its executors as a machine that hangs would, until `resume_worker`."""
        self._processes[f"worker-{number}"].signal(signal.SIGSTOP)

    def resume_worker(self, number: int) -> None:
        """Let a worker that was paused go on."""
        self._processes[f"worker-{number}"].signal(signal.SIGCONT)

    def stop(self) -> None:
        """End everything, the hard way what does not end by itself."""
        for process in reversed(self._processes.values()):  # else workers would complain that they lost their master
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

        self.folder.mkdir(parents=True, exist_ok=True)
        home = _find_spark_home()  # as the job's driver finds its Spark: both must be the same
        variables = {
            **environment(find_java()),
            "SPARK_HOME": home,
            # The machine's own settings are for other clusters.
            "SPARK_CONF_DIR": str(self.folder / "conf"),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_LOCAL_DIRS": str(self.folder / "scratch"),
            # Neither of them does much; executors have options of their own.
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": FIRST_TIER,
        }
        command = [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{class_name}"]
        command += ["--host", HOST, "--port", "0", "--webui-port", "0", *arguments]
        process = _Process(name, command, variables, self.folder / f"{name}.log")
        self._processes[name] = process
        return process


class _Process:
    """A master or a worker, in one process group with its guardian and with what it starts."""

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
                start_new_session=True,  # Ctrl-C is for the program; it then stops the cluster
            )

    def wait_for(self, pattern: str, timeout: float) -> str:
        """Wait until the log has a match, and return its first group."""
        deadline = time.monotonic() + timeout
        while self._guardian.poll() is None and time.monotonic() < deadline:
            if match := re.search(pattern, self._log()):
                return match[1]
            time.sleep(_POLL_SECONDS)
        how = f"is not up after {timeout:.0f} s" if self._guardian.poll() is None else "ended while starting"
        end = "\n".join(f"    {line}" for line in self._log().splitlines()[-_LOG_LINES_SHOWN:])
        raise ClusterFailed(f"The Spark {self._name} {how}. The end of {self._log_file}:\n{end}")

    def stop(self) -> None:
        """Ask it to end, which ends its executors, and see to it that all have ended."""
        if self._guardian.stdin is not None:
            with suppress(BrokenPipeError):
                self._guardian.stdin.write(bytes([signal.SIGTERM]))
        with suppress(subprocess.TimeoutExpired):
            self._guardian.wait(_STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End it and its executors at once."""
        with suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        self._guardian.communicate()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it and its executors."""
        os.killpg(self._guardian.pid, number)

    def _log(self) -> str:
        return self._log_file.read_text(encoding="utf-8", errors="replace")
