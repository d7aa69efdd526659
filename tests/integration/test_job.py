"""The job as its users run it: a process, a real Kafka, a real Spark."""

import json
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kafka import KafkaConsumer

from streaming.oracle import Effective
from streaming.records.model import Reason, Stream
from streaming.storage import journal
from tests.support.histories import Profile, expected, history
from tests.support.poison import POISON, created, request
from tests.support.processes import eventually
from tests.support.running_job import POLL_SECONDS, SETTLE_SECONDS, Job, Streams, assert_equal_relations, running
from tests.support.simulator import Record
from tests.support.values import deleted, wildcard


def many_topics(count: int) -> list[Record]:
    """New topics of the parent `p`."""
    return [
        Record(Stream.TOPICS, json.dumps(created(f"stored__{number:05}__{'x' * 20}")).encode(), 0, number)
        for number in range(count)
    ]


@pytest.mark.rule("relation")
@pytest.mark.parametrize(
    "options",
    [pytest.param((), marks=pytest.mark.long), ("--shards", "p=3", "--route-depth", "2")],
    ids=["one shard", "three shards"],
)
def test_a_history_with_crashes_leaves_the_oracles_relation(
    streams: Streams, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """2,000 events; the job is killed twice, once with a batch to repeat, its Python workers once.

    Enough topics stand before them for a part of the state to lie in files.
    """
    profile = Profile(dialects=True, selectors=True, exclusive=True, bound=True)
    stored, records = many_topics(2_500), history(Random(20), 2_000, profile)
    quarter = len(records) // 4
    feed = streams.producer()
    log = tmp_path / "job.log"

    for record in stored:
        feed.send(record.stream, record.value, "p")
    with running(streams, log, *options) as job:
        feed.send_slowly(records[:quarter])
        assert eventually(lambda: bool(streams.updates()), SETTLE_SECONDS, POLL_SECONDS)
        job.kill()
        job.forget_last_commit()
    with running(streams, log, *options) as job:
        feed.send_slowly(records[quarter : 2 * quarter])
        job.kill()
    with running(streams, log, *options) as job:
        feed.send_slowly(records[2 * quarter : 3 * quarter])
        job.kill_workers()
        feed.send_slowly(records[3 * quarter :])
        wanted = expected([[*stored, *records]]).relation()
        eventually(lambda: streams.relation() == wanted, SETTLE_SECONDS, POLL_SECONDS)
        time.sleep(2)
        assert_equal_relations(streams.relation(), wanted)
        assert job.stop() == 0
    parts = [path for path in (tmp_path / "checkpoint" / "parts").rglob("*") if path.is_file()]
    assert parts or options, "the state is not large enough for this test"
    streams.assert_repeated_updates_are_equal()


@pytest.mark.rule("isolation-of-entries")
@pytest.mark.rule("missing-binding")
@pytest.mark.rule("unknown-dialect")
def test_a_poison_record_becomes_one_dead_letter_and_harms_nothing_else(streams: Streams, tmp_path: Path) -> None:
    """Each kind of bad record is reported once, with its reason and place; the valid ones around it are applied."""
    feed = streams.producer()
    feed.send(Stream.GROUPS, wildcard(group="wild"), "wild")
    feed.send(Stream.SUBSCRIPTIONS, request(group="wild", clientId="w", liteTopicSet=["good__*", "bad*"]), "wild")
    for number, (stream, value, _) in enumerate(POISON):
        if stream is not Stream.CLOCK:
            feed.send(stream, value, "k")
        feed.send(Stream.TOPICS, created(f"good__{number}"), "p")
    mixed = {
        "subscriptionSet": [request(clientId=""), request(clientId="ok", liteTopicSet=["good__0"]), request(group=3)]
    }
    feed.send(Stream.SUBSCRIPTIONS, mixed, "literal")
    feed.flush()
    wanted = {Effective("p", "wild", "w", f"good__{number}") for number in range(len(POISON))}
    wanted.add(Effective("p", "literal", "ok", "good__0"))
    reasons = Counter(reason for _, _, reason in POISON)
    reasons.update([Reason.INVALID_PATTERN, Reason.BLANK_NAME, Reason.WRONG_TYPE])
    with running(streams, tmp_path / "job.log") as job:
        for stream, value, _ in POISON:
            if stream is Stream.CLOCK:  # a new job does not read what the clock said before
                feed.send(stream, value, "k")
        feed.flush()
        eventually(
            lambda: streams.relation() == wanted and len(streams.dead_letters()) >= sum(reasons.values()),
            SETTLE_SECONDS,
            POLL_SECONDS,
        )
        assert job.stop() == 0
    assert streams.relation() == wanted
    letters = streams.dead_letters()
    assert Counter(letter["reason"] for letter in letters) == reasons
    places = {json.dumps(letter["source"], sort_keys=True) for letter in letters}
    assert len(places) == len(letters), "two dead letters have one source"
    for letter in letters:
        assert letter["message"]
        assert letter["source"]["topic"] in streams.settings.inputs
        assert (
            letter["originalBytes"] == len(letter["original"] or "")
            or letter["truncated"]
            or (letter["originalEncoding"] == "base64")
        )


def test_both_kafka_libraries_read_what_the_job_writes(streams: Streams, tmp_path: Path) -> None:
    """kafka-python sees the same keys and values as confluent-kafka, also of what the job writes back to its inputs."""
    settings = streams.settings
    feed = streams.producer()
    feed.send(Stream.SUBSCRIPTIONS, request(liteTopicSet=["t"]), "literal")
    feed.send(Stream.SUBSCRIPTIONS, request(clientId="gone", liteTopicSet=["t"]), "literal")
    feed.send(Stream.SUBSCRIPTIONS, request(clientId="gone", topic="", action="COMPLETE_REMOVE"), "literal")
    feed.send(Stream.TOPICS, created("t"), "p")
    feed.send(Stream.TOPICS, created("short", ttlMs=1), "p")
    feed.send(Stream.TOPICS, b"bad", "p")
    feed.flush()

    def written_back() -> set[str]:
        """The fields by which what the job writes to its inputs is known."""
        values = [message.value() for name in (settings.clock, settings.subscription_events)
                  for message in streams.read(name)]  # fmt: skip
        return {
            field
            for value in values
            for field in ("tick", "alarm", "wake", "asOf")
            if field in json.loads(value or b"")
        }

    with running(streams, tmp_path / "job.log", "--tick-interval-ms", "1000"):
        assert eventually(
            lambda: len(streams.relation()) == 1 and len(streams.dead_letters()) == 1, SETTLE_SECONDS, POLL_SECONDS
        )
        assert eventually(lambda: len(written_back()) == 4, SETTLE_SECONDS, POLL_SECONDS), written_back()
    for topic in (settings.updates, settings.dead_letters, settings.clock, settings.subscription_events):
        mine = sorted((message.partition(), message.offset(), message.key(), message.value())
                      for message in streams.read(topic))  # fmt: skip
        other = KafkaConsumer(
            topic, bootstrap_servers=streams.bootstrap_servers, auto_offset_reset="earliest", consumer_timeout_ms=5_000
        )
        try:
            assert sorted((record.partition, record.offset, record.key, record.value) for record in other) == mine
        finally:
            other.close()


def test_a_stopped_job_goes_on_where_it_stopped(
    streams: Streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM ends it with exit code 0 after the running batch; nothing is emitted twice by the next start.

    Neither when it was a former release that stopped, or had another PySpark, whose own serializer it uses: then the
    checkpoint is the new one's from there on.
    """
    (tmp_path / "sitecustomize.py").write_text("import pyspark\npyspark.__version__ = 'another'\n")
    feed = streams.producer()
    log = tmp_path / "job.log"
    feed.send(Stream.SUBSCRIPTIONS, request(liteTopicSet=["t1", "t2"], version=4), "literal")
    feed.send(Stream.TOPICS, created("t1"), "p")
    feed.flush()
    with monkeypatch.context() as patched:
        patched.setenv("PYTHONPATH", str(tmp_path))
        with running(streams, log) as job:
            assert eventually(lambda: len(streams.relation()) == 1, SETTLE_SECONDS, POLL_SECONDS)
            assert job.stop() == 0
        assert "PySpark is another, not" in job.said()
    values = identity(streams)
    as_of_the_former_release(streams)
    feed.send(Stream.SUBSCRIPTIONS, request(action="COMPLETE_REMOVE", version=3), "literal")  # stale
    feed.send(Stream.TOPICS, {"event": "CREATED", "lmqName": "%LMQ%$p$t2"}, "p")
    feed.send(Stream.TOPICS, deleted("t1"), "p")
    feed.flush()
    with running(streams, log) as job:
        assert eventually(
            lambda: streams.relation() == {Effective("p", "literal", "c", "t2")}, SETTLE_SECONDS, POLL_SECONDS
        )
        assert job.stop() == 0
    operations = Counter((update["op"], update["liteTopic"]) for update in streams.updates())
    assert operations == {("ADD", "t1"): 1, ("ADD", "t2"): 1, ("REMOVE", "t1"): 1}
    assert identity(streams) == values


def identity(streams: Streams) -> Any:
    """What the checkpoint says of itself."""
    return json.loads((streams.checkpoint / "reexpand.json").read_text())


def as_of_the_former_release(streams: Streams) -> Any:
    """Has the checkpoint say that the former release made it; returns what it says then."""
    file, values = streams.checkpoint / "reexpand.json", identity(streams)
    assert values["format"] == journal.FORMAT
    file.write_text(json.dumps({**values, "format": journal.READ_FORMATS[0]}))
    file.with_name(f".{file.name}.crc").unlink()
    return identity(streams)


def test_a_checkpoint_of_other_settings_is_refused(streams: Streams, tmp_path: Path) -> None:
    """The job says what differs and what to do, and ends with exit code 2."""
    log = tmp_path / "job.log"
    with running(streams, log) as job:
        assert job.stop() == 0
    left = as_of_the_former_release(streams)
    refused = Job(streams, log, "--shards", "p=2")
    try:
        assert refused.process.wait(60) == 2
        said = refused.said()
    finally:
        refused.close()
    assert "shards is {'p': 2}, the checkpoint has {}" in said
    assert "Traceback" not in said
    assert identity(streams) == left
