"""How a job starts and ends, without Spark."""

import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import MagicMock

import pytest
from pyspark.errors import StreamingQueryException

from streaming.config import Settings, load
from streaming.errors import (
    CheckpointInUse,
    EntriesLethal,
    JobError,
    JobFailed,
    KafkaUnavailable,
    RecordsLost,
    TakenOver,
    TopicReplaced,
    UpdatesUnknown,
)
from streaming.kafka.facts import NotedTopic
from streaming.local import classes, jars
from streaming.spark import attend, checkpoint, clock, job, notes, provision, quarantine, query, service, session, sinks
from streaming.spark.checkpoint import Agreement, QueryProgress
from streaming.spark.expand import NO_PRECAUTIONS
from streaming.spark.failures import end_of_java, explained, one_line, text_of
from streaming.spark.notes import Terms
from streaming.storage import folder


def settings(folder: str = "/c") -> Settings:
    return load({"bootstrap_servers": "b:1", "checkpoint": folder, "http": "off"})


SETTINGS = settings()


class Job:
    """A job whose parts do nothing.

    Attributes:
        steps: what the job does from its start to its end.
        is_stopped: Ctrl-C ends the job as soon as its query runs.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def part(module: Any, name: str) -> MagicMock:
            made = MagicMock()
            made.__enter__.return_value, made.__exit__.return_value = made, None
            monkeypatch.setattr(module, name, lambda *_, **__: made)
            return made

        self.steps: list[str] = []
        self.is_stopped = True
        self.query = MagicMock(isActive=True)
        self.query.awaitTermination.return_value = True
        self.query.stop.side_effect = self.step("stop")
        self.clock = part(query, "Clock")
        self.clock.has_failed = False
        self.failures = part(quarantine, "FailureWatch")
        self.failures.found.return_value = None
        self.kafka = part(service, "KafkaAdmin")
        self.kafka.names.return_value = {*SETTINGS.inputs, SETTINGS.answers}
        self.kafka.allowed_on_topics.return_value = {}
        self.kafka.allowed_on_group.return_value = None
        self.kafka.open_transactions.return_value = set()
        self.lease = part(service, "Lease")
        self.lease.generation, self.lease.end_of_former.return_value = 1, "none"
        self.lease.successor = self.lease.find_successor.return_value = None
        self.lease.acquire.side_effect = self.step("acquire")
        for module, name in (
            (query, "TopicWatch"),
            (attend, "Report"),
            (service, "QueryMonitor"),
            (checkpoint, "CheckpointFiles"),
        ):
            part(module, name)

    def step(self, name: str, result: object = None) -> Callable[..., Any]:
        def take(*_: object, **__: object) -> object:
            self.steps.append(name)
            return result

        return take

    def build(self, *_: object, **__: object) -> MagicMock:
        """Start Spark, whose JVM is not ours."""
        signal.signal(signal.SIGINT, aborted)
        spark = MagicMock()
        spark.sparkContext._gateway.proc = None
        return spark

    def start(self, _: object, settings: Settings, *__: object, silent: bool, answers: bool, **more: object) -> Any:
        assert (silent, answers) == (False, True)
        assert more == {"adopted": None, "precautions": NO_PRECAUTIONS}
        self.steps.append(f"start {settings.checkpoint}")
        if self.is_stopped:
            signal.raise_signal(signal.SIGINT)
        return self.query


def built(spark: MagicMock) -> Callable[..., MagicMock]:
    def build(*_: object, begun: Callable[[object], None]) -> MagicMock:
        begun(spark.sparkContext)
        return spark

    return build


def raising(error: Exception) -> Callable[..., NoReturn]:
    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    return fail


def aborted(*_: object) -> NoReturn:
    """Handles SIGINT as a SparkContext does."""
    raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    """Signals are handled as before when a test is over."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def running(monkeypatch: pytest.MonkeyPatch) -> Job:
    made = Job(monkeypatch)
    for module, name, function in (
        (jars, "spark", list),
        (classes, "sink", Path),
        (session, "build", made.build),
        (folder, "check", lambda *_, **__: None),
        (notes, "check_usable", made.step("usable")),
        (checkpoint, "agree", made.step("agree", Agreement("id", 3))),
        (checkpoint, "fix", made.step("fix")),
        (checkpoint, "progress", lambda *_: QueryProgress()),
        (provision, "provide", made.step("provide", {})),
        (clock, "prepare", made.step("prepare")),
        (provision, "publish_groups", made.step("publish")),
        (job, "start", made.start),
        (quarantine, "precautions", lambda *_: NO_PRECAUTIONS),
        (notes, "settings_of_plan", lambda _, wanted, *__: Terms(wanted)),
        (sinks, "end_after_batch", made.step("end")),
        (attend, "_set_level", lambda _, level: made.steps.append(level)),
    ):
        monkeypatch.setattr(module, name, function)
    return made


def test_settings_are_fixed_right_before_the_query_begins(running: Job) -> None:
    """Ctrl-C lets the running micro-batch finish, although a new SparkContext handles SIGINT itself."""
    service.run(settings())
    assert running.steps == [
        "usable", "agree", "acquire", "provide", "prepare", "publish", "fix", "start /c", "end",
    ]  # fmt: skip


def test_a_job_that_is_to_end_while_it_waits_for_a_broker_ends_at_once(
    running: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, is_over: Callable[[], bool]) -> MagicMock:
        assert not is_over()
        signal.raise_signal(signal.SIGTERM)
        assert is_over()
        return running.kafka

    monkeypatch.setattr(service, "KafkaAdmin", away)
    service.run(settings())
    assert running.steps == ["usable", "agree"]


@pytest.mark.parametrize("master", [None, "local[2]", "spark://master:7077"])
def test_a_local_job_starts_its_workers_before_the_first_micro_batch(
    running: Job, monkeypatch: pytest.MonkeyPatch, master: str | None
) -> None:
    """A failure is left to the query."""
    spark, asked = running.build(), threading.Event()
    spark.sparkContext.parallelize.side_effect = lambda *_, **__: asked.set()
    monkeypatch.setattr(session, "build", built(spark))
    service.run(settings().model_copy(update={"master": master}))
    assert asked.wait(0.1 if master == "spark://master:7077" else 60) == (master != "spark://master:7077")


def test_a_job_that_ends_while_its_workers_start_logs_no_stacks(running: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    spark, over = running.build(), threading.Event()
    spark.sparkContext.parallelize.side_effect = lambda *_, **__: over.wait(60)
    spark.stop.side_effect = lambda: running.steps.append("Spark stops")
    spark.sparkContext.setLogLevel.side_effect = running.steps.append
    monkeypatch.setattr(session, "build", built(spark))
    monkeypatch.setattr(checkpoint, "agree", raising(CheckpointInUse("in use")))
    with pytest.raises(CheckpointInUse):
        service.run(settings())
    assert running.steps[-2:] == ["OFF", "Spark stops"]
    over.set()


def test_a_jvm_that_is_killed_is_one_sentence(running: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """And Spark is not asked to stop."""
    with subprocess.Popen(["sleep", "60"]) as jvm:
        spark = running.build()
        spark.sparkContext._gateway.proc = jvm

        def agree(*_: object) -> NoReturn:
            jvm.kill()
            raise ConnectionRefusedError

        monkeypatch.setattr(session, "build", built(spark))
        monkeypatch.setattr(checkpoint, "agree", agree)
        with pytest.raises(JobFailed, match=r"JVM has ended \(exit code -9\)"):
            service.run(settings())
    spark.stop.assert_not_called()


NO_ROOM = (
    "no room for the records of this micro-batch",
    "--from-state --former /c --checkpoint NEW --max-offsets-per-trigger 250.",
)
NO_STATE = "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state."


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            explained(NO_STATE, SETTINGS),
            ("/c/query/state", "Restore a copy of the checkpoint, or start over", NO_STATE),
        ),
        (
            explained("Job aborted: org.apache.spark.SparkException: Python worker exited unexpectedly (x)", SETTINGS),
            ("Python workers were killed several times",),
        ),
        (
            explained("[STREAMING_CHECKPOINT_MISSING_METADATA_FILE] Checkpoint location ...", SETTINGS),
            ("/c/query/metadata is missing", "Restore a copy"),
        ),
        (
            explained("DirectByteBufferOutputStream cannot grow beyond 2GB limit (requested 2147485320)", SETTINGS),
            NO_ROOM,
        ),
        (explained("org.apache.arrow.memory.OutOfMemoryException: Failure allocating buffer.", SETTINGS), NO_ROOM),
        (end_of_java(52, SETTINGS), NO_ROOM),
    ],
    ids=["state", "workers", "metadata", "buffer", "memory", "java"],
)
def test_a_failure_of_spark_is_told_with_the_way_out(said: str, words: tuple[str, ...]) -> None:
    """Spark's text has neither; it may fail at each start."""
    assert [word for word in words if word not in said] == []
    assert "SparkException" not in said


def test_an_error_of_spark_is_one_line_without_the_stacks_of_java() -> None:
    said = "Job aborted: java.io.IOException: No space left on device"
    assert one_line(f"{said}\n\tat java.base/a.B\n\t... 2 more\nDriver stacktrace:") == said
    traceback = "Traceback (most recent call last):\n  File x\nValueError: y"
    assert one_line(traceback) == traceback
    corrupted = (
        f"{traceback}\nstreaming.errors.StateCorrupted: a part is missing, /c/parts/1; restore\n SQLSTATE: 38000"
    )
    assert explained(corrupted, SETTINGS) == "a part is missing, /c/parts/1; restore"
    assert explained("Job aborted", SETTINGS) == "Job aborted"


def test_the_cause_at_the_end_of_a_long_traceback_is_told() -> None:
    """A frame has two paths of an installation, and a traceback some 17 frames."""
    frames = '  File "/opt/venvs/reexpand/lib/python3.11/site-packages/streaming/x.py", line 1, in f\n    x()\n' * 60
    begin = f"[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback (most recent call last):\n{frames}"

    def told(cause: str) -> str:
        error = StreamingQueryException(f"{begin}{cause}\n SQLSTATE: 38000\n=== Streaming Query ===\n...")
        return explained(text_of(error), SETTINGS)

    assert told("streaming.errors.StateCorrupted: a part is missing; restore") == "a part is missing; restore"
    assert told("OSError: [Errno 28] No space left on device").startswith("a disk is full: ")
    assert told("ValueError: x").endswith("ValueError: x\n SQLSTATE: 38000")
    assert len(told("ValueError: x")) < 4_100


@pytest.mark.rule("simultaneous-starts")
def test_of_two_drivers_that_begin_at_once_the_slower_one_stands_by(
    running: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it was to; else it is refused."""
    in_use = CheckpointInUse("another driver has just started on the new checkpoint /c.")
    monkeypatch.setattr(checkpoint, "fix", MagicMock(side_effect=[in_use, in_use, None]))
    monkeypatch.setattr(service, "acquire_when_free", running.step("stand by", result=True))
    with pytest.raises(CheckpointInUse):
        service.run(settings())
    assert not running.steps.count("stand by")
    service.run(settings(), stands_by=True)
    assert running.steps.count("stand by") == 2
    assert running.steps[-1] == "end"


def polled(answer: Callable[[], bool]) -> Callable[..., bool]:
    """Return a method of an event that answers those who poll, and lets others wait."""
    wait = threading.Event.wait

    def wait_or_answer(event: threading.Event, timeout: float | None = None) -> bool:
        return answer() if timeout == attend._POLL_SECONDS else wait(event, timeout)

    return wait_or_answer


def test_a_query_that_an_entry_has_ended_is_started_again_without_it(
    running: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_out = MagicMock()
    running.is_stopped = False
    running.failures.found.side_effect = [EntriesLethal([{"offset": 1}]), None]
    monkeypatch.setattr(quarantine, "leave_out", left_out)
    stops = iter([False, True])
    monkeypatch.setattr(threading.Event, "wait", polled(lambda: next(stops)))
    service.run(settings())
    assert [each.args[-1].entries for each in left_out.call_args_list] == [[{"offset": 1}]]
    assert running.steps[running.steps.index("start /c") :] == ["start /c", "OFF", "stop", "ERROR", "start /c", "end"]


def test_a_driver_that_was_replaced_leaves_out_nothing(running: Job) -> None:
    running.is_stopped = False
    running.failures.found.return_value = EntriesLethal([{"offset": 1}])
    running.lease.find_successor.return_value = "another driver"
    running.lease.taken_over.return_value = TakenOver("another driver has taken over")
    with pytest.raises(TakenOver):
        service.run(settings())
    assert running.steps[-4:] == ["start /c", "OFF", "stop", "ERROR"]


def test_settings_of_a_start_apply_when_the_planned_micro_batch_is_committed(
    running: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.is_stopped = False
    terms = iter([Terms(settings("/former"), 7), Terms(SETTINGS)])
    monkeypatch.setattr(notes, "settings_of_plan", lambda *_: next(terms))
    monkeypatch.setattr(query, "until", lambda _, stop, through: stop if through is None else lambda _: True)
    stops = iter([True])
    monkeypatch.setattr(threading.Event, "wait", polled(lambda: next(stops)))
    service.run(settings())
    assert running.steps[-4:] == ["start /former", "end", "start /c", "end"]


def test_a_new_checkpoint_that_another_driver_has_begun_during_the_wait_is_in_use(
    running: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = Agreement("other", 3, {"clock": NotedTopic(SETTINGS.clock, "x")})
    looks = [Agreement("id", 3), begun, begun, begun]
    monkeypatch.setattr(checkpoint, "agree", lambda *_: looks.pop(0))
    monkeypatch.setattr(service, "acquire_when_free", lambda *_, **__: True)
    service.run(settings(), stands_by=True)
    assert not looks
    assert running.steps[-1] == "end"


def test_a_job_whose_clock_has_failed_ends(running: Job) -> None:
    """After the running micro-batch, and it says why."""
    running.clock.has_failed = True
    running.clock.check.side_effect = JobFailed("the clock of the job has stopped")
    with pytest.raises(JobFailed, match="the clock of the job has stopped"):
        service.run(settings())
    assert running.steps[-1] == "end"


def test_a_start_without_kafka_fixes_no_settings(running: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provision, "provide", raising(KafkaUnavailable("no broker")))
    with pytest.raises(KafkaUnavailable):
        service.run(settings())
    assert running.steps == ["usable", "agree", "acquire"]


def test_executors_get_the_path_of_a_relative_checkpoint(
    running: Job, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    service.run(settings("here"))
    assert f"start {tmp_path}/here" in running.steps


@pytest.mark.parametrize("clock_topic", [SETTINGS.clock, "other-clock"], ids=["lease held", "lease elsewhere"])
@pytest.mark.parametrize("refusal", [TopicReplaced, RecordsLost, UpdatesUnknown])
def test_a_checkpoint_that_fits_its_topics_no_more_leaves_no_transaction_open(
    running: Job, refusal: type[JobError], clock_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under another clock topic nothing is known of a driver that lives."""
    agreed = Agreement("id", 3, {"clock": NotedTopic(clock_topic, "x")})
    monkeypatch.setattr(checkpoint, "agree", lambda *_: agreed)
    monkeypatch.setattr(provision, "provide", raising(refusal("the topic updates does not fit")))
    with pytest.raises(refusal):
        service.run(settings())
    ended = [each.args[0] for each in running.kafka.end_transactions.call_args_list]
    assert ended == ([agreed.partition_names] if clock_topic == SETTINGS.clock else [])
