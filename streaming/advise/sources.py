"""Sources of the records: the job's input topics, or files."""

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO

import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from streaming.advise.inventory import InputRecord, Inventory
from streaming.errors import ConfigInvalid, InputsUnreadable
from streaming.events.model import BIND_TOPIC, WILDCARD, Action, Place, Stream, check_name
from streaming.kafka.clients import create, reason

if TYPE_CHECKING:
    from streaming.config import Settings

Progress = Callable[[int, int | None, str], None]
"""Callback with the number of records read, their total (None: not known), and the stream."""

_RECORDS_AT_ONCE = 10_000
_ANSWER_SECONDS = 10.0
_SILENCE_SECONDS = 30.0
"""Longest pause while a topic is read, in seconds."""

_END = KafkaError._PARTITION_EOF  # noqa: SLF001 - its only name


def from_kafka(settings: "Settings", options: Mapping[str, str], inventory: Inventory, progress: Progress) -> None:
    """Read the job's input topics from their beginning to their present end.

    Args:
        settings: address of Kafka, and the names of the topics.
        options: further client options, in the names of librdkafka.
        inventory: destination of the records.
        progress: called after each part.

    Raises:
        ConfigInvalid: an option is not valid.
        InputsUnreadable: Kafka does not answer, or a topic does not exist.
    """
    kafka = _Kafka(settings.bootstrap_servers, options)
    try:
        for stream, topic in zip(_STREAMS, settings.inputs, strict=False):  # ticks play no part
            done = 0
            for records, total in kafka.read(topic):
                inventory.feed(stream, records)
                done += len(records)
                progress(done, total, stream)
    finally:
        kafka.close()


_STREAMS = (Stream.GROUPS, Stream.SUBSCRIPTIONS, Stream.TOPICS)


class _Kafka:
    """Reader of whole topics."""

    def __init__(self, bootstrap_servers: str, options: Mapping[str, str]) -> None:
        self._servers = bootstrap_servers
        self._reason = ""
        given: dict[str, Any] = {
            **options,
            "bootstrap.servers": bootstrap_servers,
            "group.id": "reexpand-advise",  # required, but unused: partitions are assigned by hand
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": 0,
            "error_cb": self._remember,
        }
        self._consumer = create(Consumer, given)

    def close(self) -> None:
        self._consumer.close()

    def read(self, topic: str) -> Iterator[tuple[list[InputRecord], int]]:
        """Yield the records of a topic, in order within a partition, and their approximate total."""
        try:
            partitions, total = self._partitions(topic)
            self._consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        except KafkaException as error:
            self._consumer.poll(0)  # fetches an error with more detail than "timed out"
            raise self._unreadable(topic, self._reason or reason(error)) from None
        unread = set(partitions)
        deadline = time.monotonic() + _SILENCE_SECONDS
        while unread:
            records: list[InputRecord] = []
            for message in self._consumer.consume(_RECORDS_AT_ONCE, timeout=0.2):
                deadline = time.monotonic() + _SILENCE_SECONDS
                failed, number = message.error(), message.partition() or 0
                if failed is None:
                    records.append((Place(number, message.offset() or 0, message.timestamp()[1]), message.value()))
                elif failed.code() == _END:
                    unread.discard(number)
                else:
                    raise self._unreadable(topic, failed.str())
            if records:
                yield records, total
            if time.monotonic() > deadline:
                raise self._unreadable(topic, self._reason or f"no record arrives within {_SILENCE_SECONDS:g} s")

    def _partitions(self, topic: str) -> tuple[list[int], int]:
        found = self._consumer.list_topics(topic, timeout=_ANSWER_SECONDS).topics[topic]
        if found.error is not None and found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise InputsUnreadable(f"{self._servers} has no topic {topic}; `reexpand topics` creates what is missing")
        if found.error is not None:
            raise self._unreadable(topic, found.error.str())
        total = 0
        for number in found.partitions:
            low, high = self._consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=_ANSWER_SECONDS)
            total += high - low
        return list(found.partitions), total

    def _remember(self, error: KafkaError) -> None:
        self._reason = error.str()

    def _unreadable(self, topic: str, why: str) -> InputsUnreadable:
        return InputsUnreadable(
            f"the topic {topic} of {self._servers} cannot be read: {why}. "
            "Check the address and the client options, and that the broker runs."
        )


def from_files(topics: BinaryIO, patterns: BinaryIO | None, inventory: Inventory, progress: Progress) -> None:
    """Read a topic event a line, and a subscription event a line.

    The groups of the entries are unknown, so the entries count as patterns.
    """
    for stream, file in ((Stream.SUBSCRIPTIONS, patterns), (Stream.TOPICS, topics)):
        for records, done in () if file is None else _records(file):
            inventory.feed(stream, records)
            progress(done, None, stream)


def from_plain_files(
    parent: str, topics: BinaryIO, patterns: BinaryIO | None, inventory: Inventory, progress: Progress
) -> None:
    """Read a topic of a parent a line, and a pattern of one client a line, in the dialect `lite`.

    Raises:
        ConfigInvalid: the name of the parent is not valid, or a line is not UTF-8.
    """
    problem = check_name("--parent", parent)
    if problem is not None:
        raise ConfigInvalid(problem)
    if patterns is not None:
        texts = [text for records, _ in _records(patterns) for text in map(_text_of, records)]
        if texts:  # an empty set would ask for everything
            group = {"group": "advise", "attributes": {BIND_TOPIC: parent, WILDCARD: "true"}}
            request = {
                "action": Action.COMPLETE_ADD,
                "clientId": "advise",
                "group": "advise",
                "topic": parent,
                "liteTopicSet": texts,
            }
            for stream, value in ((Stream.GROUPS, group), (Stream.SUBSCRIPTIONS, request)):
                inventory.feed(stream, [(Place(0, 0, 0), orjson.dumps(value))])
            progress(len(texts), None, Stream.SUBSCRIPTIONS)
    for records, done in _records(topics):
        inventory.feed(Stream.TOPICS, [(record[0], _created(parent, _text_of(record))) for record in records])
        progress(done, None, Stream.TOPICS)


def _created(parent: str, topic: str) -> bytes:
    return orjson.dumps({"event": "CREATED", "parentTopic": parent, "liteTopic": topic})


def _records(file: BinaryIO) -> Iterator[tuple[list[InputRecord], int]]:
    """Yield the nonblank lines of a file in blocks, with the number read so far; the offset is the line number."""
    now = time.time_ns() // 1_000_000
    lines = ((Place(0, number, now), line.rstrip(b"\r\n")) for number, line in enumerate(file, 1) if not line.isspace())
    done = 0
    while records := list(islice(lines, _RECORDS_AT_ONCE)):
        done += len(records)
        yield list(records), done


def _text_of(record: InputRecord) -> str:
    place, value = record
    try:
        return (value or b"").decode()
    except UnicodeDecodeError as error:
        raise ConfigInvalid(f"line {place.offset} is not UTF-8: {error.reason}") from None
