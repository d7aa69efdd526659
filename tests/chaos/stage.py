"""A broker, a job and its load, to which faults happen."""

import json
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import Producer

from streaming.local.broker import Broker
from streaming.oracle import Effective
from tests.chaos.judge import Judge, Verdict
from tests.chaos.load import CANARIES, HOT, OPTIONS, Load, beginning, topic
from tests.chaos.model import Proof, Struck, StruckIdleError
from tests.support.processes import eventually
from tests.support.running_job import POLL_SECONDS, Job, OpenTransactions, Streams
from tests.support.tail import Tail
from tests.support.topics import delete, topics
from tests.support.verbs import reexpand

SETTLE_SECONDS = 180
REFUSE_SECONDS = 240
"""Longest time in seconds until a job that cannot go on has ended, on a busy machine."""

WORK_SECONDS = 20
ATTEMPTS = 6
LATE_SECONDS = 0.5
LOOK_SECONDS = 0.005
"""Between two looks at a micro-batch, which lasts less than a second."""


class Stage:
    """Topics on a broker, a job under load, and the judge of its relation."""

    def __init__(self, broker: Broker, folder: Path, seed: int, options: Sequence[str] = ()) -> None:
        self.broker = broker
        self.folder = folder
        self.random = Random(seed)
        self.options = (*OPTIONS, *options)
        folder.mkdir(parents=True, exist_ok=True)
        self.streams = Streams(broker.bootstrap_servers, folder / "checkpoint").create()
        self.job: Job | None = None
        self._numbers = count()
        self.load = Load(self.streams, self.random)
        self.load.send(list(beginning()))
        self.judge = Judge(self.streams)

    def close(self) -> None:
        self.load.close()
        self.judge.close()
        if self.job is not None:
            self.job.close()

    # The job.

    @property
    def running(self) -> Job:
        assert self.job is not None
        return self.job

    @property
    def is_up(self) -> bool:
        return self.job is not None and self.job.process.poll() is None

    def launch(self, *options: str) -> Job:
        """Start a further driver on the checkpoint, beside the job if that lives."""
        return Job(self.streams, self.folder / f"job-{next(self._numbers)}.log", *self.options, *options)

    @contextmanager
    def successor(self, *options: str) -> Iterator[Job]:
        """Launch another driver on the checkpoint; it is the job afterwards."""
        job = self.launch(*options)
        try:
            yield job
        except BaseException:
            job.close()
            raise
        self.replace_job(job)

    def replace_job(self, job: Job) -> None:
        """Take another driver for the job from now on."""
        if self.job is not None:
            self.job.close()
        self.job = job

    def start(self, *options: str) -> None:
        job = self.launch(*options)
        self.replace_job(job)
        job.wait_ready()

    def stop(self) -> None:
        assert self.running.stop() == 0, self.running.said()

    def quiet(self) -> None:
        """Hold the load, and wait until the job has read all of it and commits no more."""
        self.load.hold()

        def rests() -> bool:
            return self.streams.are_read() and not self.running.is_within_a_batch()

        assert eventually(lambda: rests() or not self.is_up, SETTLE_SECONDS, POLL_SECONDS), "the job does not settle"
        assert self.is_up, self.running.said()

    def ends_with(
        self, job: Job, code: int, *texts: str, seconds: float = REFUSE_SECONDS, in_a_task: bool = False
    ) -> str:
        """Check how a driver ends: with an exit code, and one sentence that has some texts; return the sentence.

        Where a task fails, Spark logs the errors of its attempts before.
        """
        try:
            assert job.process.wait(seconds) == code, f"exit code {job.process.returncode}: {job.said()[-2000:]}"
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the job does not end: {job.said()[-2000:]}") from None
        said = job.said()
        assert in_a_task or "Traceback" not in said, said[-4000:]
        assert in_a_task or "\tat " not in said, said[-4000:]
        sentence = said.rpartition("Error: ")[2].strip()
        assert "\n" not in sentence, f"more than one line: {sentence}"
        for text in texts:
            assert text in sentence, f"{text!r} is not said: {sentence}"
        return self._without_names(sentence)

    def ending(self, seconds: float) -> str:
        """Return the exit code and error of a job that a failed task ends in time, or nothing."""
        try:
            self.running.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return ""
        return f"exit 1: {shortened(self.ends_with(self.running, 1, in_a_task=True))}"

    def survives(self, proof: Proof, outcome: str = "goes on", seconds: float = 5) -> Struck:
        """Return the outcome of a fault that the job may survive. Start a job that has ended."""
        said = self.ending(seconds)
        if said:
            self.start()
        return Struck(proof, f"{said}; next start goes on" if said else outcome)

    def is_refused(self, code: int, *texts: str, options: tuple[str, ...] = ()) -> str:
        """Check that a start is refused and writes nothing; return what it says."""
        before = self.written()
        with self.launch(*options) as job:
            sentence = self.ends_with(job, code, *texts)
        assert self.written() == before, "a job that was refused has written"
        return sentence

    def fails_to_start(self, *texts: str) -> tuple[int, str]:
        """Check that a start ends with a sentence, and writes nothing if refused; return exit code and sentence."""
        before = self.written()
        with self.launch() as job:
            assert eventually(lambda: job.process.poll() is not None, REFUSE_SECONDS, POLL_SECONDS), "the job goes on"
            code = int(job.process.returncode)
            assert code in (1, 2), f"exit code {code}"
            sentence = self.ends_with(job, code, *texts, in_a_task=True)
        # Where one task fails, the records of another one may be written: they are right, and not repeated.
        assert code == 1 or self.written() == before, "a job that was refused has written"
        return code, sentence

    def command(self, verb: str, *options: str) -> tuple[int, str]:
        """Run another verb on the checkpoint and its topics; return exit code and output."""
        names = self.streams.options("bootstrap_servers", "checkpoint", "updates", "dead_letters")
        done = reexpand(verb, *names, *options, codes=range(256))
        return done.returncode, done.stdout + done.stderr

    def reads_updates_anew(self) -> None:
        """Forget what the updates topic said before it was replaced."""
        self.judge.close()
        self.judge = Judge(self.streams)

    def starts_anew(self, *options: str) -> None:
        """Give the job a new checkpoint and an empty updates topic of the same name, as the pages say."""
        if self.is_up:
            self.running.kill()
        if self.streams.settings.updates in topics(self.streams):
            delete(self.streams, self.streams.settings.updates)
        shutil.rmtree(self.streams.checkpoint, ignore_errors=True)
        self.streams.create()
        self.reads_updates_anew()
        self.load.hold()
        self.load.feed = self.streams.producer()  # one that knows nothing of former topics
        self.load.go()
        self.start(*options)

    # Faults.

    def written(self) -> int:
        """Return the number of updates, with those that are not committed.

        The ends of transactions do not count: a start that is refused may end those of a killed job. What that job has
        sent may arrive after its death.
        """
        with Tail(self.streams.bootstrap_servers, [self.streams.settings.updates], committed=False) as tail:
            found = more = len(tail.read())
            while more:
                time.sleep(LATE_SECONDS)
                more = len(tail.read())
                found += more
        return found

    def letters(self) -> Counter[str]:
        return Counter(letter["reason"] for letter in self.streams.dead_letters())

    def producer(self, **options: str | int) -> Producer:
        """Return a producer with further options, named with underscores instead of dots."""
        given = {name.replace("_", "."): value for name, value in options.items()}
        return Producer({"bootstrap.servers": self.streams.bootstrap_servers, "log_level": 0, **given})

    def planned(self, number: int) -> dict[str, Any]:
        """Return the offsets up to which a micro-batch reads, by topic and partition."""
        lines = (self.streams.checkpoint / "query" / "offsets" / str(number)).read_text(encoding="utf-8").splitlines()
        offsets: dict[str, Any] = json.loads(lines[-1])
        return offsets

    def proof(self) -> Proof:
        planned, unread = self.running.is_within_a_batch(), self.streams.unread()
        with OpenTransactions(self.streams) as transactions:
            return Proof(planned, unread, transactions.exist())

    def burst(self, number: int) -> None:
        """Create many topics beside the load, so that there is much to write."""
        self.load.send([topic(HOT, f"burst__{next(self._numbers)}") for _ in range(number)])

    def strikes(
        self,
        blow: Callable[[], object],
        undo: Callable[[], object] | None = None,
        *,
        kafka: bool = True,
        in_transaction: bool = False,
    ) -> Proof:
        """Let a blow fall within a micro-batch, and return the proof that it struck there.

        Args:
            blow: the fault; nothing may be committed after it.
            undo: takes the fault back where it struck too late, for another attempt.
            kafka: Kafka answers afterwards.
            in_transaction: it struck too late also where no transaction is open.
        """
        for _ in range(ATTEMPTS):
            assert eventually(self.running.is_within_a_batch, WORK_SECONDS, LOOK_SECONDS), "the job does not work"
            blow()
            proof = self.proof() if kafka else Proof(planned=self.running.is_within_a_batch())
            if (proof.planned or (undo is None and proof.holds)) and (proof.transaction or not in_transaction):
                return proof
            if undo is None:
                break
            undo()
        raise StruckIdleError

    def _without_names(self, text: str) -> str:
        """Replace what differs from run to run: folder, topics, processes."""
        text = text.replace(f"{self.folder}/", "").replace(f"{self.streams.prefix}-", "lite-")
        return re.sub(r"process \d+ on \S+, since [-\d]+ [:\d]+\+00:00", "process N on HOST, since TIME", text)

    # Verdicts.

    def answers(self, seconds: float = SETTLE_SECONDS) -> float:
        """Create a topic, and return the seconds until the updates have it."""
        name = f"after__{next(self._numbers)}"
        row = Effective(CANARIES, "watch", "w", name)
        begun = time.monotonic()
        self.load.send([topic(CANARIES, name)])

        def is_there() -> bool:
            self.judge.committed.catch_up()
            return self.judge.committed.has(row) or not self.is_up

        assert eventually(is_there, seconds, POLL_SECONDS), f"no update within {seconds:.0f} s"
        assert self.is_up, f"the job has ended: {self.running.said()[-2000:]}"
        return time.monotonic() - begun

    def is_right(self, seconds: float = SETTLE_SECONDS) -> Verdict:
        self.quiet()
        return self.judge.compare(seconds)


def shortened(sentence: str, limit: int = 160) -> str:
    text = re.sub(r"\s+", " ", sentence)
    return text if len(text) <= limit else f"{text[:limit].rpartition(' ')[0]} ..."
