"""Follower of new updates, with filters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import orjson
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from matcher.dialects import get_dialect
from streaming.errors import TopicMissing, TopicUnreadable
from streaming.kafka.clients import PARTITION_END, concerns_group, create, reason
from streaming.kafka.options import for_librdkafka
from streaming.kafka.permissions import readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streaming.config import Settings
    from streaming.worker.inquiry.model import EventPlace

_KAFKA_SECONDS: Final = 10.0
_AT_ONCE: Final = 1_000
"""Number of records that are polled at once."""

_POLL_SECONDS: Final = 0.2


class Chosen(NamedTuple):
    """Selection of updates; None for any.

    Attributes:
        topic: pattern of lite topics, or a name.
        dialect: dialect of the pattern.
        op: ADD or REMOVE.
        source: event that caused the update; its entry is ignored.
    """

    parent: str | None = None
    group: str | None = None
    client: str | None = None
    topic: str | None = None
    dialect: str = "lite"
    op: str | None = None
    source: EventPlace | None = None

    def predicate(self) -> Callable[[dict[str, Any]], bool]:
        """Return the predicate of chosen updates.

        Raises:
            InvalidPattern: the pattern is invalid in its dialect.
            UnknownDialect: no dialect has this name.
        """
        names = {"parentTopic": self.parent, "group": self.group, "clientId": self.client, "op": self.op}
        wanted = {field: name for field, name in names.items() if name is not None}
        text, source = self.topic, self.source
        dialect = get_dialect(self.dialect)
        pattern = None if text is None else dialect.parse(text)

        def accepts(update: dict[str, Any]) -> bool:
            if any(update.get(field) != name for field, name in wanted.items()):
                return False
            name = str(update.get("liteTopic"))
            if pattern is not None and name != text and not dialect.matches(pattern, name):
                return False
            return source is None or _place(update) == (source.stream, source.partition, source.offset)

        return accepts


class UpdatesFollower:
    """Follower of the updates topic, as a context manager. It commits no offsets and joins no group.

    Args:
        settings: addresses, topics and client options.
        from_beginning: start with the first stored update instead of after the last.
    """

    def __init__(self, settings: Settings, *, from_beginning: bool = False) -> None:
        self._topic = settings.updates
        self._servers = settings.bootstrap_servers
        self._trouble = ""
        given: dict[str, Any] = {
            "log_level": 0,
            **for_librdkafka(settings),
            "bootstrap.servers": settings.bootstrap_servers,
            "group.id": "reexpand-tail",  # required, but unused: partitions are assigned by hand
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "error_cb": self._remember,
        }
        self._consumer = create(Consumer, given)
        try:
            self._partitions = self._assign(from_beginning=from_beginning)
        except BaseException:
            self._consumer.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def updates(self, chosen: Chosen, *, to_end: bool = False) -> Iterator[dict[str, Any]]:
        """Yield the chosen updates, without tombstones and invalid records.

        Args:
            chosen: selection.
            to_end: stop at the end of the topic instead of waiting.
        """
        accepts = chosen.predicate()
        # An end that was reached before this call may still be in the client's queue, so the offset of an end counts.
        ends = self._ends() if to_end else {}
        open_partitions = set(self._partitions)
        while open_partitions:
            for message in self._consumer.consume(_AT_ONCE, timeout=_POLL_SECONDS):
                error, number = message.error(), message.partition() or 0
                if error is not None and concerns_group(error):
                    continue
                if error is not None and error.code() != PARTITION_END:
                    raise self._unreadable(reason(error, readable(self._topic)))
                update = None if error is not None or not message.value() else _update(message.value() or b"")
                if update is not None and accepts(update):
                    yield update
                read = (message.offset() or 0) + (error is None)
                if to_end and read >= ends[number]:
                    open_partitions.discard(number)

    def _ends(self) -> dict[int, int]:
        """Return the offset after the last committed record of each partition."""
        try:
            return {
                number: self._consumer.get_watermark_offsets(TopicPartition(self._topic, number), _KAFKA_SECONDS)[1]
                for number in self._partitions
            }
        except KafkaException as error:
            raise self._unreadable(self._trouble or reason(error, readable(self._topic))) from None

    def _assign(self, *, from_beginning: bool) -> set[int]:
        """Start to read all partitions, and return their numbers."""
        try:
            described = self._consumer.list_topics(self._topic, timeout=_KAFKA_SECONDS).topics[self._topic]
            if described.error is not None and described.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise TopicMissing(
                    f"{self._servers} has no topic {self._topic}; `reexpand topics` creates what is missing"
                )
            if described.error is not None:
                raise self._unreadable(reason(described.error, readable(self._topic)))
            partitions = [TopicPartition(self._topic, number) for number in described.partitions]
            spans = [self._consumer.get_watermark_offsets(each, timeout=_KAFKA_SECONDS) for each in partitions]
        except KafkaException as error:
            self._consumer.poll(0)
            raise self._unreadable(self._trouble or reason(error, readable(self._topic))) from None
        starts = [low if from_beginning else high for low, high in spans]
        self._consumer.assign(
            [TopicPartition(self._topic, each.partition, at) for each, at in zip(partitions, starts, strict=True)]
        )
        return {each.partition for each in partitions}

    def _remember(self, error: KafkaError) -> None:
        if not concerns_group(error):
            self._trouble = error.str()

    def _unreadable(self, why: str) -> TopicUnreadable:
        return TopicUnreadable(f"the topic {self._topic} at {self._servers} cannot be read: {why.rstrip('.')}.")


def _update(value: bytes) -> dict[str, Any] | None:
    try:
        found = orjson.loads(value)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) and "op" in found else None


def _place(update: dict[str, Any]) -> tuple[Any, Any, Any]:
    source = update.get("source") or {}
    return source.get("topic"), source.get("partition"), source.get("offset")
