"""`reexpand dlq`, on a real broker: what is listed, shown and written back."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from streaming.cli import main
from streaming.records.model import Reason, Source, Stream
from streaming.records.writing import dead_letter
from tests.support.events import WILD, created, encoded, replace
from tests.support.running_job import Streams

Dlq = Callable[..., Result]


@pytest.fixture
def dlq(streams: Streams) -> Dlq:
    """Runs the verb for the topics of the test."""

    def run(verb: str, *arguments: str) -> Result:
        settings = streams.settings
        given = ("--bootstrap-servers", settings.bootstrap_servers, "--dead-letters", settings.dead_letters)
        return CliRunner().invoke(main, ["dlq", verb, *given, *arguments])

    return run


def rejected(streams: Streams, stream: Stream, value: bytes, reason: Reason, **fields: Any) -> str:
    """Write a dead letter as the job does; returns its id."""
    source = Source(streams.name(stream), **{"partition": 0, "offset": 0, "entry": 0, "timestamp": 5, **fields})
    key, letter = dead_letter(source, reason, f"it is {reason}", value)
    streams.write(streams.settings.dead_letters, (key, letter))
    return f"{source.topic}[{source.partition}]@{source.offset}" + (f"#{source.entry}" if source.entry else "")


def test_dead_letters_are_listed_counted_and_shown(streams: Streams, dlq: Dlq) -> None:
    """Each once, however often it was written, and those that a filter admits."""
    topic = rejected(streams, Stream.TOPICS, b"{", Reason.NOT_JSON, offset=3)
    rejected(streams, Stream.TOPICS, b"{", Reason.NOT_JSON, offset=3)
    long = rejected(streams, Stream.GROUPS, b"x" * 70_000, Reason.NOT_JSON)
    request = rejected(streams, Stream.SUBSCRIPTIONS, encoded(replace("t")), Reason.QUOTA_EXCEEDED, entry=2)
    listed = dlq("list")
    assert listed.exit_code == 0
    assert sorted(line.split()[0] for line in listed.stdout.splitlines()) == sorted([topic, long, request])
    assert "3 dead letters: 2 not-json, 1 quota-exceeded" in listed.stderr
    (line,) = dlq("list", "--reason", "quota-exceeded", "--json").stdout.splitlines()
    assert json.loads(line)["id"] == request
    (line,) = dlq("list", "--topic", streams.settings.group_events).stdout.splitlines()
    assert line.startswith(long)
    shown = dlq("show", request)
    assert "it is quota-exceeded" in shown.stdout
    assert encoded(replace("t")).decode() in shown.stdout
    assert "70,000 bytes, truncated" in dlq("show", long).stdout
    assert json.loads(dlq("show", topic, "--json").stdout)["original"] == "{"


def test_entries_are_written_back_once(streams: Streams, dlq: Dlq) -> None:
    """Under the key of their producers; a trial run writes nothing."""
    name = rejected(streams, Stream.TOPICS, encoded(created()), Reason.NOT_ROUTABLE)
    rejected(streams, Stream.TOPICS, b'{"event":"CREATED","lmqName":"%LMQ%$q$t"}', Reason.NOT_ROUTABLE, offset=1)
    rejected(streams, Stream.SUBSCRIPTIONS, encoded(replace("t")), Reason.GROUP_BOUND_ELSEWHERE)
    kept = rejected(streams, Stream.GROUPS, encoded(WILD), Reason.OUT_OF_RANGE)
    reasons = ("--reason", "not-routable", "--reason", "group-bound-elsewhere")
    trial = dlq("replay", *reasons, "--dry-run")
    assert (trial.exit_code, "3 entries would be written" in trial.stderr) == (0, True)
    assert streams.read(streams.settings.topic_events) == []
    done = dlq("replay", *reasons, "--json")
    assert done.exit_code == 0
    assert [json.loads(line)["written"] for line in done.stdout.splitlines()] == [True] * 3
    written = [
        (message.key(), message.value())
        for topic in (streams.settings.topic_events, streams.settings.subscription_events)
        for message in streams.read(topic)
    ]
    assert sorted(written) == [
        (b"g", encoded(replace("t"))),
        (b"p", encoded(created())),
        (b"q", b'{"event":"CREATED","lmqName":"%LMQ%$q$t"}'),
    ]
    assert [line.split()[0] for line in dlq("list").stdout.splitlines()] == [kept]
    again = dlq("replay", name)
    assert again.exit_code == 1
    assert f"no dead letter {name}, or its entry was already replayed" in again.stderr
    assert "0 entries written" in dlq("replay", *reasons).stderr


def test_a_long_entry_is_written_back_whole(streams: Streams, dlq: Dlq) -> None:
    """From the record of which it was a part, as long as Kafka has that record."""
    long = replace("t", client="long", filler="é" * 50_000)
    feed = streams.producer()
    feed.send(Stream.SUBSCRIPTIONS, {"subscriptionSet": [replace("t"), long]}, "g")
    feed.flush()
    (record,) = streams.read(streams.settings.subscription_events)
    place = {"partition": record.partition(), "offset": record.offset(), "timestamp": record.timestamp()[1]}
    value = json.dumps(long).encode()
    here = rejected(streams, Stream.SUBSCRIPTIONS, value, Reason.OUT_OF_RANGE, **{**place, "entry": 1})
    gone = rejected(streams, Stream.SUBSCRIPTIONS, value, Reason.OUT_OF_RANGE, **{**place, "offset": 99})
    other = rejected(streams, Stream.SUBSCRIPTIONS, value, Reason.OUT_OF_RANGE, **{**place, "timestamp": 6})
    assert dlq("replay", here).exit_code == 0
    (back,) = [message for message in streams.read(streams.settings.subscription_events) if message.offset()]
    assert back.partition() == record.partition()
    assert json.loads(back.value() or b"") == long
    lost = dlq("replay", "--all")
    assert lost.exit_code == 1
    assert "0 entries written, 2 cannot be" in lost.stderr
    assert all("Kafka no longer has the record" in line for line in lost.stdout.splitlines())
    assert {line.split()[0] for line in lost.stdout.splitlines()} == {gone, other}


def test_what_is_wrong_is_said_in_a_sentence(streams: Streams, dlq: Dlq) -> None:
    assert dlq("replay").exit_code == 2
    wrong = dlq("show", "topic@5")
    assert (wrong.exit_code, "is not the id of a dead letter" in wrong.stderr) == (2, True)
    unknown = dlq("show", "lite-topic-events[0]@5")
    assert unknown.exit_code == 1
    assert "no dead letter lite-topic-events[0]@5" in unknown.stderr, unknown.stderr
    missing = dlq("list", "--dead-letters", f"{streams.prefix}-none")
    assert (missing.exit_code, f"has no topic {streams.prefix}-none; " in missing.stderr) == (1, True)
