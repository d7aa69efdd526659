"""A watch on the Kafka topics of a running job: a topic that is deleted or created anew ends it."""

import time
from collections.abc import Mapping
from typing import Self

from pyspark.sql import SparkSession

from streaming.config import Settings
from streaming.errors import JobFailed, KafkaUnavailable, ReexpandError
from streaming.kafka import facts
from streaming.kafka.facts import NotedTopic
from streaming.spark import checkpoint
from streaming.spark.kafka_admin import KafkaAdmin, TopicIds

LOOK_SECONDS = 5
"""Time between two looks at the topics."""


class TopicWatch:
    """Watch on the topics of a job, as a context manager.

    Spark compares offsets only: of a topic that was created anew and has grown past them, it would read on in the
    middle. `look` asks for the ids now and then, and waits for nothing.
    """

    def __init__(self, spark: SparkSession, settings: Settings, topics: Mapping[str, NotedTopic]) -> None:
        self._spark = spark
        self._settings = settings
        self._topics = topics
        self._names = [topics[role].name for role in topics if role not in facts.DISPENSABLE]
        self._admin = KafkaAdmin(spark, settings)
        self._asked: TopicIds | None = None
        self._absent: set[str] = set()
        self._next = time.monotonic() + LOOK_SECONDS

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._admin.__exit__()

    def look(self) -> None:
        """Compare the topics with those of the start, if it is time to.

        A topic that seems not to exist is looked at twice: a broker that has just started may not know it yet.

        Raises:
            TopicReplaced: a topic does not exist any more, or is another one.
        """
        if self._asked is None:
            if time.monotonic() >= self._next:
                self._next = time.monotonic() + LOOK_SECONDS
                self._asked = self._admin.asked(self._names)
            return
        if not self._asked.arrived():
            return
        asked, self._asked = self._asked, None
        try:
            found = asked.ids()
        except KafkaUnavailable:  # Spark waits for the broker as well
            return
        absent = set(self._names) - found.keys()
        facts.check_identity(self._settings, self._topics, found, absent & self._absent)
        self._absent = absent

    def explain(self, failure: str) -> ReexpandError:
        """Return the reason why the query has failed, given Spark's text."""
        settings = self._settings
        try:
            found = self._admin.ids(self._names)
            facts.check_identity(settings, self._topics, found, set(self._names) - found.keys())
            progress = checkpoint.progress(self._spark, settings)
            facts.check_unread(settings, progress.read, *self._admin.ends(facts.events(settings)))
        except KafkaUnavailable:
            return JobFailed(failure)
        except ReexpandError as error:
            return error
        return JobFailed(failure)
