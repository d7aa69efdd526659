"""The job's query in the Spark of the tests: what it does with failures, its pace, and its end."""

import itertools
import os
import time
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.kafka.topics import configure
from streaming.oracle import Effective
from streaming.spark import job, positions, sinks
from tests.support.processes import eventually
from tests.support.running_job import SETTLE_SECONDS, Streams, last_number
from tests.support.running_query import begun
from tests.support.scene import Scene, repeated

ENOUGH = 5
"""Number of measured micro-batches after the first one."""

STOPS = int(os.environ.get("REEXPAND_STOPS", "6"))


@pytest.mark.rule("exactly-once", "failed-task")
@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_refused_record_fails_its_micro_batch_which_is_repeated(
    spark: SparkSession, streams: Streams, delivery: str
) -> None:
    settings = streams.settings.model_copy(update={"shuffle_partitions": 1, "delivery": delivery})
    scene = Scene(streams)
    with begun(spark, settings) as query:
        configure(settings.bootstrap_servers, {settings.updates: {"max.message.bytes": "200"}})
        scene.group("g", "p")
        scene.asks("c", "g", "p", "*")
        scene.born("p", "one", "two")
        scene.sent()
        with pytest.raises(StreamingQueryException, match=r"cannot be written to Kafka: .*RecordTooLarge"):
            query.awaitTermination(SETTLE_SECONDS)
    assert streams.updates() == []
    configure(settings.bootstrap_servers, {settings.updates: {"max.message.bytes": "1000000"}})
    with begun(spark, settings):
        scene.leads_to({Effective("p", "g", "c", topic) for topic in ("one", "two")}, {"p"})
    assert streams.repeated() == 0


def test_a_budget_has_who_overdraws_it_wait(spark: SparkSession) -> None:
    """Half a second of it may be used in advance, and no wait is longer than allowed."""
    jvm: Any = spark._jvm
    budget = jvm.reexpand.CpuBudget(0.5, 400)
    assert budget.spend(10.0, 0.2) == 0
    assert budget.spend(0.1, 0.2) == 0, "0.25 in advance and 0.05 earned: 0.1 is left"
    assert budget.spend(0.1, 0.25) == 200, "0.1 too much"
    assert budget.spend(0.2, 0.0) == 0, "it has waited"
    assert budget.spend(0.1, 9.0) == 400
    assert budget.spend(0.4, 0.1) == 200, "what was beyond the longest wait is forgiven"


def test_micro_batches_under_a_trickle_are_spaced(
    spark: SparkSession, streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinks, "GRACE_MS", 0)
    settings = streams.settings.model_copy(update={"shuffle_partitions": 1, "pace_cpu": 0.001})
    scene = Scene(streams)
    with begun(spark, settings) as query:
        try:
            for number in range(600):
                scene.born("p", f"t{number}")
                scene.sent()
                time.sleep(0.1)
                spans = micro_batches(query)
                if len(spans) > ENOUGH:
                    break
        finally:
            sinks.end_after_batch(query)
        assert query.awaitTermination(SETTLE_SECONDS)
    gaps = [
        later - begin - took for (begin, took), (later, _) in itertools.pairwise(spans[1:])
    ]  # the first one starts it
    assert len(gaps) == ENOUGH - 1
    assert min(gaps) >= sinks.LONGEST_WAIT_MS / 1_000 - 0.05


def test_only_large_micro_batches_compile_their_projections(spark: SparkSession, streams: Streams) -> None:
    settings = streams.settings.model_copy(update={"shuffle_partitions": 1})
    scene = Scene(streams)
    for number in range(6_000):
        scene.born("p", f"t{number}")
    scene.sent()
    with begun(spark, settings) as query:
        options = _session(query).conf()
        assert eventually(lambda: _mode(options) == "FALLBACK")
        scene.born("p", "last")
        scene.sent()
        assert eventually(lambda: _mode(options) == "NO_CODEGEN")


def _session(query: Any) -> Any:
    """Return the state of a query's session in Java."""
    return query._jsq.streamingQuery().sparkSessionForStream().sessionState()


def _mode(options: Any) -> str:
    return str(options.getConfString("spark.sql.codegen.factoryMode"))


def test_options_of_hadoop_go_to_tasks_without_their_origins(spark: SparkSession, streams: Streams) -> None:
    scene = Scene(streams)
    scene.group("g", "p")
    scene.asks("c", "g", "p", "*")
    scene.born("p", "t")
    scene.sent()
    with begun(spark, streams.settings) as query:
        scene.leads_to({Effective("p", "g", "c", "t")}, {"p"})
        sent = _session(query).newHadoopConf()
        assert sent.get("io.file.buffer.size"), "the options themselves stay"
        assert sent.getPropertySources("io.file.buffer.size") is None


EXTENSIONS = "META-INF/services/org.apache.spark.sql.SparkSessionExtensionsProvider"


def test_a_session_has_all_extensions_but_that_of_machine_learning(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "spark-mllib_of-a-user"
    file = folder / EXTENSIONS
    file.parent.mkdir(parents=True)
    file.touch()
    context: Any = spark.sparkContext
    jvm = context._jvm
    registry = getattr(getattr(jvm, "org.apache.spark.sql.catalyst.analysis.FunctionRegistry$"), "MODULE$")
    functions = registry.internal().listFunction().mkString(" ")
    assert "bloom_filter_agg" in functions
    assert "vector_to_array" not in functions
    urls = context._gateway.new_array(jvm.java.net.URL, 1)
    urls[0] = jvm.java.net.URI(folder.as_uri() + "/").toURL()
    loader = jvm.java.net.URLClassLoader(urls, jvm.Thread.currentThread().getContextClassLoader())
    assert len(jvm.java.util.Collections.list(loader.getResources(EXTENSIONS))) == 2
    (kept,) = jvm.java.util.Collections.list(jvm.reexpand.WithoutMachineLearning(loader).getResources(EXTENSIONS))
    assert kept.getPath() == str(file)


@pytest.mark.parametrize(
    ("requests", "topics", "first"),
    [(30, 300, (30, 70)), (200, 300, (50, 50)), (300, 10, (90, 10)), (40, 50, (40, 50))],
)
def test_requests_come_before_topic_events_in_half_of_a_micro_batch(
    spark: SparkSession, streams: Streams, requests: int, topics: int, first: tuple[int, int]
) -> None:
    """Or in more, if the topic events leave room. A partition in which records wait has one of them at least."""
    settings = streams.settings.model_copy(update={"max_offsets_per_trigger": 100})
    scene = Scene(streams)
    for number in range(requests):
        scene.asks(f"c{number}", "g", f"p{number % 7}", "*")
    for number in range(topics):
        scene.born(f"p{number % 7}", f"t{number}")
    scene.sent()
    beginning = positions.dump({topic: dict.fromkeys(range(3), positions.EARLIEST) for topic in settings.inputs})
    query = (
        job.read(spark, settings, beginning)
        .writeStream.format("noop")
        .option("checkpointLocation", str(streams.checkpoint / "read"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(SETTLE_SECONDS)
    ends = [orjson.loads(each["sources"][0]["endOffset"]) for each in query.recentProgress]
    read = [tuple(sum(end[name].values()) for name in settings.inputs[1:3]) for end in ends]
    assert read[0] == pytest.approx(first, abs=2), "rounded down in each of three partitions"
    assert read[-1] == (requests, topics)
    sizes = [sum(later) - sum(earlier) for earlier, later in itertools.pairwise([(0, 0), *read])]
    assert max(sizes) <= 100


def test_each_partition_advances_and_no_micro_batch_is_too_large(spark: SparkSession) -> None:
    """Whatever waits where; a partition that is new ends where Spark says."""
    jvm: Any = spark._jvm
    source, precedence = jvm.org.apache.spark.sql.kafka010.KafkaSourceOffset, jvm.reexpand.Precedence("a,b")
    serialized = jvm.org.apache.spark.sql.execution.streaming.runtime.SerializedOffset

    def offset(ends: dict[tuple[str, int], int]) -> Any:
        by_topic = {
            topic: {str(number): end for (name, number), end in ends.items() if name == topic} for topic in "abcd"
        }
        return source.apply(serialized(orjson.dumps({topic: own for topic, own in by_topic.items() if own}).decode()))

    random = Random(1)
    for _ in range(300):
        places = [(topic, number) for topic in "abcd" for number in range(random.randint(1, 3))]
        waiting = {place: random.choice([0, 1, 7, random.randrange(10 ** random.randint(1, 12))]) for place in places}
        begin = {place: random.randrange(1_000) for place in places}
        latest = {place: begin[place] + waiting[place] for place in places}
        fresh = random.choice(places)
        known = {place: at for place, at in begin.items() if place != fresh}
        planned = {**begin, fresh: begin[fresh] + min(1, waiting[fresh])}
        most = random.randint(1, 200)
        found = orjson.loads(precedence.divide(offset(known), offset(planned), offset(latest), most).json())
        read = {place: found[place[0]][str(place[1])] - begin[place] for place in places}
        assert all(0 <= read[place] <= waiting[place] for place in places)
        assert read[fresh] == planned[fresh] - begin[fresh]
        old = [place for place in known if waiting[place]]
        requests, others = ([place for place in old if (place[0] in "ab") is first] for first in (True, False))
        total = sum(waiting[place] for place in old)
        if requests and total > most:
            assert min(read[place] for place in old) >= 1
            assert sum(read[place] for place in old) <= most + len(old)
            wanted = sum(waiting[place] for place in requests), sum(waiting[place] for place in others)
            assert sum(read[place] for place in requests) >= min(wanted[0], most // 2) - len(requests)
            assert sum(read[place] for place in others) >= min(wanted[1], most // 2) - len(others)


def micro_batches(query: StreamingQuery) -> list[tuple[float, float]]:
    """Begin and duration in seconds of each micro-batch that had records, in order."""
    java: Any = query
    found = (orjson.loads(each.json()) for each in java._jsq.recentProgress())
    return [
        (datetime.fromisoformat(each["timestamp"]).timestamp(), each["durationMs"]["triggerExecution"] / 1_000)
        for each in found
        if each["numInputRows"]
    ]


@pytest.mark.rule("orderly-stop")
@pytest.mark.parametrize(
    "given",
    [
        pytest.param({}, id="a budget of CPU"),
        pytest.param({"pace_cpu": 0.0}, id="no budget", marks=pytest.mark.long),
        pytest.param({"trigger_interval_ms": 60_000}, id="a trigger interval", marks=pytest.mark.long),
    ],
)
def test_a_query_that_is_to_end_leaves_no_micro_batch_to_be_repeated(
    spark: SparkSession, streams: Streams, given: dict[str, float]
) -> None:
    """Nor does it wait for its trigger. Spark itself would interrupt a micro-batch that is being planned."""
    settings = streams.settings.model_copy(update={"shuffle_partitions": 1, **given})
    scene, random, left = Scene(streams), Random(1), []

    def step(number: int) -> None:
        scene.born("p", f"t{number}")
        scene.sent()

    with repeated(step, 0.02):
        for stop in range(STOPS):
            with begun(spark, settings) as query:
                time.sleep(random.uniform(0.5, 2.5))
                sinks.end_after_batch(query)
                assert query.awaitTermination(30)
            planned, committed = (last_number(streams.checkpoint / "query" / name) for name in ("offsets", "commits"))
            if planned != committed:
                left.append((stop, planned, committed))
    assert left == []
