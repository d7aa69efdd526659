"""How a job starts and ends, without Spark."""

import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn, Self

import pytest

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
from streaming.spark.failures import end_of_java, explained, one_line
from streaming.spark.notes import Terms
from streaming.storage import folder


def settings(folder: str = "/c") -> Settings:
    return load({"bootstrap_servers": "b:1", "checkpoint": folder, "http": "off"})


SETTINGS = settings()


class Query:
    """A running query."""

    isActive = True  # noqa: N815 - Spark's name

    def awaitTermination(self, timeout: float | None = None) -> bool:  # noqa: ARG002, N802 - Spark's name
        """Ends at once."""
        return True


class Idle:
    """Stands for the clock, the watch and the report."""

    has_failed = False

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def write(self) -> None:
        """Nothing."""

    def check(self) -> None:
        """Nothing."""

    def look(self) -> None:
        """Nothing."""


class Fed(Idle):
    """Stands for what feeds the metrics."""

    def follow(self, batch: object) -> None:
        """Nothing."""

    def keep_sizes(self) -> None:
        """Nothing."""


class Well(Idle):
    """Stands for the failures of tasks, of which there are none."""

    def found(self) -> EntriesLethal | None:
        """Nothing."""
        return None


class Held(Idle):
    """Stands for the lease of the checkpoint, which nobody else wants."""

    generation = 1

    def acquire(self, **_: object) -> None:
        """Become the holder."""

    def successor(self) -> None:
        """Nobody."""

    find_successor = successor

    def end_of_former(self) -> str:
        """There was none."""
        return "none"


class Kafka(Idle):
    """Stands for Kafka, which has the topics of the job."""

    def names(self) -> set[str]:
        """Names of all topics."""
        return {*settings().inputs, settings().answers}

    def allowed_on_topics(self, _names: Iterable[str]) -> dict[str, set[str]]:
        """Return nothing: it does not say what it allows."""
        return {}

    def allowed_on_group(self, _group: str) -> None:
        """Return nothing, as above."""

    def open_transactions(self) -> set[str]:
        """None."""
        return set()

    def end_transactions(self, producers: list[str]) -> None:
        """Nothing is open."""


class Spark:
    """A session that can be stopped.

    Attributes:
        proc: process of its JVM.
    """

    def __init__(self) -> None:
        self.conf = self.sparkContext = self._gateway = self._accumulatorServer = self
        self.proc: subprocess.Popen[bytes] | None = None
        self.options: dict[str, object] = {}

    def set(self, name: str, value: object) -> None:
        """Sets an option."""
        self.options[name] = value

    def stop(self) -> None:
        """Ends it."""


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


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a job does from its start to its end; Ctrl-C ends it as soon as its query runs."""
    done: list[str] = []

    def build(*_: object) -> Spark:
        signal.signal(signal.SIGINT, aborted)
        return Spark()

    def start(_: object, settings: Settings, *__: object, silent: bool, answers: bool, **more: object) -> Query:
        assert not silent
        assert answers
        assert more == {"adopted": None, "precautions": NO_PRECAUTIONS}
        done.append(f"start {settings.checkpoint}")
        signal.raise_signal(signal.SIGINT)
        return Query()

    def step(name: str, result: object = None) -> Any:
        def take(*_: object, **__: object) -> object:
            done.append(name)
            return result

        return take

    monkeypatch.setattr(jars, "spark", list)
    monkeypatch.setattr(classes, "sink", Path)
    monkeypatch.setattr(session, "build", build)
    monkeypatch.setattr(folder, "check", lambda *_, **__: None)
    monkeypatch.setattr(notes, "check_usable", step("usable"))
    monkeypatch.setattr(checkpoint, "agree", step("agree", Agreement("id", 3)))
    monkeypatch.setattr(checkpoint, "fix", step("fix"))
    monkeypatch.setattr(checkpoint, "CheckpointFiles", Idle)
    monkeypatch.setattr(checkpoint, "progress", lambda *_: QueryProgress())
    monkeypatch.setattr(Held, "acquire", step("acquire"))
    monkeypatch.setattr(provision, "provide", step("provide", {}))
    monkeypatch.setattr(clock, "prepare", step("prepare"))
    monkeypatch.setattr(provision, "publish_groups", step("publish"))
    monkeypatch.setattr(job, "start", start)
    monkeypatch.setattr(quarantine, "precautions", lambda *_: NO_PRECAUTIONS)
    monkeypatch.setattr(quarantine, "FailureWatch", Well)
    monkeypatch.setattr(notes, "settings_of_plan", lambda _, wanted, *__: Terms(wanted))
    monkeypatch.setattr(sinks, "end_after_batch", step("end"))
    monkeypatch.setattr(service, "Lease", Held)
    monkeypatch.setattr(query, "Clock", Idle)
    monkeypatch.setattr(service, "KafkaAdmin", Kafka)
    monkeypatch.setattr(query, "TopicWatch", Idle)
    monkeypatch.setattr(attend, "Report", Idle)
    monkeypatch.setattr(service, "QueryMonitor", Fed)
    return done


def test_ctrl_c_lets_the_running_micro_batch_finish(steps: list[str]) -> None:
    """Although a new SparkContext handles SIGINT itself."""
    service.run(settings())
    assert steps[-2:] == ["start /c", "end"]


def test_a_job_that_is_to_end_while_it_waits_for_a_broker_ends_at_once(
    steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Away(Kafka):
        """Stands for a Kafka that does not answer."""

        def __init__(self, *_: object, is_over: Callable[[], bool]) -> None:
            assert not is_over()
            signal.raise_signal(signal.SIGTERM)
            assert is_over()

    monkeypatch.setattr(service, "KafkaAdmin", Away)
    service.run(settings())
    assert steps == ["usable", "agree"]


@pytest.mark.usefixtures("steps")
def test_a_jvm_that_is_killed_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """And Spark is not asked to stop."""
    with subprocess.Popen(["sleep", "60"]) as jvm:

        class Killed(Spark):
            """A session whose JVM is killed."""

            def __init__(self) -> None:
                super().__init__()
                self.proc = jvm

            def stop(self) -> NoReturn:
                """Nobody answers."""
                raise ConnectionRefusedError

        def agree(*_: object) -> NoReturn:
            jvm.kill()
            raise ConnectionRefusedError

        monkeypatch.setattr(session, "build", lambda *_: Killed())
        monkeypatch.setattr(checkpoint, "agree", agree)
        with pytest.raises(JobFailed, match=r"JVM has ended \(exit code -9\)"):
            service.run(settings())


def test_a_state_that_spark_cannot_read_is_named_with_the_way_out() -> None:
    """Spark's text has neither."""
    text = "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state."
    said = explained(text, settings())
    assert "/c/query/state" in said
    assert "Restore a copy of the checkpoint, or start anew" in said
    assert said.endswith(text)
    assert explained("something else", settings()) == "something else"


def test_workers_that_are_killed_outside_of_their_work_are_one_sentence() -> None:
    """One that an entry kills is another matter."""
    said = explained(
        "Job aborted: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)", SETTINGS
    )
    assert "Python workers were killed several times" in said
    assert "SparkException" not in said


def test_a_part_that_is_missing_is_one_sentence() -> None:
    """Without the traceback of the worker that has found out."""
    traceback = "[PYTHON_EXCEPTION] Traceback (most recent call last):\n  File\nstreaming.errors."
    text = f"{traceback}StateCorrupted: a part of the state is missing, /c/parts/1; restore\n SQLSTATE: 38000"
    assert explained(text, settings()) == "a part of the state is missing, /c/parts/1; restore"


@pytest.mark.parametrize(
    "said",
    [
        explained("DirectByteBufferOutputStream cannot grow beyond 2GB limit (requested 2147485320)", SETTINGS),
        explained("org.apache.arrow.memory.OutOfMemoryException: Failure allocating buffer.", SETTINGS),
        end_of_java(52, SETTINGS),
    ],
    ids=["buffer", "memory", "java"],
)
def test_a_micro_batch_that_finds_no_room_is_told_with_the_way_out(said: str) -> None:
    """It may fail at each start."""
    assert "no room for the records of this micro-batch" in said
    assert "--from-state --former /c --checkpoint NEW --max-offsets-per-trigger 250." in said


def test_settings_are_fixed_right_before_the_query_begins(steps: list[str]) -> None:
    service.run(settings())
    assert steps[:-1] == [
        "usable", "agree", "acquire", "provide", "prepare", "publish", "fix", "start /c",
    ]  # fmt: skip


@pytest.mark.rule("simultaneous-starts")
def test_of_two_drivers_that_begin_at_once_the_slower_one_stands_by(
    steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it was to; else it is refused."""
    in_use = CheckpointInUse("another driver has just started on the new checkpoint /c.")
    outcomes: list[Exception | None] = [in_use, in_use, None]

    def fix(*_: object) -> None:
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome

    def stand_by(*_: object, **__: object) -> bool:
        steps.append("stand by")
        return True

    monkeypatch.setattr(checkpoint, "fix", fix)
    monkeypatch.setattr(service, "acquire_when_free", stand_by)
    with pytest.raises(CheckpointInUse):
        service.run(settings())
    assert not steps.count("stand by")
    service.run(settings(), stands_by=True)
    assert steps.count("stand by") == 2
    assert steps[-1] == "end"


def polled(answer: Callable[[], bool]) -> Callable[..., bool]:
    """Return a method of an event that answers those who poll, and lets others wait."""
    wait = threading.Event.wait

    def wait_or_answer(event: threading.Event, timeout: float | None = None) -> bool:
        return answer() if timeout == attend._POLL_SECONDS else wait(event, timeout)

    return wait_or_answer


def test_a_query_that_an_entry_has_ended_is_started_again_without_it(
    steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [EntriesLethal([{"offset": 1}])]
    left_out: list[EntriesLethal] = []

    class Ill(Well):
        def found(self) -> EntriesLethal | None:
            return found.pop() if found else None

    monkeypatch.setattr(quarantine, "FailureWatch", Ill)
    monkeypatch.setattr(Query, "stop", lambda _: steps.append("stop"), raising=False)
    monkeypatch.setattr(attend, "_set_level", lambda _, level: steps.append(level))
    monkeypatch.setattr(quarantine, "leave_out", lambda *arguments: left_out.append(arguments[-1]))
    monkeypatch.setattr(signal, "raise_signal", lambda _: None)
    stops = iter([False, True])
    monkeypatch.setattr(threading.Event, "wait", polled(lambda: next(stops)))
    service.run(settings())
    assert [each.entries for each in left_out] == [[{"offset": 1}]]
    assert steps[steps.index("start /c") :] == ["start /c", "OFF", "stop", "ERROR", "start /c", "end"]


def test_settings_of_a_start_apply_when_the_planned_micro_batch_is_committed(
    steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    former = settings("/former")
    terms = iter([Terms(former, 7), Terms(SETTINGS)])
    monkeypatch.setattr(notes, "settings_of_plan", lambda *_: next(terms))
    monkeypatch.setattr(query, "until", lambda _, stop, through: stop if through is None else lambda _: True)
    monkeypatch.setattr(signal, "raise_signal", lambda _: None)
    monkeypatch.setattr(threading.Event, "wait", polled(lambda: True))
    service.run(settings())
    assert steps[-4:] == ["start /former", "end", "start /c", "end"]


def test_a_driver_that_was_replaced_leaves_out_nothing(steps: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Ill(Well):
        def found(self) -> EntriesLethal:
            return EntriesLethal([{"offset": 1}])

    monkeypatch.setattr(quarantine, "FailureWatch", Ill)
    monkeypatch.setattr(Query, "stop", lambda _: None, raising=False)
    monkeypatch.setattr(attend, "_set_level", lambda *_: None)
    monkeypatch.setattr(Held, "find_successor", lambda _: "another driver")
    monkeypatch.setattr(Held, "taken_over", lambda _: TakenOver("another driver has taken over"), raising=False)
    monkeypatch.setattr(signal, "raise_signal", lambda _: None)
    with pytest.raises(TakenOver):
        service.run(settings())
    assert steps[-1] == "start /c"


def test_a_new_checkpoint_that_another_driver_has_begun_during_the_wait_is_in_use(
    steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = Agreement("other", 3, {"clock": NotedTopic(SETTINGS.clock, "x")})
    looks = [Agreement("id", 3), begun, begun, begun]
    monkeypatch.setattr(checkpoint, "agree", lambda *_: looks.pop(0))
    monkeypatch.setattr(service, "acquire_when_free", lambda *_, **__: True)
    service.run(settings(), stands_by=True)
    assert not looks
    assert steps[-1] == "end"


def test_a_job_whose_clock_has_failed_ends(steps: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """After the running micro-batch, and it says why."""

    class Broken(Idle):
        has_failed = True

        def check(self) -> None:
            raise JobFailed("the clock of the job has stopped")

    monkeypatch.setattr(query, "Clock", Broken)
    with pytest.raises(JobFailed, match="the clock of the job has stopped"):
        service.run(settings())
    assert steps[-1] == "end"


def test_a_start_without_kafka_fixes_no_settings(steps: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> NoReturn:
        raise KafkaUnavailable("no broker")

    monkeypatch.setattr(provision, "provide", fail)
    with pytest.raises(KafkaUnavailable):
        service.run(settings())
    assert steps == ["usable", "agree", "acquire"]


def test_executors_get_the_path_of_a_relative_checkpoint(
    steps: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    service.run(settings("here"))
    assert f"start {tmp_path}/here" in steps


def test_a_missing_file_of_spark_is_named() -> None:
    said = explained("[STREAMING_CHECKPOINT_MISSING_METADATA_FILE] Checkpoint location ...", settings())
    assert said.startswith("/c/query/metadata is missing")
    assert "Restore a copy" in said


def test_an_error_of_spark_is_one_line_without_the_stacks_of_java() -> None:
    said = "Job aborted: java.io.IOException: No space left on device"
    assert one_line(f"{said}\n\tat java.base/a.B\n\t... 2 more\nDriver stacktrace:") == said
    traceback = "Traceback (most recent call last):\n  File x\nValueError: y"
    assert one_line(traceback) == traceback


@pytest.mark.parametrize("is_its_own", [True, False], ids=["lease held", "lease elsewhere"])
@pytest.mark.parametrize("refusal", [TopicReplaced, RecordsLost, UpdatesUnknown])
@pytest.mark.usefixtures("steps")
def test_a_checkpoint_that_fits_its_topics_no_more_leaves_no_transaction_open(
    refusal: type[JobError],
    is_its_own: bool,  # noqa: FBT001 - a parameter
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Under another clock topic nothing is known of a driver that lives."""
    ended: list[str] = []

    def refuse(*_: object, **__: object) -> NoReturn:
        raise refusal("the topic updates does not fit")

    clock = NotedTopic(SETTINGS.clock if is_its_own else "other-clock", "x")
    monkeypatch.setattr(checkpoint, "agree", lambda *_: Agreement("id", 3, {"clock": clock}))
    monkeypatch.setattr(provision, "provide", refuse)
    monkeypatch.setattr(Kafka, "end_transactions", lambda _, producers: ended.extend(producers))
    with pytest.raises(refusal):
        service.run(settings())
    assert ended == (["reexpand-id-0", "reexpand-id-1", "reexpand-id-2"] if is_its_own else [])
