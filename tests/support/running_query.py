"""The job's query in the Spark of a test, without the supervisor loop."""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.config import Settings
from streaming.spark import checkpoint
from streaming.spark.kafka_admin import KafkaAdmin
from streaming.spark.lease import Lease
from streaming.spark.query import Start, begin


@contextmanager
def begun(spark: SparkSession, settings: Settings, *, accept_topics: bool = False) -> Iterator[StreamingQuery]:
    """Run the query as the holder of the checkpoint, and interrupt it at the end if it still runs."""
    agreed = checkpoint.agree(spark, settings)
    with KafkaAdmin(spark, settings) as admin, Lease(spark, settings, agreed.checkpoint_id) as lease:
        start = Start(spark, settings, admin, lease, agreed)
        (query, _), _ = begin(start, {}, accept_topics=accept_topics)
        try:
            yield query
        finally:
            query.stop()
