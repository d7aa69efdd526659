"""Questions to a running job over Kafka: a record in the clock topic, and its answers."""

import time
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

import orjson

from streaming.config import Settings
from streaming.errors import InspectError, QuestionRefused, TopicMissing, TopicUnreadable, Unanswered
from streaming.kafka.options import for_librdkafka
from streaming.kafka.reader import TopicReader
from streaming.kafka.writer import Writer
from streaming.records.routing import BUCKETS, COORDINATOR
from streaming.storage.journal import Key
from streaming.worker.inquiry.questions import Question

ANSWER_SECONDS: Final = 10.0
"""Time in seconds to wait for an answer; under load a micro-batch may take seconds."""

_KAFKA_SECONDS: Final = 10.0
_PLACE_FIELDS: Final = {"stream", "partition", "offset", "entry"}


BUCKET_KEYS: Final = [(COORDINATOR, number) for number in range(BUCKETS)]
"""All keys of the coordinator."""


class KeyAnswer(NamedTuple):
    """Answer of one key, with the number of shards of its parent, and of the segments that select one."""

    value: Any
    shards: int = 1
    depth: int = 1


class Inquirer:
    """Client that sends questions to a job. Not thread-safe.

    The timeout in seconds is for all answers; the checkpoint in the settings is ignored.
    """

    def __init__(self, settings: Settings, timeout: float = ANSWER_SECONDS) -> None:
        self._settings = settings
        self._timeout = timeout
        servers, options = settings.bootstrap_servers, for_librdkafka(settings)
        self._writer = Writer(servers, options, InspectError, {"linger.ms": 0, "enable.idempotence": False})
        # Answers expire: an inquirer that was idle for long goes on at their end.
        self._reader = TopicReader(servers, options, {"auto.offset.reset": "latest", "fetch.wait.max.ms": 20})
        self._follows = False

    def close(self) -> None:
        """Close the connection to Kafka."""
        self._reader.__exit__()

    def ask(self, question: Question, keys: Collection[Key]) -> dict[Key, KeyAnswer]:
        """Send a question with a new id to keys, and return their answers.

        The coordinator's buckets must be queried together.

        Raises:
            Unanswered: an answer is missing after the timeout.
            QuestionRefused: the job rejected the question, with a reason.
            InspectError: Kafka cannot be read or written.
        """
        try:
            self._follow()
            shards = sorted(key for key in keys if key[0])
            records = [question.for_shard(*key) for key in shards]
            if len(shards) < len(keys):
                records.append(question.for_coordinator())
            for record in records:
                self._writer.send(self._settings.clock, record.value, record.key)
            self._writer.flush(_KAFKA_SECONDS)
            return self._answers(question.id, set(keys))
        except TopicUnreadable as error:
            raise InspectError(str(error)) from None

    def _follow(self) -> None:
        if self._follows:
            return
        topic = self._settings.answers
        try:
            spans = self._reader.spans([topic])
        except TopicMissing:
            raise Unanswered(
                f"{self._settings.bootstrap_servers} has no topic {topic}: no job of this release has run here, or "
                "it may not create the topic; `reexpand topics` creates it, and the job's next start uses it"
            ) from None
        self._reader.start({partition: span.end for partition, span in spans.items()})
        self._follows = True

    def _answers(self, name: str, missing: set[Key]) -> dict[Key, KeyAnswer]:
        found: dict[Key, KeyAnswer] = {}
        deadline = time.monotonic() + self._timeout
        while missing:
            for message in self._reader.poll(max(0.0, min(0.5, deadline - time.monotonic()))):
                if message.key() != name.encode():
                    continue
                value = orjson.loads(message.value() or b"{}")
                if "error" in value:
                    raise QuestionRefused(f"the job cannot answer: {value['error']}")
                key = value["parent"], value["shard"]
                answer = _placed(value["answer"], value["topics"])
                found[key] = KeyAnswer(answer, value.get("shards", 1), value.get("depth", 1))
                missing.discard(key)
            if missing and time.monotonic() > deadline:
                raise Unanswered(
                    f"no job has answered within {self._timeout:g} s over {self._settings.clock} and "
                    f"{self._settings.answers} at {self._settings.bootstrap_servers}. "
                    + (self._reader.trouble or "Check that `reexpand run` of this release runs on these topics")
                    + "; a busy job may need more time"
                )
        return found


def _placed(value: Any, topics: Mapping[str, str]) -> Any:
    """Return an answer with Kafka topics instead of streams."""
    if isinstance(value, list):
        return [_placed(each, topics) for each in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == _PLACE_FIELDS:
        return {**value, "stream": topics.get(value["stream"], value["stream"])}
    return {name: _placed(each, topics) for name, each in value.items()}
