"""Sources of the records: the job's input topics, or files."""

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO

import orjson

from streaming.advise.inventory import InputRecord, Inventory
from streaming.errors import ConfigInvalid
from streaming.events.model import BIND_TOPIC, WILDCARD, Action, Place, Stream, check_name
from streaming.kafka.reader import TopicReader

if TYPE_CHECKING:
    from confluent_kafka import Message

    from streaming.config import Settings

Progress = Callable[[int, int | None, str], None]
"""Callback with the number of records read, their total (None: not known), and the stream."""

_RECORDS_AT_ONCE = 10_000


def from_kafka(settings: "Settings", options: Mapping[str, str], inventory: Inventory, progress: Progress) -> None:
    """Read the job's input topics from their beginning to their present end.

    Args:
        settings: address of Kafka, and the names of the topics.
        options: further client options, in the names of librdkafka.
        inventory: destination of the records.
        progress: called after each part.

    Raises:
        ConfigInvalid: an option is not valid.
        TopicUnreadable: Kafka does not answer, or a topic does not exist.
    """
    with TopicReader(settings.bootstrap_servers, options) as reader:
        for stream, topic in zip(_STREAMS, settings.inputs, strict=False):  # ticks play no part
            spans = reader.spans([topic])
            total, done = sum(span.end - span.start for span in spans.values()), 0
            for messages in reader.read(spans):
                inventory.feed(stream, [(_place(message), message.value()) for message in messages])
                done += len(messages)
                progress(done, total, stream)


def _place(message: "Message") -> Place:
    return Place(message.partition() or 0, message.offset() or 0, message.timestamp()[1])


_STREAMS = (Stream.GROUPS, Stream.SUBSCRIPTIONS, Stream.TOPICS)


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
