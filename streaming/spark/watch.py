"""Watch on the Kafka topics of a running job, which a deleted or recreated topic ends."""

import time
from collections.abc import Collection, Mapping

from pyspark.sql import SparkSession

from streaming.config import Settings
from streaming.errors import JobFailed, KafkaUnavailable, ReexpandError
from streaming.kafka import facts
from streaming.kafka.facts import NotedTopic
from streaming.spark import checkpoint
from streaming.spark.failures import explained
from streaming.spark.kafka_admin import KafkaAdmin, TopicIds

LOOK_SECONDS = 5
"""Time between two checks of the topics."""


class TopicWatch:
    """Watch on the topics of a job.

    Spark compares offsets only: if a recreated topic has grown past them, it would read on in the middle. `look`
    requests the ids at intervals, without waiting.
    """

    def __init__(
        self, spark: SparkSession, settings: Settings, admin: KafkaAdmin, topics: Mapping[str, NotedTopic]
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._admin = admin
        self._topics = topics
        self._names = [topic.name for role, topic in topics.items() if role != "dead_letters"]
        self._asked: TopicIds | None = None
        self._absent: set[str] = set()
        self._next = time.monotonic() + LOOK_SECONDS

    def look(self) -> None:
        """Compare the topics with the topics at the start, if a check is due.

        A topic that seems not to exist is checked twice: a broker that has just started may not list it yet.

        Raises:
            TopicReplaced: a topic was deleted or recreated.
            JobFailed: the clock topic was deleted or recreated; the next start goes on with a new topic.
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
        self._check(found, absent & self._absent)
        self._absent = absent

    def explain(self, failure: str) -> ReexpandError:
        """Return the reason why the query has failed, given Spark's text."""
        settings = self._settings
        try:
            found = self._admin.ids(self._names)
            self._check(found, set(self._names) - found.keys())
            progress = checkpoint.progress(self._spark, settings)
            facts.check_unread(settings, progress.read, *self._admin.spans(facts.events(settings)))
        except KafkaUnavailable:
            pass
        except ReexpandError as error:
            return error
        return JobFailed(explained(failure, settings))

    def _check(self, found: Mapping[str, str], absent: Collection[str]) -> None:
        facts.check_identity(self._settings, self._topics, found, absent)
        clock = self._topics["clock"]
        if clock.name in absent or found.get(clock.name, clock.id) != clock.id:
            raise JobFailed(
                f"the topic {clock.name} was deleted, or created anew, while the job ran. Start the job again: "
                "it makes the topic anew, and nothing is lost."
            )
