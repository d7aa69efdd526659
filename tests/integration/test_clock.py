"""Time in the real job: never ahead of what was read, the broker's own, and not lost with its topic."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from streaming.oracle import Effective
from streaming.records.model import Reason, Stream
from streaming.records.updates import Cause
from tests.support.processes import eventually
from tests.support.running_job import POLL_SECONDS, SETTLE_SECONDS, Streams, running
from tests.support.scene import Scene, repeated
from tests.support.topics import create, delete

HOUR_MS = 3_600_000
NEVER = ("--tick-interval-ms", "3600000")
"""The first tick of such a job would come after the test."""


class Told(NamedTuple):
    """A record of the clock topic that tells a time."""

    partition: str
    offset: int
    time: int


def clock_records(streams: Streams, kind: str) -> list[Told]:
    return [
        Told(str(message.partition()), message.offset() or 0, value[kind])
        for message in streams.read(streams.settings.clock)
        if kind in (value := json.loads(message.value() or b"{}"))
    ]


def micro_batches(streams: Streams) -> list[dict[str, dict[str, int]]]:
    folder = streams.checkpoint / "query" / "offsets"
    numbers = sorted(int(file.name) for file in folder.glob("[0-9]*"))
    assert numbers[0] == 0, "some are gone"
    return [json.loads((folder / str(number)).read_text().splitlines()[-1]) for number in numbers]


@contextmanager
def feeding(streams: Streams) -> Iterator[None]:
    scene = Scene(streams)

    def step(number: int) -> None:
        scene.born("p", f"later__{number}")
        scene.sent()

    with repeated(step, 0.02):
        yield


@pytest.mark.rule("time-follows-reading")
def test_no_tick_runs_ahead_of_what_was_read(streams: Streams, tmp_path: Path) -> None:
    """Neither while the job works off a backlog, nor while events come on and on."""
    scene = Scene(streams)
    scene.born("p", *(f"t{number}" for number in range(2_000)))
    scene.sent()
    options = ("--tick-interval-ms", "50", "--max-offsets-per-trigger", "500")
    with running(streams, tmp_path / "job.log", *options) as job, feeding(streams):
        assert eventually(lambda: len(clock_records(streams, "tick")) > 6, SETTLE_SECONDS, POLL_SECONDS)
        job.kill()
    batches = micro_batches(streams)
    clock = streams.settings.clock
    produced = [
        (message.timestamp()[1], str(message.topic()), str(message.partition()), message.offset() or 0)
        for topic in streams.settings.inputs[:3]
        for message in streams.read(topic)
    ]
    ticks = [tick for tick in clock_records(streams, "tick") if tick.time]
    checked = 0
    for tick in ticks:
        reader = next((n for n, ends in enumerate(batches) if ends[clock].get(tick.partition, 0) > tick.offset), None)
        if reader is None:
            continue  # it was written, but not read before the end
        before = batches[reader - 1]
        for timestamp, topic, partition, offset in produced:
            if timestamp <= tick.time:
                assert before[topic][partition] > offset, tick
                checked += 1
    assert checked > 2_000
    assert len(ticks) > 3


@pytest.mark.rule("new-clock")
@pytest.mark.long
def test_a_new_checkpoint_leaves_out_what_the_clock_said_before(streams: Streams, tmp_path: Path) -> None:
    """Topics end by their own deadlines, as of the records that are there."""
    scene = Scene(streams)
    scene.asks("c", "g", "p", "stays", "passes")
    scene.born("p", "stays")
    scene.born("p", "passes", ttlMs=1)
    for number in range(5):
        scene.tick(number)
    scene.sent()
    ends = streams.ends(streams.settings.clock)
    assert sum(ends.values()) == 5
    with running(streams, tmp_path / "job.log", "--tick-interval-ms", "1000") as job:
        passed = eventually(
            lambda: (
                any(update["cause"] == Cause.TOPIC_EXPIRED for update in streams.updates())
                or (len(streams.relation()) == 1 and bool(clock_records(streams, "wake")))
            ),
            SETTLE_SECONDS,
            POLL_SECONDS,
        )
        assert passed, job.said()
    first = json.loads((streams.checkpoint / "query/sources/0/0").read_bytes().splitlines()[-1])
    assert {int(number): offset for number, offset in first.pop(streams.settings.clock).items()} == ends
    assert {offset for offsets in first.values() for offset in offsets.values()} == {0}
    assert streams.relation() == {Effective("p", "g", "c", "stays")}


@pytest.mark.rule("time-ahead")
@pytest.mark.long
def test_a_time_ahead_of_its_record_ends_nothing(streams: Streams, tmp_path: Path) -> None:
    """Be it a tick or a wake, and whatever its producer says of its age; each is one dead letter."""
    scene = Scene(streams)
    scene.asks("c", "g", "p", "t", "next")
    scene.born("p", "t", ttlMs=HOUR_MS)
    with running(streams, tmp_path / "job.log", *NEVER, "--client-timeout-ms", str(HOUR_MS)):
        scene.leads_to({Effective("p", "g", "c", "t")}, {"p"})
        late = int(time.time() * 1_000) + 2 * HOUR_MS
        scene.timestamp = late
        scene.tick(late)
        scene.send(Stream.CLOCK, {"wake": late, "parentTopic": "p", "shard": 0}, "p")
        scene.send(Stream.CLOCK, b'{"tick": 5, "more": NaN}', "tick")
        scene.timestamp = 0
        scene.sent()
        assert eventually(lambda: len(streams.dead_letters()) >= 3, SETTLE_SECONDS, POLL_SECONDS)
        scene.born("p", "next")
        scene.leads_to({Effective("p", "g", "c", "t"), Effective("p", "g", "c", "next")}, {"p"})
    reasons = sorted(letter["reason"] for letter in streams.dead_letters())
    assert reasons == [Reason.AHEAD_OF_TIME, Reason.AHEAD_OF_TIME, Reason.NOT_JSON]
    assert {update["op"] for update in streams.updates()} == {"ADD"}


@pytest.mark.rule("new-clock", "lost-clock-topic")
@pytest.mark.long
def test_a_lost_clock_topic_is_made_anew_and_no_alarm_is_lost(streams: Streams, tmp_path: Path) -> None:
    """Neither one that the coordinator has, nor one that stood in the topic only."""
    scene, log = Scene(streams), tmp_path / "job.log"
    scene.asks("c", "g", "p", "stays", "early", "late")
    scene.born("p", "stays")
    scene.born("p", "early", ttlMs=20_000)
    all_of = {Effective("p", "g", "c", topic) for topic in ("stays", "early")}
    with running(streams, log, *NEVER) as job:
        scene.leads_to(all_of, {"p"})
        scene.settles(job)
    lose_unread_alarm(streams, scene, log)
    with running(streams, log, "--tick-interval-ms", "500") as job:
        assert "goes on with the new one" in job.said()
        scene.leads_to({Effective("p", "g", "c", "stays")}, {"p"})
        assert "alarms to" in job.said()
    causes = {update["liteTopic"]: update["cause"] for update in streams.updates() if update["op"] == "REMOVE"}
    assert causes == {"early": Cause.TOPIC_EXPIRED, "late": Cause.TOPIC_EXPIRED}


def lose_unread_alarm(streams: Streams, scene: Scene, log: Path) -> None:
    """Delete the clock topic of a stopped job when its last micro-batch was the one that wrote an alarm there."""
    scene.born("p", "late", ttlMs=30_000)
    scene.sent()
    alarms = len(clock_records(streams, "alarm"))
    with running(streams, log, *NEVER) as job:
        assert eventually(lambda: len(clock_records(streams, "alarm")) > alarms, SETTLE_SECONDS, 0.01)
        job.kill()
    delete(streams, streams.settings.clock)


@pytest.mark.rule("lost-clock-topic")
@pytest.mark.long
def test_a_clock_topic_that_goes_while_the_job_runs(streams: Streams, tmp_path: Path) -> None:
    """The job ends with an error message that names the fix, and the fix works."""
    scene, log = Scene(streams), tmp_path / "job.log"
    scene.asks("c", "g", "p", "a", "b")
    scene.born("p", "a", ttlMs=5_000)
    with running(streams, log, "--tick-interval-ms", "1000") as job:
        scene.leads_to({Effective("p", "g", "c", "a")}, {"p"})
        delete(streams, streams.settings.clock)
        assert job.process.wait(SETTLE_SECONDS) == 1
        said = job.said()
    assert f"the topic {streams.settings.clock} was deleted, or created again, while the job ran. Start" in said
    assert "failOnDataLoss" not in said
    create(streams, streams.settings.clock)  # as another program might
    scene.born("p", "b")
    with running(streams, log, "--tick-interval-ms", "500"):
        scene.leads_to({Effective("p", "g", "c", "b")}, {"p"})
