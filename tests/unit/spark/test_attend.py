"""The end of a job within a limited time."""

import signal
import subprocess
import threading
from typing import Any
from unittest.mock import MagicMock

import pytest

from streaming.errors import EntriesLethal, JobError, TakenOver, TopicReplaced
from streaming.spark import attend, quarantine, sinks


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done to a query."""
    done: list[str] = []
    monkeypatch.setattr(sinks, "end_after_batch", lambda _: done.append("end"))
    monkeypatch.setattr(attend, "_set_level", lambda _, level: done.append(level))
    monkeypatch.setattr(attend, "Report", MagicMock())
    return done


def endless(steps: list[str]) -> MagicMock:
    """Return a query whose micro-batch does not end."""
    query = MagicMock()
    query.awaitTermination.side_effect = lambda seconds: steps.append(f"wait {seconds}")
    query.stop.side_effect = lambda: steps.append("interrupt")
    return query


def test_a_micro_batch_that_does_not_end_is_interrupted(steps: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is asked of Kafka after that: it may be away."""
    monkeypatch.setattr(quarantine, "FailureWatch", MagicMock())
    nothing: Any = None
    clock = MagicMock(has_failed=False)
    attend.attend(endless(steps), lambda _: True, nothing, clock, nothing, monitor=None)
    assert steps == ["end", f"wait {attend.STOP_SECONDS}", "OFF", "interrupt"]
    assert not clock.check.called


@pytest.mark.parametrize("raised", [TakenOver("by another driver"), TopicReplaced("t"), EntriesLethal([])])
def test_a_query_that_must_not_go_on_is_interrupted_at_once(
    steps: list[str], monkeypatch: pytest.MonkeyPatch, raised: JobError
) -> None:
    """Because of the lease, the watch or a task. Spark's log is back for a query that starts again."""
    lease = MagicMock()
    lease.successor = isinstance(raised, TakenOver)
    lease.taken_over.return_value = raised
    failures = MagicMock()
    failures.found.return_value = raised if isinstance(raised, EntriesLethal) else None
    watch = MagicMock()
    watch.look.side_effect = raised if isinstance(raised, TopicReplaced) else None
    monkeypatch.setattr(quarantine, "FailureWatch", lambda _: failures)
    clock = MagicMock(has_failed=False)
    with pytest.raises(type(raised)):
        attend.attend(endless(steps), lambda _: False, lease, clock, watch, monitor=None)
    assert steps == ["OFF", "interrupt", *(["ERROR"] if isinstance(raised, EntriesLethal) else [])]


def test_the_end_of_a_job_is_limited() -> None:
    """Its JVM is killed, and what fails because of that is no failure."""
    assert attend.LIMIT_SECONDS < 30, "an orchestrator kills the job then"
    stop = threading.Event()
    with subprocess.Popen(["sleep", "60"]) as jvm:
        spark = MagicMock()
        spark.sparkContext._gateway.proc = jvm
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
