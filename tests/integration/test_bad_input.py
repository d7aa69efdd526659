"""Bad input in large amounts: the job goes on, reports each record once, and the relation of all others is right.

`make test-bad-input` runs it with 100,000 damaged records.
"""

import json
import os
from collections import Counter
from pathlib import Path
from random import Random

import orjson
import pytest
from confluent_kafka import Producer

from streaming.oracle import Effective
from streaming.records.model import Reason, Stream
from tests.support.builders import request_value
from tests.support.mutations import mutated
from tests.support.processes import eventually
from tests.support.running_job import POLL_SECONDS, SETTLE_SECONDS, Job, Streams, assert_equal_relations, running
from tests.support.scene import Scene

COUNT = int(os.environ.get("REEXPAND_BAD_RECORDS", "3000"))
LONG_SECONDS = 900
COUNT_OF_LARGE = 300
ONE_IN = 50


def test_damaged_records_harm_nothing_else(streams: Streams, tmp_path: Path) -> None:
    """Good ones stand among them, on all partitions."""
    scene, random = Scene(streams), Random(31)
    scene.group("sound", "whole", quota="-1")
    scene.asks("first", "sound", "whole", "good__*")
    wanted = set()
    sent: Counter[Stream] = Counter()
    options = ("--tick-interval-ms", "3600000", "--shards", "whole=2")
    with running(streams, tmp_path / "job.log", *options) as job:
        for number, (stream, value) in enumerate(mutated(random, COUNT)):
            scene.send(stream, value, str(random.randrange(9)))
            sent[stream] += 1
            if not number % ONE_IN:
                scene.born("whole", f"good__{number}")
                wanted.add(Effective("whole", "sound", "first", f"good__{number}"))
            if not number % (ONE_IN * 20):
                scene.asks(f"c{number}", "sound", "whole", f"good__{number}")
                wanted.add(Effective("whole", "sound", f"c{number}", f"good__{number}"))
        scene.sent()
        eventually(
            lambda: {row for row in streams.relation() if row.parent == "whole"} == wanted, LONG_SECONDS, POLL_SECONDS
        )
        scene.born("whole", "good__last")
        wanted |= {Effective("whole", "sound", "first", "good__last")}
        eventually(
            lambda: {row for row in streams.relation() if row.parent == "whole"} == wanted, LONG_SECONDS, POLL_SECONDS
        )
        scene.settles(job)
        assert job.stop() == 0
    assert_equal_relations({row for row in streams.relation() if row.parent == "whole"}, wanted)
    letters = streams.dead_letters()
    places = {tuple(letter["source"].values())[:3] for letter in letters}  # of a set, the bad request is reported
    said = Counter((letter["reason"], *letter["source"].values()) for letter in letters)
    assert [place for place, count in said.items() if count > 1] == []
    broken = {
        (message.topic(), message.partition(), message.offset()): message.value()
        for topic in streams.settings.inputs
        for message in streams.read(topic)
        if not is_json(message.value() or b"")
    }
    assert len(broken) > COUNT / 3
    assert {place: value for place, value in broken.items() if place not in places} == {}
    assert min(sent.values()) > COUNT / 20


def test_records_made_to_end_the_job_are_dead_letters(streams: Streams, tmp_path: Path) -> None:
    """All in its first micro-batch, which a restart would repeat, and the longest valid request, which it repeats."""
    request = json.dumps(request_value(topic="victim", group="hurt", clientId="h")).encode()
    leaving = json.dumps(
        request_value(action="COMPLETE_REMOVE", topic=..., liteTopicSet=..., group="hurt", clientId="h")
    )
    long_names = [f"{number:03}" + "n" * 16_000 for number in range(62)]
    looks_signed = b',"sign":"' + b"0" * 32 + b'"}'
    nested = b"[" * 300 + b"]" * 300
    later: bytes = b"[]"
    for _ in range(400):
        later = b'[{"action":"PARTIAL_ADD","liteTopicSet":[],"place":[0,0,0],"later":%b}]' % later
    hostile = {
        b'%b,"dialect":%b}' % (request[:-1], nested): Reason.TOO_DEEP,
        b'%b,"asOf":[0,0,0],"later":%b}' % (request[:-1], later): Reason.TOO_DEEP,
        b'%b,"asOf":[0,0,0],"later":%b}' % (request[:-1], b"[{}]"): Reason.RESERVED_FIELD,
        b'{"subscriptionSet":[%b],"pad":"%b"}' % (b",".join([b"null"] * 1_024), b"x" * 980_000): Reason.WRONG_TYPE,
        padded(request, 1_048_300 - len(looks_signed)) + looks_signed: Reason.VALUE_TOO_LARGE,
        b'{%b,"x":0}'
        % b",".join([b'"f%d":0' % number for number in range(50_000)] + [b'"x":0']): Reason.DUPLICATE_FIELD,
    }
    producer = Producer({"bootstrap.servers": streams.bootstrap_servers, "message.max.bytes": 2_000_000})
    scene = Scene(streams)
    scene.born("p", "t")
    scene.asks("c", "g", "p", "t")
    scene.sent()
    values = [request, leaving.encode(), *hostile]
    values.append(
        json.dumps(request_value(topic="victim", group="hurt", clientId="h", liteTopicSet=long_names)).encode()
    )
    for value in values:
        producer.produce(streams.settings.subscription_events, value, "hurt")
        producer.flush(60)
    with running(streams, tmp_path / "job.log") as job:
        scene.leads_to({Effective("p", "g", "c", "t")}, {"p"})
        scene.born("victim", long_names[-1])
        scene.leads_to({Effective("victim", "hurt", "h", long_names[-1])}, {"victim"})
        assert job.stop() == 0
    letters = streams.dead_letters()
    assert Counter(letter["reason"] for letter in letters) == Counter(hostile.values())


def padded(request: bytes, size: int) -> bytes:
    """A request without its end, so long."""
    return request[:-1] + b',"x":"' + b"x" * (size - len(request) - 8) + b'"'


def is_json(value: bytes) -> bool:
    """Whether it is one JSON value, as the job reads it."""
    try:
        orjson.loads(value)
    except orjson.JSONDecodeError:
        return False
    return True


@pytest.mark.long
def test_large_records_are_worked_off(streams: Streams, tmp_path: Path) -> None:
    """Those within the bound are applied; those above it are dead letters."""
    wanted = large_requests(streams, COUNT_OF_LARGE, above=3)
    with running(streams, tmp_path / "job.log") as job:
        eventually(lambda: streams.relation() == wanted or job.process.poll() is not None, SETTLE_SECONDS, 2)
        assert job.process.poll() is None, job.said()
        assert job.stop() == 0
    assert_equal_relations(streams.relation(), wanted)
    letters = streams.dead_letters()
    assert {letter["reason"] for letter in letters} == {Reason.VALUE_TOO_LARGE}
    assert len(letters) == 3
    assert all(letter["truncated"] and letter["originalBytes"] > 1_000_000 for letter in letters)


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_more_large_records_than_spark_takes_at_once_are_applied(streams: Streams, tmp_path: Path) -> None:
    """Spark has one buffer of 2 GB for a key. The records have more, and some MB in Kafka.

    Kafka's consumer decompresses 500 of them at once, so the first start may run out of memory.
    """
    wanted = large_requests(streams, 2_400, compression="gzip")
    job = Job(streams, tmp_path / "job.log")
    eventually(lambda: streams.relation() == wanted or job.process.poll() is not None, 3 * SETTLE_SECONDS, 2)
    if job.process.poll() is None:
        assert job.stop() == 0
    job.close()
    with running(streams, tmp_path / "job.log") as job:
        eventually(lambda: streams.relation() == wanted or job.process.poll() is not None, 3 * SETTLE_SECONDS, 2)
        assert job.process.poll() is None, job.said()
        assert job.stop() == 0
    assert_equal_relations(streams.relation(), wanted)
    assert streams.dead_letters() == []


def large_requests(streams: Streams, count: int, above: int = 0, compression: str = "none") -> set[Effective]:
    """Requests of 900 kB, and some above the bound of values; returns the rows that they are to become."""
    scene = Scene(streams)
    scene.born("p", "t")
    scene.sent()
    options = {"message.max.bytes": 1_048_000, "compression.type": compression, "linger.ms": 1_000}
    producer = Producer({"bootstrap.servers": streams.bootstrap_servers, **options})
    sizes = {**{f"c{number}": 900_000 for number in range(count)}, **{f"large{n}": 1_010_000 for n in range(above)}}
    for number, (name, size) in enumerate(sizes.items()):
        value = request_value(clientId=name, filler="x" * (size - 200))
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
    with running(streams, tmp_path / "job.log", "--shards", "huge=2") as job:
        scene.leads_to({Effective("p", "g", "quick", "first")}, {"p"})
        scene.asks("tenant", "wide", "huge", *(f"a__{number}__*" for number in range(20_000)))
        scene.asks("greedy", "wide", "huge", *(f"a__{number}__*" for number in range(20_001)))
        scene.born("p", "second")
        scene.leads_to({Effective("p", "g", "quick", name) for name in ("first", "second")}, {"p"})
        assert eventually(lambda: bool(streams.dead_letters()), LONG_SECONDS, POLL_SECONDS)
        assert job.stop() == 0
    (letter,) = [each for each in streams.dead_letters() if each["reason"] == Reason.OUT_OF_RANGE]
    assert letter["message"].startswith("liteTopicSet has 20,001 entries; at most 20,000 are allowed (max_entries)")
