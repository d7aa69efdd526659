"""Questions to a running job over Kafka: a record in the clock topic, and its answers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import orjson
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from streaming.errors import InspectError, QuestionRefused, Unanswered
from streaming.kafka.clients import concerns_group, create, reason, writing
from streaming.kafka.options import for_librdkafka
from streaming.kafka.permissions import readable, writable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from streaming.config import Settings
    from streaming.worker.inquiry.questions import Question

ANSWER_SECONDS: Final = 10.0
"""Time in seconds to wait for an answer; under load a micro-batch may take seconds."""

_KAFKA_SECONDS: Final = 10.0
_PLACE_FIELDS: Final = {"stream", "partition", "offset", "entry"}

Key = tuple[str, int]
"""A parent and the number of a shard; a blank parent for the coordinator."""


class KeyAnswer(NamedTuple):
    """Answer of one key.

    Attributes:
        value: the answer, as JSON.
        shards: number of shards of the parent.
        depth: number of leading segments of a topic that select its shard.
    """

    value: Any
    shards: int = 1
    depth: int = 1


class Inquirer:
    """Client that sends questions to a job, as a context manager. Not thread-safe.

    Args:
        settings: addresses, topics and client options; the checkpoint is ignored.
        timeout: time in seconds to wait for answers.
    """

    def __init__(self, settings: Settings, timeout: float = ANSWER_SECONDS) -> None:
        self._settings = settings
        self._timeout = timeout
        self._trouble = ""
        options: dict[str, Any] = {
            "log_level": 0,
            **for_librdkafka(settings),
            "bootstrap.servers": settings.bootstrap_servers,
            "error_cb": self._remember,
        }
        self._producer = create(Producer, {**options, "linger.ms": 0})
        self._consumer = create(
            Consumer,
            {
                **options,
                "group.id": "reexpand-inspect",  # required, but unused: partitions are assigned by hand
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "latest",
                "fetch.wait.max.ms": 20,
            },
        )
        self._follows = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def ask(self, question: Question, keys: Collection[Key]) -> dict[Key, KeyAnswer]:
        """Send a question to keys, and return their answers.

        Args:
            question: the question, with a new id.
            keys: keys that should answer; the coordinator's buckets must be queried together.

        Raises:
            Unanswered: an answer is missing after the timeout.
            QuestionRefused: the job rejected the question, with a reason.
            InspectError: Kafka cannot be read or written.
        """
        self._follow()
        shards = sorted(key for key in keys if key[0])
        records = [question.for_shard(*key) for key in shards]
        if len(shards) < len(keys):
            records.append(question.for_coordinator())
        topic = self._settings.clock
        with writing(self._producer, topic, lambda why: self._unusable(f"the topic {topic} cannot be written: {why}")):
            refused: list[KafkaError] = []
            for record in records:
                self._producer.produce(
                    topic, key=record.key, value=record.value,
                    on_delivery=lambda error, _: refused.append(error) if error else None,
                )  # fmt: skip
            if self._producer.flush(_KAFKA_SECONDS):
                raise self._unusable(f"Kafka takes no record: {self._trouble or 'no broker answers'}")
            if refused:
                raise self._unusable(f"the topic {topic} cannot be written: {reason(refused[0], writable(topic))}")
        return self._answers(question.id, set(keys))

    def _follow(self) -> None:
        """Start to read at the end of the answers."""
        if self._follows:
            return
        topic = self._settings.answers
        try:
            described = self._consumer.list_topics(topic, timeout=_KAFKA_SECONDS).topics[topic]
            if described.error is not None and described.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise Unanswered(
                    f"{self._settings.bootstrap_servers} has no topic {topic}: no job of this release has run here, or "
                    "it may not create the topic; `reexpand topics` creates it, and the job's next start uses it"
                )
            if described.error is not None:
                why = reason(described.error, readable(topic))
                raise self._unusable(f"the topic {topic} cannot be read: {why}")
            partitions = [TopicPartition(topic, number) for number in described.partitions]
            ends = [self._consumer.get_watermark_offsets(each, timeout=_KAFKA_SECONDS)[1] for each in partitions]
        except KafkaException as error:
            self._consumer.poll(0)
            raise self._unusable(self._trouble or reason(error, readable(topic))) from None
        self._consumer.assign(
            [TopicPartition(topic, each.partition, end) for each, end in zip(partitions, ends, strict=True)]
        )
        self._follows = True

    def _answers(self, name: str, missing: set[Key]) -> dict[Key, KeyAnswer]:
        found: dict[Key, KeyAnswer] = {}
        deadline = time.monotonic() + self._timeout
        wanted = name.encode()
        while missing:
            message = self._consumer.poll(max(0.0, min(0.5, deadline - time.monotonic())))
            if message is not None and message.error() is None and message.key() == wanted:
                value = orjson.loads(message.value() or b"{}")
                if "error" in value:
                    raise QuestionRefused(f"the job cannot answer: {value['error']}")
                key = value["parent"], value["shard"]
                answer = _placed(value["answer"], value["topics"])
                found[key] = KeyAnswer(answer, value.get("shards", 1), value.get("depth", 1))
                missing.discard(key)
            elif time.monotonic() > deadline:
                raise Unanswered(
                    f"no job has answered within {self._timeout:g} s over {self._settings.clock} and "
                    f"{self._settings.answers} at {self._settings.bootstrap_servers}. "
                    + (self._trouble or "Check that `reexpand run` of this release runs on these topics")
                    + "; --timeout gives a busy job more time"
                )
        return found

    def _remember(self, error: KafkaError) -> None:
        if not concerns_group(error):
            self._trouble = error.str()

    def _unusable(self, why: str) -> InspectError:
        return InspectError(f"Kafka at {self._settings.bootstrap_servers} cannot be used: {why.rstrip('.')}.")


def _placed(value: Any, topics: Mapping[str, str]) -> Any:
    """Return an answer with Kafka topics instead of streams."""
    if isinstance(value, list):
        return [_placed(each, topics) for each in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == _PLACE_FIELDS:
        return {**value, "stream": topics.get(value["stream"], value["stream"])}
    return {name: _placed(each, topics) for name, each in value.items()}
