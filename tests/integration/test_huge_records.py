"""Records that Kafka's consumer cannot read within Java's memory: the job reads their beginning, and goes on."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows

from streaming.kafka.options import read_options
from streaming.oracle import Effective
from streaming.records.model import Reason, Stream
from streaming.spark import job, positions
from streaming.spark.route import BEGINNING_BYTES, longest_value
from tests.support.brokers import SharedBroker, StartBroker
from tests.support.events import created, encoded
from tests.support.guarded_streams import GuardedStreams
from tests.support.processes import eventually
from tests.support.running_job import Job, Streams, running
from tests.support.scene import Scene
from tests.support.verbs import assert_verified

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LARGEST_BATCH = 20_000_000
HUGE_BYTES = 400_000_000
LONGEST_SECONDS = 120
"""Longest time for which one record may stop the service."""
RECORDS = 30_000


@pytest.fixture(params=["CreateTime", "LogAppendTime"])
def mixed(request: pytest.FixtureRequest, broker: SharedBroker, tmp_path: Path) -> Streams:
    """Topics with records of all kinds in one partition, some of them in transactions that were aborted."""
    config = {"max.message.bytes": str(LARGEST_BATCH), "message.timestamp.type": request.param}
    streams = Streams(broker.bootstrap_servers, tmp_path / "checkpoint").create(1, config)
    topic, bound = streams.settings.topic_events, longest_value(streams.settings)
    for number, codec in enumerate(CODECS):
        for aborts in (False, True, False):
            producer = batching(streams, {"transactional.id": uuid4().hex, "compression.type": codec})
            producer.init_transactions(30)
            producer.begin_transaction()
            for size in (None, 0, 100, bound, bound + 1, 70_000, 3 * bound, 5):
                value = None if size is None else (f"{codec} {aborts} " * (size // 8 + 1)).encode()[:size]
                headers: list[tuple[str, str | bytes | None]] = [("h", b"x" * 300), ("none", None)]
                producer.produce(topic, value, "k" * 100_000, headers=headers, timestamp=1_700_000_000_000 + number)
            assert producer.flush(60) == 0
            producer.abort_transaction(30) if aborts else producer.commit_transaction(30)
    return streams


def batching(streams: Streams, options: dict[str, Any]) -> Producer:
    sizes = {"message.max.bytes": 1_000_000_000, "batch.size": 2_000_000_000, "linger.ms": 10_000}
    return Producer({"bootstrap.servers": streams.bootstrap_servers, **sizes, **options})


@pytest.mark.parametrize("per_trigger", [3, 1_000])
def test_the_bounded_source_reads_what_the_other_one_reads(
    spark: SparkSession, mixed: Streams, per_trigger: int
) -> None:
    """Except that values beyond all bounds are cut; micro-batches begin and end within batches of Kafka."""
    whole, cut = (read(spark, mixed, per_trigger, bounded=bounded) for bounded in (False, True))
    assert len(whole) == len(CODECS) * 2 * 8
    assert cut == whole


@pytest.mark.parametrize("bounded", [False, True])
def test_the_values_of_a_micro_batch_are_bounded(
    spark: SparkSession, mixed: Streams, *, bounded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever their batches of Kafka compress, except a single value beyond the bound."""
    budget, longest = 1_200_000, longest_value(mixed.settings)
    records = read(spark, mixed, 1_000, bounded=bounded)
    monkeypatch.setattr(job, "read", partial(job.read, budget=budget))
    ends: list[int] = []
    assert read(spark, mixed, 1_000, bounded=bounded, ends=ends) == records
    costs = {offset: size if size <= longest else BEGINNING_BYTES for _, _, offset, *_, size in records}
    spent = [[cost for offset, cost in costs.items() if first <= offset < end] for first, end in pairwise((0, *ends))]
    assert sum(map(len, spent)) == len(records)
    assert all(sum(each) <= budget for each in spent)
    assert len([each for each in spent if len(each) > 1]) >= len(CODECS)


def read(
    spark: SparkSession, streams: Streams, per_trigger: int, *, bounded: bool, ends: list[int] | None = None
) -> list[tuple[Any, ...]]:
    """Return the records that a source reads, values beyond all bounds as their size and their beginning.

    The offsets of the topic events at which micro-batches end are added to `ends`.
    """
    settings = streams.settings.model_copy(update={"max_offsets_per_trigger": per_trigger})
    beginning = positions.dump({topic: {0: positions.EARLIEST} for topic in settings.inputs})
    records = job.read(spark, settings, beginning, bounded=bounded)
    size = F.coalesce(F.length("value"), F.lit(0)) if not bounded else F.col("size")
    is_long = size > longest_value(settings)
    value = F.md5(F.when(is_long, F.substring("value", 1, BEGINNING_BYTES)).otherwise(F.col("value")))
    name = f"read_{uuid4().hex}"
    query = (
        records.select("topic", "partition", "offset", "timestamp", value.alias("value"), size.alias("size"))
        .writeStream.format("memory")
        .queryName(name)
        .option("checkpointLocation", str(streams.checkpoint / name))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(LONGEST_SECONDS)
    if ends is not None:
        progress = [json.loads(each["sources"][0]["endOffset"]) for each in query.recentProgress]
        ends += [each[settings.topic_events]["0"] for each in progress]
    return sorted(tuple(row) for row in spark.table(name).collect())


def test_the_bounded_source_reads_with_a_password_and_the_least_permissions(
    spark: SparkSession, guarded: GuardedStreams
) -> None:
    guarded.streams.write(guarded.streams.settings.topic_events, (b"", encoded(created())))
    options = guarded.user("job")
    streams = Streams(guarded.address, guarded.streams.checkpoint, guarded.streams.prefix)
    streams.settings = streams.settings.model_copy(update={"kafka_options": options})
    assert len(read(spark, streams, 10, bounded=True)) == 1


@pytest.mark.parametrize("bounded", [False, True])
def test_the_source_reads_with_a_delegation_token(
    spark: SparkSession, guarded: GuardedStreams, tmp_path: Path, *, bounded: bool
) -> None:
    """Also where it looks at the sizes of values to plan, which it does for more than 250 records."""
    guarded.streams.write(guarded.streams.settings.topic_events, *[(b"", encoded(created()))] * 300)
    login, options = read_options(guarded.user("job")), tmp_path / "without-login.properties"
    options.write_text("\n".join(f"{key}={value}" for key, value in login.items() if key.startswith("ssl.truststore")))
    streams = Streams(guarded.address, guarded.streams.checkpoint, guarded.streams.prefix)
    streams.settings = streams.settings.model_copy(update={"kafka_options": options})
    with spark_token(spark, guarded.address, login):
        assert len(read(spark, streams, 1_000, bounded=bounded)) == 300


@contextmanager
def spark_token(spark: SparkSession, address: str, login: dict[str, str]) -> Iterator[None]:
    """Let Spark use a token of a broker for a while, as its token provider does."""
    jvm: Any = spark._jvm
    text, service = jvm.org.apache.hadoop.io.Text, "kafka.server.delegation.token.tested"
    admin = jvm.org.apache.kafka.clients.admin.Admin.create({"bootstrap.servers": address, **login})
    token = admin.createDelegationToken().delegationToken().get()
    admin.close()
    names = token.tokenInfo().tokenId().encode(), token.hmacAsBase64String().encode()
    kept = jvm.org.apache.hadoop.security.token.Token(*names, text("KAFKA_DELEGATION_TOKEN"), text(service))
    jvm.org.apache.hadoop.security.UserGroupInformation.getCurrentUser().addToken(text(service), kept)
    conf, cluster = jvm.org.apache.spark.SparkEnv.get().conf(), "spark.kafka.clusters.tested."
    conf.set(f"{cluster}auth.bootstrap.servers", address)
    conf.set(f"{cluster}target.bootstrap.servers.regex", address)
    yield
    conf.set(f"{cluster}target.bootstrap.servers.regex", "none")


@pytest.mark.long
def test_the_bounded_source_outlives_a_restart_of_the_broker(
    spark: SparkSession, own_broker: StartBroker, tmp_path: Path
) -> None:
    """It reads all records once, whatever task the broker leaves."""
    server = own_broker(tmp_path / "kafka")
    streams = Streams(server.bootstrap_servers, tmp_path / "checkpoint").create(3)
    producer = streams.producer()
    for number in range(RECORDS):
        producer.send(Stream.TOPICS, encoded(created(str(number))), str(number))
    producer.flush()
    settings = streams.settings.model_copy(update={"max_offsets_per_trigger": RECORDS // 30})
    beginning = positions.dump({topic: dict.fromkeys(range(3), positions.EARLIEST) for topic in settings.inputs})
    query = (
        job.read(spark, settings, beginning, bounded=True)
        .selectExpr("cast(value as string) value")
        .writeStream.format("memory")
        .queryName("outage")
        .option("checkpointLocation", str(streams.checkpoint / "outage"))
        .start()
    )

    def has_read(count: int) -> bool:
        return spark.table("outage").count() >= count

    try:
        for number in (1, 2):
            assert eventually(partial(has_read, number * RECORDS // 3), LONGEST_SECONDS, 0.2)
            server.kill()
            time.sleep(3)
            server.start()
        assert eventually(partial(has_read, RECORDS), LONGEST_SECONDS, 1)
        query.processAllAvailable()
    finally:
        query.stop()
    found = sorted(json.loads(row.value)["liteTopic"] for row in spark.table("outage").collect())
    assert found == sorted(map(str, range(RECORDS)))


@pytest.mark.rule("huge-record")
@pytest.mark.long
def test_a_huge_value_in_a_small_batch_is_a_dead_letter(streams: Streams, tmp_path: Path) -> None:
    """Its batch of 0.4 MB has other records before and behind it, which are applied."""
    scene, log = Scene(streams), tmp_path / "job.log"
    scene.group("g", "p", quota="-1")
    scene.asks("c", "g", "p", "*")
    scene.born("p", "first")
    wanted = {Effective("p", "g", "c", "first")}
    with running(streams, log) as job:
        scene.leads_to(wanted, {"p"})
        begun = time.monotonic()
        in_one_batch(streams, encoded(created("before")), huge(), encoded(created("behind")))
        assert_no_room(job)
    with running(streams, log) as job:
        wanted |= {Effective("p", "g", "c", topic) for topic in ("before", "behind")}
        scene.leads_to(wanted, {"p"})
        assert time.monotonic() - begun < LONGEST_SECONDS
        assert "read with bounded memory" in job.said()
        in_one_batch(streams, huge(), encoded(created("later")))  # does no harm any more
        wanted |= {Effective("p", "g", "c", "later")}
        scene.leads_to(wanted, {"p"})
        scene.born("p", "next")
        wanted |= {Effective("p", "g", "c", "next")}
        scene.leads_to(wanted, {"p"})
        scene.settles(job)
        job.kill()
    job.forget_last_commit()
    with running(streams, log) as job:
        scene.born("p", "last")
        scene.leads_to(wanted | {Effective("p", "g", "c", "last")}, {"p"})
        scene.settles(job)
    letters = streams.dead_letters()
    assert [(each["reason"], each["originalBytes"]) for each in letters] == [(Reason.VALUE_TOO_LARGE, HUGE_BYTES)] * 2
    assert streams.repeated() == 0
    assert_verified(streams)


def assert_no_room(job: Job) -> None:
    assert job.process.wait(LONGEST_SECONDS) == 1
    assert "had no room" in job.said()


def huge() -> bytes:
    """Return a topic event that is far too large, and nearly empty to gzip."""
    event = encoded(created("huge"))
    return event[:-1] + b" " * (HUGE_BYTES - len(event)) + event[-1:]


def in_one_batch(streams: Streams, *values: bytes) -> None:
    producer = batching(streams, {"compression.type": "gzip", "message.timeout.ms": 120_000})
    for value in values:
        producer.produce(streams.settings.topic_events, value, partition=0)
    assert producer.flush(LONGEST_SECONDS) == 0
