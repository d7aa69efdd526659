"""Delivery exactly once and at least once: no record is lost if Kafka refuses it."""

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from streaming.kafka.topics import configure
from streaming.oracle import Effective
from tests.support.running_job import SETTLE_SECONDS, Streams
from tests.support.running_query import begun
from tests.support.scene import Scene


@pytest.mark.rule("exactly-once")
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
