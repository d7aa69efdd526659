"""Run of the demo: start broker and job, send the scenes, read the output, compare it, and stop everything."""

from __future__ import annotations

import fcntl
import shutil
import signal
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from streaming.errors import ReexpandError
from streaming.examples.job import Job, prepared
from streaming.examples.scenario import SCENES, relation
from streaming.examples.verdict import Coordinates, Follower, ReceivedUpdate, Transcript, judge, read_relation
from streaming.kafka.writer import Writer
from streaming.local import jars
from streaming.local.broker import Broker
from streaming.local.cluster import SparkCluster
from streaming.records.model import Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streaming.config import Settings
    from streaming.examples.scenario import Step
    from streaming.examples.screen import Screen
    from streaming.examples.verdict import Verdict

PACE_SECONDS = 0.6
"""Minimum interval between two events in seconds, for readability. Each event also waits for the expected updates."""

_OVERTURE_PACE_SECONDS = 0.25
_READY_SECONDS = 300.0
_FIRST_BATCH_SECONDS = 300.0
_SETTLE_SECONDS = 300.0
_SEND_SECONDS = 60.0
_POLL_SECONDS = 0.1
_INTERRUPTED = 130
_TERMINATED = 143


def run(home: Path, screen: Screen, *, keep: bool, on_cluster: bool = False) -> int:
    """Run the demo in `home`, and return its exit code: 0 if the result equals the oracle's.

    Its folder `demo` is cleared at the start, and only logs stay in it. With `keep`, broker and job run after the
    summary until Ctrl-C. With `on_cluster`, one of two Spark workers is killed in the middle.

    Raises:
        ReexpandError: the broker, the cluster or the job does not start, or ends unexpectedly.
    """
    return play_in(home, lambda folder: _run(folder, screen, keep=keep, on_cluster=on_cluster))


def play_in(home: Path, play: Callable[[Path], int]) -> int:
    """Call `play` with the demo's folder, and return its exit code. SIGTERM and Ctrl-C end it."""
    former = signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
    try:
        with demo_folder(home) as folder:
            return play(folder)
    except KeyboardInterrupt:
        return _INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, former)


def _run(folder: Path, screen: Screen, *, keep: bool, on_cluster: bool) -> int:
    with screen, ExitStack() as stack:
        jars.fetch(progress=screen.downloading)
        screen.phase("starting Kafka")
        broker = stack.enter_context(Broker(folder / "kafka"))
        cluster = None
        if on_cluster:
            screen.phase(f"Kafka listens on {broker.bootstrap_servers}; starting a Spark cluster of two workers")
            cluster = stack.enter_context(SparkCluster(folder / "cluster"))
        settings = prepared(broker, folder, None if cluster is None else cluster.url)
        screen.phase(f"Kafka listens on {broker.bootstrap_servers}; starting Spark")
        job = stack.enter_context(Job(settings, folder / "job.log", folder / "spark"))
        follower = stack.enter_context(Follower(settings))

        def check() -> None:
            job.check()
            if not broker.running:
                raise ReexpandError(f"The broker ended unexpectedly. Its log is {broker.log_file}.")

        play = Play(settings, screen, follower, check, cluster)
        try:
            return _play(play, job, screen, settings, keep=keep)
        except KeyboardInterrupt:
            screen.phase("interrupted; stopping the job and Kafka")
            raise


def _play(play: Play, job: Job, screen: Screen, settings: Settings, *, keep: bool) -> int:
    play.all(job)
    if not keep:
        screen.phase("stopping the job to read all its output")
        code = job.stop()
        if code != 0:
            raise job.failure(f"did not stop cleanly (exit code {code})")
    verdict = play.verdict()
    screen.verdict(verdict)
    if keep:
        screen.kept(settings, str(job.log_file))
        play.follow_until_interrupted()
        screen.phase("stopping the job and Kafka")
    return 0 if verdict.ok else 1


class Play:
    """Run of the scenes on a running job.

    Args:
        check: raises if the broker or the job has ended.
        cluster: cluster of the job. One of its workers is killed in the middle, while an event is processed.
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
        self._writer = Writer(settings.bootstrap_servers, {}, self._not_taken)
        self._topics = dict(zip(Stream, settings.inputs, strict=True))

    def all(self, job: Job) -> None:
        """Run all scenes, the first while the job starts. Return early if the expected output does not arrive."""
        overture, *rest = SCENES
        self._screen.scene(overture)
        for step in overture.steps:
            self._send(step)
            self._watch(_OVERTURE_PACE_SECONDS)
        if not self._watch(_READY_SECONDS, lambda: job.is_ready):
            raise job.failure(f"is not ready after {_READY_SECONDS:.0f} s")
        self._screen.phase("the job is ready; the first micro-batch warms up Spark and Python")
        if not self._watch(_FIRST_BATCH_SECONDS, self._settled):
            return
        total = sum(len(scene.steps) for scene in rest)
        self._screen.phase("the job has written its first updates", total)
        done = 0
        for scene in rest:
            self._screen.scene(scene)
            for step in scene.steps:
                self._send(step)
                done += 1
                if self._cluster is not None and done == total // 2:
                    self._cluster.kill_worker(1)
                    self._screen.phase("worker 1 is killed with its executors; worker 2 takes over", total, done)
                self._watch(PACE_SECONDS)
                if not self._watch(_SETTLE_SECONDS, self._settled):
                    return

    def verdict(self) -> Verdict:
        """Compare the result, which is read again from the beginning of the topic."""
        return judge(self._transcript, read_relation(self._settings), relation(self._transcript.steps))

    def follow_until_interrupted(self) -> None:
        """Show the job's output until Ctrl-C."""
        with suppress(KeyboardInterrupt):
            self._watch(float("inf"))

    def _settled(self) -> bool:
        """Return True if the job has written all expected output so far."""
        transcript = self._transcript
        return (
            self._follower.relation == relation(transcript.steps)
            and transcript.expected_dead_letters <= transcript.found_dead_letters
        )

    def _watch(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Show the output until a condition holds or a timeout; return True if it holds."""
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
        """Write an event to Kafka, and record its position."""
        self._writer.send(self._topics[step.stream], step.value, step.key.encode())
        [(partition, offset)] = self._writer.flush(_SEND_SECONDS)
        self._transcript.sent.append((step, Coordinates(*partition, offset)))
        self._screen.sent(step)

    def _not_taken(self, why: str) -> ReexpandError:
        self._check()
        return ReexpandError(f"{why}.")


@contextmanager
def demo_folder(home: Path) -> Iterator[Path]:
    """Create an empty folder and lock it. Only logs stay in it afterwards."""
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
            raise ReexpandError(f"Another demo is running in {home}. Stop it, or choose another --home.") from None
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
