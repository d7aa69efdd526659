"""One checkpoint, one driver: who was replaced writes nothing any more, and nothing is written twice.

`make test-fence` repeats the pauses, longer, and also pauses a worker of a cluster.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from streaming.kafka.permissions import LEASE_SECONDS
from streaming.oracle import Effective
from streaming.records.model import Stream
from tests.support.events import created, deleted, quota, replace
from tests.support.faulty_cluster import FaultyCluster
from tests.support.processes import eventually
from tests.support.running_job import (
    POLL_SECONDS,
    SETTLE_SECONDS,
    START_SECONDS,
    Feed,
    Job,
    OpenTransactions,
    Streams,
    assert_equal_relations,
    first_ready,
    refused,
    running,
)

PARENTS = 4
BURST = 6_000
ATTEMPTS = 20
ROUNDS = int(os.environ.get("REEXPAND_FENCE_ROUNDS", "0"))
"""Repetitions of the long tests; 0 leaves them out."""
PAUSE_SECONDS = 70
AWAKE_SECONDS = 10
"""Time in which the tasks of a JVM that wakes up go on writing; its driver cannot end them."""
LOOK_SECONDS = 0.005
"""Between two looks at transactions, which last less than a second."""
LAST_REQUEST_SECONDS = 1
"""Time for the broker to end a transaction whose end was asked for before the pause."""
MANY_PARTITIONS = ("--shuffle-partitions", "4")


def subscribe(feed: Feed) -> None:
    for number in range(PARENTS):
        names = {"parent": f"p{number}", "group": f"g{number}"}
        feed.send(Stream.GROUPS, quota(100_000, **names), f"g{number}")
        feed.send(Stream.SUBSCRIPTIONS, replace("**", **names), f"g{number}")
    feed.flush()


def create(feed: Feed, names: range) -> set[Effective]:
    """New topics of all parents; returns the rows that they are to become."""
    for number in names:
        parent = f"p{number % PARENTS}"
        feed.send(Stream.TOPICS, created(f"t{number}", parent), parent)
    feed.flush()
    return {Effective(f"p{number % PARENTS}", f"g{number % PARENTS}", "c", f"t{number}") for number in names}


def delete(feed: Feed, names: range) -> None:
    for number in names:
        parent = f"p{number % PARENTS}"
        feed.send(Stream.TOPICS, deleted(f"t{number}", parent), parent)
    feed.flush()


def process(job: Job) -> str:
    return f"process {job.process.pid} on {os.uname().nodename}"


@contextmanager
def standing_by(streams: Streams, log: Path, holder: Job) -> Iterator[Job]:
    """A driver that is warm, and waits for the end of another one."""
    with Job(streams, log, "--standby") as job:
        waiting = f"standing by: the checkpoint {streams.checkpoint} is in use by {process(holder)}"
        assert eventually(lambda: waiting in job.said(), START_SECONDS, POLL_SECONDS)
        yield job


def pause_while_it_writes(
    streams: Streams, feed: Feed, job: Job, pause: Callable[[], None], go_on: Callable[[], None]
) -> range:
    """Stop what writes within a transaction of a job, and return the topics that were created for it.

    A transaction may end between the look at it and the pause. Then the job goes on, and gets further topics.
    """
    numbers = range(BURST, BURST)
    with OpenTransactions(streams) as transactions:
        for _ in range(ATTEMPTS):
            create(feed, range(numbers.stop, numbers.stop + BURST))
            numbers = range(BURST, numbers.stop + BURST)
            assert eventually(transactions.exist, SETTLE_SECONDS, LOOK_SECONDS)
            pause()
            time.sleep(LAST_REQUEST_SECONDS)
            if transactions.exist() and job.is_within_a_batch():
                return numbers
            go_on()
            eventually(lambda: streams.are_read() and not job.is_within_a_batch(), SETTLE_SECONDS, POLL_SECONDS)
    pytest.fail("no pause struck a transaction")


@pytest.mark.rule("exactly-once", "abandoned-task")
@pytest.mark.main
@pytest.mark.parametrize("seconds", [0, *[PAUSE_SECONDS] * ROUNDS])
def test_a_driver_that_wakes_up_after_it_was_replaced_writes_nothing(
    streams: Streams, tmp_path: Path, seconds: float
) -> None:
    """It stops within a micro-batch, a second one goes on and takes back what the first was about to say.

    Its JVM wakes up first, alone, so that the broker has to refuse what it writes: its driver cannot end it.
    """
    feed = streams.producer()
    subscribe(feed)
    with running(streams, tmp_path / "first.log", *MANY_PARTITIONS) as first:
        kept = create(feed, range(100))
        streams.becomes(kept)
        passing = pause_while_it_writes(streams, feed, first, first.pause, first.resume)
        time.sleep(seconds)
        with running(streams, tmp_path / "second.log") as second:
            delete(feed, passing)
            assert eventually(
                lambda: streams.are_read() and not second.is_within_a_batch(), SETTLE_SECONDS, POLL_SECONDS
            )
            streams.becomes(kept)
            written = len(streams.updates())
            first.resume_spark()
            time.sleep(AWAKE_SECONDS)
            assert len(streams.updates()) == written
            first.resume()
            assert first.process.wait(SETTLE_SECONDS) == 1
            kept |= create(feed, range(100, 200))
            streams.becomes(kept)
            assert len(streams.updates()) == written + 100
    assert streams.repeated() == 0
    said = first.said()
    assert f"another driver has taken over the checkpoint {streams.checkpoint}: {process(second)}" in said
    assert "\n" not in said.rpartition("Error: ")[2].rstrip("\n"), "the last thing it says is one sentence"


@pytest.mark.rule("exactly-once", "standby")
def test_of_several_drivers_one_works(streams: Streams, tmp_path: Path) -> None:
    """A second driver is rejected, stands by, or takes over; those that stand by replace killed and stopped ones.

    A standby driver writes nothing. It removes the folder of its warm-up, and old folders of killed drivers.
    """
    feed = streams.producer()
    subscribe(feed)
    rows = set[Effective]()

    def goes_on() -> None:
        rows.update(create(feed, range(len(rows), len(rows) + 10)))
        streams.becomes(rows)

    with running(streams, tmp_path / "first.log", "--standby") as first:
        said = refused(streams, tmp_path / "refused.log", code=1)
        assert f"the checkpoint {streams.checkpoint} is in use by {process(first)}" in said
        assert "--take-over" in said
        goes_on()
        killed, live = (streams.checkpoint / "standby" / str(number) for number in (1, time.time_ns()))
        for folder in (killed, live):
            (folder / "query").mkdir(parents=True)
        with (
            standing_by(streams, tmp_path / "second.log", first) as second,
            standing_by(streams, tmp_path / "third.log", first) as third,
        ):
            assert list((streams.checkpoint / "standby").iterdir()) == [live]
            goes_on()
            assert len(streams.updates()) == len(rows)
            first.kill()
            goes_on()
            assert eventually(
                lambda: 2 in (second.said().count("standing by"), third.said().count("standing by")),
                START_SECONDS,
                POLL_SECONDS,
            )
            assert {second.process.poll(), third.process.poll()} == {None}
            assert third.stop() == 0
            goes_on()
            with running(streams, tmp_path / "fourth.log", "--take-over") as fourth:
                assert second.process.wait(SETTLE_SECONDS) == 1
                assert f"has taken over the checkpoint {streams.checkpoint}: {process(fourth)}" in second.said()
                goes_on()
    assert streams.repeated() == 0


@pytest.mark.rule("simultaneous-starts")
@pytest.mark.long
def test_of_two_drivers_that_begin_a_checkpoint_at_once_one_stands_by(streams: Streams, tmp_path: Path) -> None:
    """As a deployment of both begins; none of them ends."""
    feed = streams.producer()
    subscribe(feed)
    first, second = (Job(streams, tmp_path / f"{number}.log", "--standby") for number in range(2))
    with first, second:
        holder, other = first_ready(first, second)
        assert eventually(lambda: "standing by: " in other.said(), START_SECONDS, POLL_SECONDS), other.said()
        rows = create(feed, range(10))
        streams.becomes(rows)
        holder.kill()
        rows |= create(feed, range(10, 20))
        streams.becomes(rows)
        assert other.stop() == 0
    assert streams.repeated() == 0


@pytest.mark.rule("standby")
@pytest.mark.long
def test_a_driver_that_stands_by_ends_at_once_and_does_not_follow_who_is_well(streams: Streams, tmp_path: Path) -> None:
    feed = streams.producer()
    subscribe(feed)
    with running(streams, tmp_path / "first.log") as first:
        rows = create(feed, range(10))
        streams.becomes(rows)
        with standing_by(streams, tmp_path / "second.log", first) as second:
            time.sleep(2 * LEASE_SECONDS)
            assert "ready" not in second.said()
            assert second.stop(5) == 0
    with running(streams, tmp_path / "third.log", "--standby") as third:
        assert "standing by" not in third.said()
    assert len(streams.updates()) == len(rows)


@pytest.mark.rule("abandoned-task")
@pytest.mark.skipif(not ROUNDS, reason="takes minutes: make test-fence")
@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_worker_of_a_cluster_that_wakes_up_after_it_was_given_up_writes_nothing(
    streams: Streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """It stops within a micro-batch; the other worker does its tasks, and takes back what they said."""
    configuration = tmp_path / "conf"
    configuration.mkdir()
    lines = "spark.network.timeout 20s\nspark.network.timeoutInterval 5s\nspark.executor.heartbeatInterval 2s\n"
    (configuration / "spark-defaults.conf").write_text(lines)
    monkeypatch.setenv("SPARK_CONF_DIR", str(configuration))
    paused = 1 + number % 2
    feed = streams.producer()
    subscribe(feed)
    log = tmp_path / "job.log"
    with (
        FaultyCluster(tmp_path / "cluster") as cluster,
        running(streams, log, "--master", cluster.url, *MANY_PARTITIONS) as job,
    ):
        kept = create(feed, range(100))
        streams.becomes(kept)
        passing = pause_while_it_writes(
            streams, feed, job, lambda: cluster.pause_worker(paused), lambda: cluster.resume_worker(paused)
        )
        delete(feed, passing)
        streams.becomes(kept)
        assert eventually(lambda: "heartbeat" in job.said(), 60, POLL_SECONDS), "the worker was not given up"
        cluster.resume_worker(paused)
        time.sleep(20)
        assert_equal_relations(streams.relation(), kept)
        kept |= create(feed, range(100, 200))
        streams.becomes(kept)
    assert streams.repeated() == 0
