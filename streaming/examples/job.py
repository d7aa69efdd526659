"""The job as a child process of the demo, and a short run that records the Java classes for the archive."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Self

from streaming.config import Settings
from streaming.errors import DemoFailed
from streaming.examples.scenario import SCENES
from streaming.examples.verdict import Follower
from streaming.kafka import specs
from streaming.kafka.topics import create_topics
from streaming.kafka.writer import Writer
from streaming.local import classes
from streaming.local.broker import Broker
from streaming.local.java import OPTIONS_VARIABLE, short_lived
from streaming.local.process import Child, end_of, tail
from streaming.records.model import Stream

if TYPE_CHECKING:
    from collections.abc import Sequence

START = (sys.executable, "-P", "-c", "import sys; from streaming.cli import main; sys.exit(main(prog_name='reexpand'))")
"""Command line of `reexpand`, for a child process."""

_READY = "ready: reading "
_POLL_SECONDS = 0.1
_STOP_SECONDS = 60.0
_SHORT_STOP_SECONDS = 5.0
"""Timeout of a stop, in seconds, if the last output is not needed."""

_LINGER_SECONDS = 5.0
"""Time in seconds within which Java ends after the command."""

_UPDATE_SECONDS = 600.0
"""Timeout of the first update of a rehearsal."""

_REHEARSAL_STOP_SECONDS = 300.0


def prepared(broker: Broker, folder: Path, master: str | None = None) -> Settings:
    """Return the settings of a job on this broker, which are the defaults of `reexpand run`, and create its topics.

    Settings in the environment are for the user's own jobs.
    """
    settings = Settings.model_construct(
        bootstrap_servers=broker.bootstrap_servers, checkpoint=str(folder / "checkpoint"), master=master
    )
    create_topics(broker.bootstrap_servers, specs.specs(settings))
    return settings


class Job:
    """`reexpand run` as a child process, which ends with this process.

    Args:
        settings: address of the broker, checkpoint and master. The job gets no other settings.
        scratch: folder of Spark's temporary files.
        java_options: additional options of Spark's JVM. They also make Spark log the JVM's command.
    """

    def __init__(self, settings: Settings, log_file: Path, scratch: Path, java_options: Sequence[str] = ()) -> None:
        self.log_file = log_file
        self._command = [
            *(*START, "run"),
            *("--bootstrap-servers", settings.bootstrap_servers),
            *("--checkpoint", settings.checkpoint),
            *(("--master", settings.master) if settings.master is not None else ()),
            *("--http", "127.0.0.1:0"),
        ]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("REEXPAND_")}
        own = {"SPARK_LOCAL_DIRS": str(scratch), "PYTHONUNBUFFERED": "1", **short_lived(inherited)}
        if java_options:
            own |= {OPTIONS_VARIABLE: " ".join([own[OPTIONS_VARIABLE], *java_options]), classes.LAUNCH_VARIABLE: "1"}
        self._environment = {**inherited, **own}
        self._child: Child | None = None

    def __enter__(self) -> Self:
        self._child = Child(self._command, self.log_file, environment=self._environment)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(_SHORT_STOP_SECONDS)

    @property
    def is_ready(self) -> bool:
        """True if the job reads its inputs; raises `DemoFailed` if it has ended."""
        self.check()
        return _READY in tail(self.log_file)

    def check(self) -> None:
        """Raise `DemoFailed` if the job has ended."""
        if self._child is None or not self._child.running:
            raise self.failure("ended unexpectedly")

    def failure(self, how: str) -> DemoFailed:
        """Return an error about the job, with the end of its log."""
        return DemoFailed(f"The job {how}. {end_of(self.log_file)}")

    def stop(self, timeout: float = _STOP_SECONDS) -> int | None:
        """Stop the job after the current micro-batch, and return its exit code.

        None if it was killed after the timeout, or was not running.
        """
        child, self._child = self._child, None
        if child is None:
            return None
        code = None
        try:
            child.send(signal.SIGTERM)
            code = child.wait(timeout)
            deadline = time.monotonic() + _LINGER_SECONDS
            while code is not None and child.group_exists() and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
        finally:
            child.kill_group()
        return code

    def kill(self) -> None:
        """Kill the job and its Java, as a crash of its machine would."""
        child, self._child = self._child, None
        if child is not None:
            child.kill_group()


def rehearse(archive: Path) -> None:
    """Run the job on a dedicated broker until its first update, and archive the classes that it has loaded.

    Raises:
        DemoFailed: the job does not start, or writes no update.
        JarsUnavailable: the archive cannot be created or stored.
        BrokerFailed: the broker does not start.
    """
    with TemporaryDirectory(prefix="reexpand-") as name:
        folder = Path(name)
        loaded, log = folder / "classes", folder / "job.log"
        with Broker(folder / "kafka") as broker:
            settings = prepared(broker, folder)
            names = dict(zip(Stream, settings.inputs, strict=True))
            writer = Writer(settings.bootstrap_servers, {}, DemoFailed)
            for step in (step for scene in SCENES for step in scene.steps):
                writer.send(names[step.stream], step.value, step.key.encode())
            writer.flush(_REHEARSAL_STOP_SECONDS)
            with Job(settings, log, folder / "spark", [f"-XX:DumpLoadedClassList={loaded}"]) as job:
                _wait_for_update(settings, job)
                if job.stop(_REHEARSAL_STOP_SECONDS) != 0:
                    raise job.failure("did not stop cleanly")
        classes.make_archive(archive, loaded, log.read_text(encoding="utf-8", errors="replace"))


def _wait_for_update(settings: Settings, job: Job) -> None:
    deadline = time.monotonic() + _UPDATE_SECONDS
    with Follower(settings) as follower:
        while not follower.relation:
            job.check()
            for _ in follower.poll(_POLL_SECONDS):
                pass
            if time.monotonic() > deadline:
                raise job.failure(f"has written no update after {_UPDATE_SECONDS:.0f} s")
