"""Recovery: from a start after SIGKILL until the first update of a topic that was created meanwhile.

Each command is a `reexpand` of some release; they take turns on jobs of their own. With `--standby` a further job takes
part: a second driver stands by beside the one that is killed.

make bench SUITE=starts BENCH="--kills 20 [--standby] [--command DIR/.venv/bin/reexpand DIR/.venv/bin/reexpand]"
"""

import json
import time
from contextlib import chdir
from uuid import uuid4

from confluent_kafka import Consumer

from streaming.records.model import Stream
from tests.bench.command import broker_and_folder, parsed, show
from tests.support import events
from tests.support.processes import eventually
from tests.support.running_job import POLL_SECONDS, REEXPAND, SETTLE_SECONDS, START_SECONDS, Job, Streams


def main() -> None:
    options = parsed(
        __doc__,
        kills=(20, "for each command"),
        topics=(1_000, "topics that exist before"),
        command=([REEXPAND], "`reexpand` of each release to start"),
        standby=(False, "also with a standby driver"),
    )
    # Elsewhere than in the checkout: Python's workers would import its code, whatever the command.
    with broker_and_folder() as (broker, folder), chdir(folder):
        jobs = [
            KilledJob(Streams(broker.bootstrap_servers, folder / f"checkpoint-{number}"), command, options.topics)
            for number, command in enumerate(options.command)
        ]
        if options.standby:
            jobs.append(RelievedJob(Streams(broker.bootstrap_servers, folder / "relieved"), REEXPAND, options.topics))
        for turn in range(options.kills):
            for job in jobs if turn % 2 == 0 else reversed(jobs):
                job.recover()
        for job in jobs:
            job.close()
    figures = {job.name: {"until ready": job.until_ready, "until the update": job.until_update} for job in jobs}
    show(figures, f"seconds of {options.kills} starts after SIGKILL", as_json=options.json)


class KilledJob:
    """Job that is killed and started again, with the seconds of each start."""

    def __init__(self, streams: Streams, command: str, topics: int) -> None:
        self.name = self.command = command
        self.until_ready: list[float] = []
        self.until_update: list[float] = []
        self._streams = streams.create()
        self._feed = streams.producer()
        options = {"bootstrap.servers": streams.bootstrap_servers, "auto.offset.reset": "earliest", "log_level": 0}
        self._updates = Consumer({**options, "group.id": uuid4().hex})
        self._updates.subscribe([streams.settings.updates])
        self._created = self._drivers_started = 0
        self._feed.send(Stream.GROUPS, events.quota(-1), "g")  # by default, a client may have 2,000 topics
        self._feed.send(Stream.SUBSCRIPTIONS, events.replace("**"), "g")
        self._start(topics)

    def recover(self) -> None:
        """Create a topic, and start the job until it has told of the topic; then kill it."""
        until_ready, until_update = self._start(1)
        self.until_ready.append(until_ready)
        self.until_update.append(until_update)

    def close(self) -> None:
        """Leave nothing behind."""

    def _create(self, topics: int) -> str:
        for _ in range(topics):
            self._created += 1
            name = f"eu__{self._created}__created"
            self._feed.send(Stream.TOPICS, events.created(name), "p")
        self._feed.flush()
        return name

    def _driver(self, *options: str) -> Job:
        self._drivers_started += 1  # drivers that run at the same time need logs of their own
        log = self._streams.checkpoint.with_suffix(f".{self._drivers_started}.log")
        return Job(self._streams, log, *options, command=self.command)

    def _start(self, topics: int) -> tuple[float, float]:
        name = self._create(topics)
        start = time.monotonic()
        with self._driver() as job:
            job.wait_ready()
            until_ready = time.monotonic() - start
            self._wait_for(name)
            return until_ready, time.monotonic() - start

    def _wait_for(self, topic: str) -> None:
        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline:
            message = self._updates.poll(1)
            value = None if message is None or message.error() else message.value()
            if value is not None and json.loads(value)["liteTopic"] == topic:
                return
        raise TimeoutError(f"no update of {topic} after {SETTLE_SECONDS} s")


class RelievedJob(KilledJob):
    """A job with two drivers: the one that works is killed, and the other one goes on."""

    def __init__(self, streams: Streams, command: str, topics: int) -> None:
        self._drivers: list[Job] = []
        super().__init__(streams, command, topics)
        self.name = f"{command} --standby"

    def recover(self) -> None:
        """Create a topic, and kill the driver that works; the other one tells of the topic."""
        driver, relief = self._drivers
        name = self._create(1)
        start = time.monotonic()
        driver.kill()
        relief.wait_ready()
        self.until_ready.append(time.monotonic() - start)
        self._wait_for(name)
        self.until_update.append(time.monotonic() - start)
        driver.close()
        self._drivers = [relief, self._stand_by()]

    def close(self) -> None:
        for driver in self._drivers:
            driver.close()

    def _start(self, topics: int) -> tuple[float, float]:
        driver = self._driver("--standby").wait_ready()
        self._drivers.append(driver)
        self._wait_for(self._create(topics))
        self._drivers.append(self._stand_by())
        return 0, 0

    def _stand_by(self) -> Job:
        job = self._driver("--standby")
        assert eventually(lambda: "standing by" in job.said(), START_SECONDS, POLL_SECONDS), job.said()
        return job
