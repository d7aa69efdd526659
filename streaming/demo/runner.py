"""Run of the demo: start broker and job, send the scenes, follow the output, judge it, and stop everything."""

from __future__ import annotations

import fcntl
import shutil
import signal
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, Producer

from streaming.config import Settings
from streaming.demo.follower import Coordinates, Follower, ReceivedUpdate
from streaming.demo.process import Job
from streaming.demo.scenario import SCENES, relation
from streaming.demo.verdict import Transcript, judge
from streaming.errors import ReexpandError
from streaming.events.model import Stream
from streaming.kafka import specs as topics
from streaming.kafka.topics import create_topics
from streaming.local import jars
from streaming.local.broker import Broker
from streaming.local.cluster import SparkCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from confluent_kafka import Message

    from streaming.demo.scenario import Step
    from streaming.demo.screen import Screen
    from streaming.demo.verdict import Verdict

PACE_SECONDS = 0.6
"""Least time between two events in seconds, for the reader's sake; each event also waits for the last one's answer."""

_OVERTURE_PACE_SECONDS = 0.25
_READY_SECONDS = 90.0
_FIRST_BATCH_SECONDS = 60.0
_SETTLE_SECONDS = 60.0
_SEND_SECONDS = 10.0
_POLL_SECONDS = 0.1
_INTERRUPTED = 130
_TERMINATED = 143


def run(home: Path, screen: Screen, *, keep: bool, on_cluster: bool = False) -> int:
    """Play the demo in `home` and return its exit code.

    Raises:
        ReexpandError: the broker, the cluster or the job does not start, or ended by itself.
    """
    former = signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
    try:
        with demo_folder(home) as folder, screen:
            return _run(folder, screen, keep=keep, on_cluster=on_cluster)
    except KeyboardInterrupt:
        return _INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, former)


def _run(folder: Path, screen: Screen, *, keep: bool, on_cluster: bool) -> int:
    jars.fetch(progress=screen.downloading)
    screen.phase("starting Kafka")
    with ExitStack() as stack:
        broker = stack.enter_context(Broker(folder / "kafka"))
        cluster = None
        if on_cluster:
            screen.phase(f"Kafka listens on {broker.bootstrap_servers}; starting a Spark cluster of two workers")
            cluster = stack.enter_context(SparkCluster(folder / "cluster"))
        # The defaults of `reexpand run`; settings in the environment are for the user's own jobs.
        settings = Settings.model_construct(
            bootstrap_servers=broker.bootstrap_servers,
            checkpoint=str(folder / "checkpoint"),
            master=cluster and cluster.url,
        )
        create_topics(broker.bootstrap_servers, topics.specs(settings))
        screen.phase(f"Kafka listens on {broker.bootstrap_servers}; starting Spark")
        job = stack.enter_context(Job(settings, folder / "job.log", folder / "spark"))
        follower = stack.enter_context(Follower(settings))

        def check() -> None:
            job.check()
            if not broker.running:
                raise ReexpandError(f"The broker ended by itself; its log is {broker.log_file}.")

        play = Play(settings, screen, follower, check, cluster)
        try:
            return _play(play, job, screen, settings, keep=keep)
        except KeyboardInterrupt:
            screen.phase("interrupted; stopping the job and Kafka")
            raise


def _play(play: Play, job: Job, screen: Screen, settings: Settings, *, keep: bool) -> int:
    play.all(job)
    if not keep:
        screen.phase("stopping the job, to read all its output back")
        code = job.stop()
        if code != 0:
            raise job.failure(f"did not end in order (exit code {code})")
    verdict = play.verdict()
    screen.verdict(verdict)
    if keep:
        screen.kept(settings, str(job.log_file))
        play.follow_until_interrupted()
        screen.phase("stopping the job and Kafka")
    return 0 if verdict.ok else 1


class Play:
    """Performance of the scenes on a running job.

    Args:
        settings: address of Kafka, and the names of the topics.
        screen: destination of the report.
        follower: reader of the output topics.
        check: raises if the broker or the job has ended.
        cluster: cluster of the job; one of its workers is killed half way, with an event in flight.
    """

    def __init__(
        self,
        settings: Settings,
        screen: Screen,
        follower: Follower,
        check: Callable[[], None],
        cluster: SparkCluster | None = None,
    ) -> None:
        self._settings = settings
        self._screen = screen
        self._follower = follower
        self._check = check
        self._cluster = cluster
        self._transcript = Transcript()
        self._producer = Producer({"bootstrap.servers": settings.bootstrap_servers, "log_level": 0})
        self._topics = dict(zip(Stream, settings.inputs, strict=True))

    def all(self, job: Job) -> None:
        """Play all scenes, the first one while the job starts; return early if the right answer does not come."""
        overture, *rest = SCENES
        self._screen.scene(overture)
        for step in overture.steps:
            self._send(step)
            self._watch(_OVERTURE_PACE_SECONDS)
        if not self._watch(_READY_SECONDS, lambda: job.is_ready):
            raise job.failure(f"is not ready after {_READY_SECONDS:.0f} s")
        self._screen.phase("the job is ready; its first micro-batch warms Spark and Python up")
        if not self._watch(_FIRST_BATCH_SECONDS, self._settled):
            return
        total = sum(len(scene.steps) for scene in rest)
        self._screen.phase("the job answers", total)
        done = 0
        for scene in rest:
            self._screen.scene(scene)
            for step in scene.steps:
                self._send(step)
                done += 1
                if self._cluster is not None and done == total // 2:
                    self._cluster.kill_worker(1)
                    self._screen.phase("worker 1 is killed with all that it runs; worker 2 takes over", total, done)
                self._watch(PACE_SECONDS)
                if not self._watch(_SETTLE_SECONDS, self._settled):
                    return

    def verdict(self) -> Verdict:
        """Judge the result, read back from the beginning of the topics."""
        with Follower(self._settings) as reader:
            reader.read_to_end()
            return judge(self._transcript, reader.relation, relation(self._transcript.steps))

    def follow_until_interrupted(self) -> None:
        """Show the job's output until Ctrl-C."""
        try:
            self._watch(float("inf"), lambda: False)
        except KeyboardInterrupt:
            return

    def _settled(self) -> bool:
        """Tell whether the job has given every expected answer so far."""
        transcript = self._transcript
        return (
            self._follower.relation == relation(transcript.steps)
            and transcript.expected_dead_letters <= transcript.found_dead_letters
        )

    def _watch(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Show the output until a condition holds, for at most `seconds`; return True if it holds."""
        deadline = time.monotonic() + seconds
        while not (done := until()) and (left := deadline - time.monotonic()) > 0:
            self._check()
            for item in self._follower.poll(min(left, _POLL_SECONDS)):
                if isinstance(item, ReceivedUpdate):
                    self._transcript.updates.append(item)
                    self._screen.update(item, cold=self._transcript.is_cold(item))
                else:
                    self._transcript.dead_letters.append(item)
                    self._screen.dead_letter(item)
        return done

    def _send(self, step: Step) -> None:
        """Write an event to Kafka, and note its place."""
        delivered: list[Coordinates] = []

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                raise KafkaException(error)
            delivered.append(Coordinates(str(message.topic()), message.partition() or 0, message.offset() or 0))

        self._producer.produce(self._topics[step.stream], step.value, step.key, on_delivery=on_delivery)
        try:
            self._producer.flush(_SEND_SECONDS)
        except KafkaException as error:
            raise ReexpandError(f"The broker refuses an event: {error}.") from error
        if not delivered:
            self._check()
            raise ReexpandError(f"The broker does not take an event within {_SEND_SECONDS:.0f} s.")
        self._transcript.sent.append((step, delivered[0]))
        self._screen.sent(step)


@contextmanager
def demo_folder(home: Path) -> Iterator[Path]:
    """Provide an empty folder for this demo alone; only logs stay in it afterwards."""
    folder = home / "demo"
    with ExitStack() as stack:
        try:
            home.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context((home / "demo.lock").open("a"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if folder.exists():
                shutil.rmtree(folder)
            folder.mkdir()
        except BlockingIOError:
            raise ReexpandError(f"Another demo runs in {home}. End it, or give this one another --home.") from None
        except OSError as error:
            raise ReexpandError(f"The demo cannot work in {home}: {error}.") from error
        try:
            yield folder
        finally:
            for log in ("kafka/broker.log", "rocketmq/rocketmq.log"):
                with suppress(FileNotFoundError):
                    (folder / log).replace(folder / Path(log).name)
            for part in ("kafka", "rocketmq", "cluster", "checkpoint", "spark"):
                shutil.rmtree(folder / part, ignore_errors=True)
