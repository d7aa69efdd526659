"""One running job with input of all kinds: dialects, limits, time, metrics, invalid and hostile records.

Each test uses parents and groups of its own. `make test-bad-input` sends 100,000 damaged records.
"""

import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from operator import ge
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from kafka import KafkaConsumer

from matcher.selectors import BloomFilter
from streaming.cli import main
from streaming.kafka.permissions import lag_group
from streaming.kafka.topics import configure
from streaming.oracle import Effective
from streaming.records.model import BIND_TOPIC, WILDCARD, Reason, Stream
from streaming.records.updates import Cause
from tests.support import events
from tests.support.brokers import SharedBroker
from tests.support.events import encoded, replace
from tests.support.inspecting import assert_the_job_explains_itself
from tests.support.mutations import is_json, mutated
from tests.support.poison import POISON, request
from tests.support.processes import eventually
from tests.support.prometheus import probe, sample
from tests.support.running_job import POLL_SECONDS, PRODUCERS_TIME, SETTLE_SECONDS, WORKER, Job, Streams, running
from tests.support.scene import Scene, ask_in_every_dialect, ask_with_selectors
from tests.support.topics import committed

LEASE_MS = 1_800_000
COUNT = int(os.environ.get("REEXPAND_BAD_RECORDS", "3000"))
"""Number of damaged records."""
ONE_IN = 50
"""Damaged records per valid record."""
LONG_SECONDS = 900
METERED = 30


class Shared(NamedTuple):
    """Running job, with the dead letters of its first micro-batch, which contains the records of `hostile`."""

    streams: Streams
    job: Job
    first_letters: list[str]

    def letters(self) -> list[tuple[str, str]]:
        return [(each["reason"], json.dumps(each["source"], sort_keys=True)) for each in self.streams.dead_letters()]


@pytest.fixture(scope="module")
def shared(broker: SharedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """A job that ticks each second, has a group in a file, and serves metrics."""
    folder = tmp_path_factory.mktemp("job")
    streams = Streams(broker.bootstrap_servers, folder / "checkpoint").create()
    # A client can have fallen silent long ago.
    configure(streams.bootstrap_servers, {streams.settings.subscription_events: PRODUCERS_TIME})
    groups = folder / "groups.toml"
    groups.write_text(f'["g"]\n"{BIND_TOPIC}" = "d"\n"{WILDCARD}" = true\n')
    producer = Producer({"bootstrap.servers": streams.bootstrap_servers, "message.max.bytes": 2_000_000})
    for value in [*hostile(), *valid_and_long()]:
        producer.produce(streams.settings.subscription_events, value, "harmed")
        assert producer.flush(60) == 0
    times = ("--tick-interval-ms", "1000", "--client-timeout-ms", str(LEASE_MS))
    options = ("--groups", str(groups), "--shards", "whole=2", "--http", "127.0.0.1:0", *times)
    with running(streams, folder / "job.log", *options) as job:
        Scene(streams).settles(job)
        yield Shared(streams, job, [letter["reason"] for letter in streams.dead_letters()])


def rows(parent: str, group: str, client: str, *topics: str, part: str = "") -> set[Effective]:
    return {Effective(parent, group, client, topic, part) for topic in topics}


def hostile() -> dict[bytes, Reason]:
    """Return records that once ended the job, and would end each restart, with the reasons of their dead letters."""
    request = encoded(replace("t", parent="harmed", group="harmed", client="h"))
    looks_signed = b',"sign":"' + b"0" * 32 + b'"}'
    nested = b"[" * 300 + b"]" * 300
    later: bytes = b"[]"
    for _ in range(400):
        later = b'[{"action":"PARTIAL_ADD","liteTopicSet":[],"place":[0,0,0],"later":%b}]' % later
    padded = b'%b,"x":"%b"' % (request[:-1], b"x" * (1_048_300 - len(looks_signed) - len(request) - 8))
    fields = b",".join([b'"f%d":0' % number for number in range(50_000)] + [b'"x":0'])
    return {
        b'%b,"dialect":%b}' % (request[:-1], nested): Reason.TOO_DEEP,
        b'%b,"asOf":[0,0,0],"later":%b}' % (request[:-1], later): Reason.TOO_DEEP,
        b'%b,"asOf":[0,0,0],"later":%b}' % (request[:-1], b"[{}]"): Reason.RESERVED_FIELD,
        b'{"subscriptionSet":[%b],"pad":"%b"}' % (b",".join([b"null"] * 1_024), b"x" * 980_000): Reason.WRONG_TYPE,
        padded + looks_signed: Reason.VALUE_TOO_LARGE,
        b'{%b,"x":0}' % fields: Reason.DUPLICATE_FIELD,
    }


LONG_NAMES = [f"{number:03}" + "n" * 16_000 for number in range(62)]


def valid_and_long() -> Iterator[bytes]:
    """Yield the longest valid request of a client, and requests before it that make the job repeat it."""
    names = {"topic": "harmed", "group": "harmed", "clientId": "h"}
    for changes in ({}, {"action": "COMPLETE_REMOVE", "topic": ..., "liteTopicSet": ...}, {"liteTopicSet": LONG_NAMES}):
        yield encoded(replace("t", **{**names, **changes}))


def test_records_made_to_end_the_job_are_dead_letters(shared: Shared) -> None:
    assert Counter(shared.first_letters) == Counter(hostile().values())
    scene = Scene(shared.streams)
    scene.born("harmed", LONG_NAMES[-1])
    scene.leads_to(rows("harmed", "harmed", "h", LONG_NAMES[-1]), {"harmed"})


@pytest.mark.rule("group-file", "share-in-key", "selector")
def test_every_dialect_and_selector_end_to_end(shared: Shared) -> None:
    """One client of each dialect on one parent, with topics before and after its request; its group is in a file."""
    streams, scene = shared.streams, Scene(shared.streams)
    scene.born("d", "orders__1__created", "sensors/a/temp", "fleet.eu.1", "com.app.x", "com.app2")
    ask_in_every_dialect(scene, "d")
    prefix, wildcard = "wamp:prefix:com.app", "wamp:wildcard:com..x"
    first = (
        rows("d", "g", "lite", "orders__1__created")
        | rows("d", "g", "mqtt", "sensors/a/temp")
        | rows("d", "g", "mqtt", "sensors/a/temp", part="share:workers/sensors/#")
        | rows("d", "g", "nats", "fleet.eu.1")
        | rows("d", "g", "wamp", "com.app.x", "com.app2", part=prefix)
        | rows("d", "g", "wamp", "com.app.x", part=wildcard)
    )
    scene.leads_to(first, {"d"})
    scene.born("d", "sensors", "sensors/b/temp", "fleet.us", "com.b.x", "orders__2__created")
    second = (
        first
        | rows("d", "g", "lite", "orders__2__created")
        | rows("d", "g", "mqtt", "sensors/b/temp")
        | rows("d", "g", "mqtt", "sensors", "sensors/b/temp", part="share:workers/sensors/#")
        | rows("d", "g", "nats", "fleet.us")
        | rows("d", "g", "wamp", "com.b.x", part=wildcard)
    )
    scene.leads_to(second, {"d"})

    # A selector decides by tags and properties, also over topics that exist; a later one replaces it.
    ask_with_selectors(scene)
    scene.born("s", "plain__1")
    scene.leads_to(rows("s", "tagged", "c", "red__1") | rows("s", "priced", "c", "blue__1"), {"s"})
    bitmap = next(bytes.fromhex(u["bitmap"]) for u in streams.updates() if u["liteTopic"] == "blue__1")
    assert "priced#s" in BloomFilter().bitmap(bitmap)
    scene.asks("d", "priced", "s", "red__*", selector={"type": "SQL92", "expression": "price < 10"})
    scene.leads_to(rows("s", "tagged", "c", "red__1") | rows("s", "priced", "c", "red__1")
                   | rows("s", "priced", "d", "red__1"), {"s"})  # fmt: skip
    assert_the_job_explains_itself(streams)


@pytest.mark.rule("expiry", "eviction", "freed-quota", "causes-of-time")
def test_limits_and_time_end_to_end(shared: Shared) -> None:
    """Exclusive groups, quotas, silent clients, clients that leave all parents, and topics whose time is over."""
    streams, scene, before = shared.streams, Scene(shared.streams), shared.letters()
    scene.group("only", "x", model="Exclusive", reset="true")
    scene.group("few", "limited", quota="2")
    scene.group("timed", "t")
    scene.born("x", "a__1", "b__1")
    scene.born("limited", "1", "2", "3")
    scene.born("t", "stays")
    scene.born("t", "passes", ttlMs=1_000)
    scene.asks("old", "only", "x", "**")
    scene.asks("some", "few", "limited", "1", "2")
    scene.asks("watch", "others", "limited", "3")
    scene.asks("keeps", "timed", "t", "**")
    three = rows("limited", "others", "watch", "3")
    held = rows("limited", "few", "some", "1", "2") | three
    scene.leads_to(rows("x", "only", "old", "a__1", "b__1") | held, {"x", "limited"})
    scene.asks("many", "few", "limited", "*")  # refused whole, now that all three are known
    scene.asks("new", "only", "x", "a__*")
    scene.born("x", "a__2")
    scene.asks("some", "few", "limited", "1", "2", "9")
    scene.settles(shared.job)  # a topic that comes before the request would have it refused
    scene.born("limited", "9")  # capped
    wanted = rows("x", "only", "old", "b__1") | rows("x", "only", "new", "a__1", "a__2")
    scene.leads_to(wanted | held, {"x", "limited"})
    assert eventually(lambda: len(shared.letters()) == len(before) + 2, SETTLE_SECONDS, POLL_SECONDS)
    scene.gone("limited", "1")
    scene.leads_to(rows("limited", "few", "some", "2", "9") | three, {"limited"})
    by_cause = {(update["cause"], update["liteTopic"]): update for update in streams.updates()}
    assert by_cause[Cause.EVICTED, "a__1"]["resetOffset"] is True
    assert (Cause.QUOTA_FREED, "9") in by_cause
    refused = [letter for letter in streams.dead_letters() if letter["reason"] == Reason.QUOTA_EXCEEDED]
    assert {json.loads(letter["original"]).get("clientId") for letter in refused} == {"many", None}

    for parent, topic in (("x", "b__1"), ("limited", "2")):
        scene.asks("leaves", "both", parent, topic)
    scene.leads_to(
        rows("limited", "few", "some", "2", "9") | rows("limited", "both", "leaves", "2") | three, {"limited"}
    )
    scene.asks("leaves", "both", "", action="COMPLETE_REMOVE")
    scene.timestamp = int(time.time() * 1_000) - 2 * LEASE_MS
    scene.asks("silent", "timed", "t", "**")
    stays = rows("t", "timed", "keeps", "stays")  # and `passes` has ended by itself
    scene.leads_to(rows("limited", "few", "some", "2", "9") | three | stays, {"limited", "t"})
    causes = {(update["clientId"], update["cause"]) for update in streams.updates() if update["op"] == "REMOVE"}
    assert {("leaves", Cause.UNSUBSCRIBED), ("keeps", Cause.TOPIC_EXPIRED)} <= causes
    assert eventually(
        lambda: ("silent", Cause.LEASE_EXPIRED) in {(each["clientId"], each["cause"]) for each in streams.updates()},
        SETTLE_SECONDS,
        POLL_SECONDS,
    )


def test_metrics_health_and_offsets_of_a_job_that_works(shared: Shared) -> None:
    """One topic is created twice, and one record is no event."""
    address, streams, scene = shared.job.address(), shared.streams, Scene(shared.streams)
    counted: tuple[tuple[str, dict[str, str], int], ...] = (
        ("reexpand_updates_total", {"op": "add", "cause": "TOPIC_CREATED"}, METERED),
        ("reexpand_dead_letters_total", {"reason": "not-json"}, 1),
        ("reexpand_ignored_total", {"reason": "topic-exists"}, 1),
        ("reexpand_latency_seconds_count", {}, METERED),
    )
    scene.settles(shared.job)
    before = [sample(address, name, **labels) for name, labels, _ in counted]
    scene.group("meters", "metered")
    scene.asks("c", "meters", "metered", "*")
    scene.settles(shared.job)
    scene.born("metered", *(f"t{number}" for number in range(METERED)), "t0")
    scene.send(Stream.TOPICS, b"?", "metered")
    scene.sent()

    def grown() -> list[float]:
        return [sample(address, name, **labels) - at for at, (name, labels, _) in zip(before, counted, strict=True)]

    assert eventually(lambda: all(map(ge, grown(), (more for *_, more in counted))), SETTLE_SECONDS, 0.5), grown()
    assert grown()[1:-1] == [1, 1]
    # Topics and clients of other tests may end meanwhile.
    assert sample(address, "reexpand_topics") >= METERED
    assert sample(address, "reexpand_clients") >= 1
    assert sample(address, "reexpand_latency_seconds_sum") > 0
    assert sample(address, "reexpand_shard_topics", parent="metered", shard="0") == METERED
    assert sample(address, "reexpand_micro_batch_seconds_count", phase="work") >= 1
    assert all(sample(address, "reexpand_memory_bytes", process=each) > 1e7 for each in ("driver", "jvm", "workers"))
    assert eventually(lambda: probe(f"{address}/readyz")[0] == 200, SETTLE_SECONDS, 0.5)
    assert probe(f"{address}/healthz")[1]["state"] == "ready"
    status = CliRunner().invoke(main, ["status", "--http", address.partition("//")[2], "--interval", "0", "--json"])
    found = json.loads(status.stdout)
    assert (status.exit_code, found["topics"]) == (0, sample(address, "reexpand_topics"))
    assert found["dead_letters_by_reason"]["not-json"] >= 1
    assert found["micro_batch_seconds"]["total"] > found["micro_batch_seconds"]["work"] > 0
    topic = streams.settings.topic_events
    assert eventually(lambda: sample(address, "reexpand_input_lag_records", input=topic) == 0, 60, 0.5)
    ends = streams.ends(topic, committed=False)
    group = lag_group(streams.settings.updates)
    assert eventually(
        lambda: {number: max(0, offset) for number, offset in committed(streams, group, topic).items()} == ends, 60, 0.5
    )


def test_the_first_workers_are_those_of_the_query_and_no_process_loads_pandas(shared: Shared) -> None:
    job = shared.job
    daemons = subprocess.run(["pgrep", "-P", str(job.jvm()), "-f", WORKER], capture_output=True, check=True)
    assert len(daemons.stdout.split()) == 1
    for each in (job.process.pid, *job.workers()):
        assert "numpy" in (maps := Path(f"/proc/{each}/maps").read_text())
        assert "pandas" not in maps


@pytest.mark.rule("isolation-of-entries", "missing-binding", "unknown-dialect", "invalid-entry")
def test_a_poison_record_becomes_one_dead_letter_and_harms_nothing_else(shared: Shared) -> None:
    streams, before = shared.streams, shared.streams.dead_letters()
    scene, feed = Scene(streams), streams.producer()
    scene.group("wild", "p")
    scene.settles(shared.job)
    feed.send(Stream.SUBSCRIPTIONS, request(group="wild", clientId="w", liteTopicSet=["good__*", "bad*"]), "wild")
    for number, (stream, value, _) in enumerate(POISON):
        feed.send(stream, value, "k")
        feed.send(Stream.TOPICS, events.created(f"good__{number}"), "p")
    mixed = {
        "subscriptionSet": [request(clientId=""), request(clientId="ok", liteTopicSet=["good__0"]), request(group=3)]
    }
    feed.send(Stream.SUBSCRIPTIONS, mixed, "literal")
    feed.flush()
    wanted = {Effective("p", "wild", "w", f"good__{number}") for number in range(len(POISON))}
    wanted.add(Effective("p", "literal", "ok", "good__0"))
    reasons = Counter(reason for _, _, reason in POISON)
    reasons.update([Reason.INVALID_PATTERN, Reason.BLANK_NAME, Reason.WRONG_TYPE])
    streams.becomes(wanted, {"p", "q"})

    def letters() -> list[dict[str, Any]]:
        return [letter for letter in streams.dead_letters() if letter not in before]

    eventually(lambda: len(letters()) >= sum(reasons.values()), SETTLE_SECONDS, POLL_SECONDS)
    assert Counter(letter["reason"] for letter in letters()) == reasons
    places = {json.dumps(letter["source"], sort_keys=True) for letter in letters()}
    assert len(places) == sum(reasons.values()), "two dead letters have one source"
    for letter in letters():
        assert letter["message"]
        assert letter["source"]["topic"] in streams.settings.inputs
        assert (
            letter["originalBytes"] == len(letter["original"] or "")
            or letter["truncated"]
            or (letter["originalEncoding"] == "base64")
        )


def test_both_kafka_libraries_read_what_the_job_writes(shared: Shared) -> None:
    """kafka-python sees the same keys and values as confluent-kafka, also of what the job writes back to its inputs."""
    streams, scene = shared.streams, Scene(shared.streams)
    scene.asks("c", "libraries", "read", "t")
    scene.asks("gone", "libraries", "read", "t")
    scene.asks("gone", "libraries", "", action="COMPLETE_REMOVE")
    scene.born("read", "t")
    scene.born("read", "short", ttlMs=1)
    scene.send(Stream.TOPICS, b"bad", "read")
    scene.leads_to(rows("read", "libraries", "c", "t"), {"read"})
    settings = streams.settings

    def written_back() -> set[str]:
        """Return the fields by which the job's records to its inputs are known."""
        names = (settings.clock, settings.subscription_events)
        written = [message.value() or b"" for name in names for message in streams.read(name)]
        mine = b"\n".join(value for value in written if b'"read"' in value or value.startswith(b'{"tick"'))
        return {field for field in ("tick", "alarm", "wake", "asOf") if f'"{field}"'.encode() in mine}

    assert eventually(lambda: len(written_back()) == 4, SETTLE_SECONDS, POLL_SECONDS), written_back()
    for topic in (settings.updates, settings.dead_letters, settings.clock, settings.subscription_events):
        mine = {(each.partition(), each.offset()): (each.key(), each.value()) for each in streams.read(topic)}
        found: dict[tuple[int | None, int | None], tuple[bytes, bytes]] = {}
        options = {"auto_offset_reset": "earliest", "consumer_timeout_ms": 60_000}
        with closing(KafkaConsumer(topic, bootstrap_servers=streams.bootstrap_servers, **options)) as consumer:
            while not mine.keys() <= found.keys():  # the clock ticks on
                record = next(consumer)
                found[record.partition, record.offset] = record.key, record.value
        assert {place: found[place] for place in mine} == mine


def test_damaged_records_harm_nothing_else(shared: Shared) -> None:
    """Valid records are among them, on all partitions."""
    streams, scene, random = shared.streams, Scene(shared.streams), Random(31)
    scene.group("sound", "whole", quota="-1")
    scene.asks("first", "sound", "whole", "good__*")
    wanted: set[Effective] = set()
    sent: Counter[Stream] = Counter()
    for number, (stream, value) in enumerate(mutated(random, COUNT)):
        scene.send(stream, value, str(random.randrange(9)))
        sent[stream] += 1
        if not number % ONE_IN:
            scene.born("whole", f"good__{number}")
            wanted |= rows("whole", "sound", "first", f"good__{number}")
        if not number % (ONE_IN * 20):
            scene.asks(f"c{number}", "sound", "whole", f"good__{number}")
            wanted |= rows("whole", "sound", f"c{number}", f"good__{number}")
    scene.sent()
    eventually(streams.are_read, LONG_SECONDS, POLL_SECONDS)  # 100,000 records take longer than `leads_to` waits
    scene.leads_to(wanted, {"whole"})
    scene.born("whole", "good__last")
    scene.leads_to(wanted | rows("whole", "sound", "first", "good__last"), {"whole"})
    scene.settles(shared.job)
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
