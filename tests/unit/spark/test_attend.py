"""The end of a job within a limited time."""

import signal
import subprocess
import threading
from typing import Any

import pytest

from streaming.errors import EntriesLethal, JobError, TakenOver, TopicReplaced
from streaming.spark import attend, quarantine, sinks


class Endless:
    """A query whose micro-batch does not end; what is done to it is noted."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def awaitTermination(self, timeout: float | None = None) -> bool:  # noqa: N802 - Spark's name
        """Does not end."""
        assert timeout is not None
        self.steps.append("wait")
        return False

    def stop(self) -> None:
        """Interrupt it."""
        self.steps.append("interrupt")


class Clock:
    """A clock without a failure."""

    has_failed = False


class Spark:
    """A session with a JVM of its own."""

    def __init__(self, jvm: "subprocess.Popen[bytes]") -> None:
        self.sparkContext = self._gateway = self
        self.proc = jvm


def test_a_micro_batch_that_does_not_end_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is asked of Kafka after that: it may be away."""
    query: Any = Endless()
    stop = threading.Event()
    stop.set()
    monkeypatch.setattr(sinks, "end_after_batch", lambda _: query.steps.append("end"))
    monkeypatch.setattr(attend, "_set_level", lambda _, level: query.steps.append(level))
    monkeypatch.setattr(quarantine, "FailureWatch", lambda _: None)
    monkeypatch.setattr(attend, "Report", lambda *_: None)
    nothing: Any = None
    clock: Any = Clock()
    attend.attend(query, stop.wait, nothing, clock, nothing, monitor=None)
    assert query.steps == ["end", "wait", "OFF", "interrupt"]


@pytest.mark.parametrize("raised", [TakenOver("by another driver"), TopicReplaced("t"), EntriesLethal([])])
def test_a_query_that_must_not_go_on_is_interrupted_at_once(monkeypatch: pytest.MonkeyPatch, raised: JobError) -> None:
    """Spark's log is back for a query that starts again."""

    class Beside:
        """The report, the lease, the clock, the watch and the failures of tasks, one of which has the reason."""

        has_failed = False

        def write(self) -> None:
            """Nothing."""

        def successor(self) -> bool:
            """Another driver."""
            return isinstance(raised, TakenOver)

        def taken_over(self) -> JobError:
            """The reason of the lease."""
            return raised

        def found(self) -> JobError | None:
            """The reason of a task."""
            return raised if isinstance(raised, EntriesLethal) else None

        def look(self) -> None:
            """The reason of the watch."""
            if isinstance(raised, TopicReplaced):
                raise raised

    query, beside = Endless(), Beside()
    monkeypatch.setattr(attend, "_set_level", lambda _, level: query.steps.append(level))
    monkeypatch.setattr(quarantine, "FailureWatch", lambda _: beside)
    monkeypatch.setattr(attend, "Report", lambda *_: beside)
    as_any: Any = beside
    running: Any = query
    with pytest.raises(type(raised)):
        attend.attend(running, threading.Event().wait, as_any, as_any, as_any, monitor=None)
    assert query.steps == ["OFF", "interrupt", *(["ERROR"] if isinstance(raised, EntriesLethal) else [])]


def test_the_end_of_a_job_is_limited() -> None:
    """Its JVM is killed, and what fails because of that is no failure."""
    assert attend.LIMIT_SECONDS < 30, "an orchestrator kills the job then"
    stop = threading.Event()
    with subprocess.Popen(["sleep", "60"]) as jvm:
        spark: Any = Spark(jvm)
        with attend.Limit(stop, 0.1) as limit:
            limit.watch(spark)
            stop.set()
            jvm.wait(60)
            _refused()
        assert jvm.returncode == -signal.SIGKILL


def _refused() -> None:
    raise ConnectionRefusedError


def _fails(stop: threading.Event) -> None:
    with attend.Limit(stop):
        stop.set()
        _refused()


def test_a_failure_within_the_limit_is_one() -> None:
    with pytest.raises(ConnectionRefusedError):
        _fails(threading.Event())
