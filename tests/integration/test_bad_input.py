"""Large records in large amounts: the job goes on, and the relation of all others is right."""

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer

from streaming.oracle import Effective
from streaming.records.model import Reason
from tests.support.events import replace
from tests.support.processes import eventually
from tests.support.running_job import POLL_SECONDS, SETTLE_SECONDS, Job, Streams, assert_equal_relations, running
from tests.support.scene import Scene

LONG_SECONDS = 900


@pytest.mark.rule("large-record")
@pytest.mark.long
def test_large_records_are_applied_and_larger_ones_are_dead_letters(streams: Streams, tmp_path: Path) -> None:
    """Three requests are beyond the bound, and 300 within it."""
    wanted = large_requests(streams, 300, above=3)
    with running(streams, tmp_path / "job.log") as job:

        def is_over() -> bool:
            found = streams.relation() == wanted and len(streams.dead_letters()) >= 3
            return found or job.process.poll() is not None

        eventually(is_over, SETTLE_SECONDS, 2)
        assert job.process.poll() is None, job.said()
    assert_equal_relations(streams.relation(), wanted)
    letters = streams.dead_letters()
    assert [letter["reason"] for letter in letters] == [Reason.VALUE_TOO_LARGE] * 3
    assert all(letter["truncated"] and letter["originalBytes"] > 1_000_000 for letter in letters)


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_more_large_records_than_spark_takes_at_once_are_applied(streams: Streams, tmp_path: Path) -> None:
    """Spark has one buffer of 2 GB for a key. The records have more, and some MB in Kafka.

    Kafka's consumer decompresses 500 of them at once and Spark keeps them, so the first start may run out of memory.
    The next one reads with bounded memory.
    """
    wanted = large_requests(streams, 2_400, compression="gzip")
    with Job(streams, tmp_path / "job.log") as job:
        eventually(lambda: streams.relation() == wanted or job.process.poll() is not None, 3 * SETTLE_SECONDS, 2)
        if job.process.poll() is None:
            assert job.stop() == 0
    with running(streams, tmp_path / "job.log") as job:
        eventually(lambda: streams.relation() == wanted or job.process.poll() is not None, 3 * SETTLE_SECONDS, 2)
        assert job.process.poll() is None, job.said()
    assert_equal_relations(streams.relation(), wanted)
    assert streams.dead_letters() == []


def large_requests(streams: Streams, count: int, above: int = 0, compression: str = "none") -> set[Effective]:
    """Write requests of 900 kB, and some beyond the bound of values. Return the rows of the valid requests."""
    scene = Scene(streams)
    scene.born("p", "t")
    scene.sent()
    options = {"message.max.bytes": 1_048_000, "compression.type": compression, "linger.ms": 1_000}
    producer = Producer({"bootstrap.servers": streams.bootstrap_servers, **options})
    for number in range(count + above):
        value = replace("t", client=f"c{number}", filler="x" * (899_800 if number < count else 1_009_800))
        producer.produce(streams.settings.subscription_events, json.dumps(value), "g")
        if not number % 50:
            producer.flush(60)
    producer.flush(60)
    return {Effective("p", "g", f"c{number}", "t") for number in range(count)}


@pytest.mark.long
def test_one_huge_request_holds_nobody_up(streams: Streams, tmp_path: Path) -> None:
    """The largest one within the bounds, of another parent, and one beyond them."""
    scene = Scene(streams)
    scene.group("wide", "huge")
    scene.born("huge", *(f"a__{number}__z" for number in range(5_000)))
    scene.asks("quick", "g", "p", "first", "second")
    scene.born("p", "first")
    with running(streams, tmp_path / "job.log", "--shards", "huge=2"):
        scene.leads_to({Effective("p", "g", "quick", "first")}, {"p"})
        scene.asks("tenant", "wide", "huge", *(f"a__{number}__*" for number in range(20_000)))
        scene.asks("greedy", "wide", "huge", *(f"a__{number}__*" for number in range(20_001)))
        scene.born("p", "second")
        scene.leads_to({Effective("p", "g", "quick", name) for name in ("first", "second")}, {"p"})
        assert eventually(lambda: bool(streams.dead_letters()), LONG_SECONDS, POLL_SECONDS)
    (letter,) = [each for each in streams.dead_letters() if each["reason"] == Reason.OUT_OF_RANGE]
    assert letter["message"].startswith("liteTopicSet has 20,001 entries; at most 20,000 are allowed (max_entries)")
