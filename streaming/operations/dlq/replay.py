"""Rejected entries on their way back: the original is written to its input once more, after its cause was mended."""

import base64
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import orjson
from confluent_kafka import KafkaError, Message, Producer

from streaming.errors import NotWritten, Rejected
from streaming.events.topic_events import parse_lmq_name
from streaming.kafka.clients import cause, create, reason, writing
from streaming.kafka.permissions import writable
from streaming.kafka.reader import Partition, Span, TopicReader
from streaming.operations.dlq.letters import Letter

_FLUSH_SECONDS = 60.0


class Original(NamedTuple):
    """A rejected entry as a record of its input topic.

    Attributes:
        letter: its dead letter.
        key: key under which its producer writes such records.
        value: the entry; of a record with several requests only the rejected one.
    """

    letter: Letter
    key: bytes | None
    value: bytes | None


class Lost(NamedTuple):
    """A dead letter whose entry cannot be written back, and the reason."""

    letter: Letter
    problem: str


def originals(reader: TopicReader, letters: Sequence[Letter]) -> Iterator[Original | Lost]:
    """Yield the entries of dead letters.

    A dead letter holds no more than the beginning of a long entry; such a one is read from its input topic.

    Raises:
        TopicUnreadable: Kafka does not answer.
    """
    for letter in letters:
        value = _original(letter)
        if letter.value.get("truncated"):
            value = _long_original(reader, letter)
            if value is None:
                yield Lost(
                    letter, "Kafka does not have the record any more, and the dead letter holds its beginning only"
                )
                continue
        yield Original(letter, _key_of(value), value)


def write(bootstrap_servers: str, options: dict[str, str], dead_letters: str, entries: Sequence[Original]) -> None:
    """Write entries to their inputs, and mark their dead letters as done: a record without value under the same key.

    Raises:
        ConfigInvalid: a client option is not valid.
        NotWritten: Kafka did not take a record; the message says which.
    """
    given = {"log_level": 0, "enable.idempotence": True, **options, "bootstrap.servers": bootstrap_servers}
    producer = create(Producer, given)
    failed: list[tuple[str, KafkaError]] = []

    def note(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append((message.topic() or "", error))

    with writing(producer, entries[0].letter.id.topic, NotWritten):
        for entry in entries:
            place = entry.letter.id  # the same partition, so that it comes behind its producer's records since then
            _send(producer, Partition(place.topic, place.partition), entry.key, entry.value, note)
        _flush(producer, failed)
        for entry in entries:  # not earlier: what is marked must be written
            mark = Partition(dead_letters, entry.letter.partition)
            _send(producer, mark, orjson.dumps(tuple(entry.letter.id)), None, note)
        _flush(producer, failed)


def _send(producer: Producer, where: Partition, key: bytes | None, value: bytes | None, note: Any) -> None:
    while True:
        try:
            producer.produce(where.topic, value, key, partition=where.number, on_delivery=note)
        except BufferError:
            producer.poll(1)
        else:
            producer.poll(0)
            return


def _flush(producer: Producer, failed: list[tuple[str, KafkaError]]) -> None:
    left = producer.flush(_FLUSH_SECONDS)
    for topic, error in failed:
        raise NotWritten(f"{topic}: {reason(cause(producer, error), writable(topic))}")
    if left:
        raise NotWritten(f"Kafka has not taken {left} records within {_FLUSH_SECONDS:g} s")


def _long_original(reader: TopicReader, letter: Letter) -> bytes | None:
    """Return a rejected entry from its record; None if Kafka does not have that any more."""
    topic, partition, offset, number = letter.id
    where = Partition(topic, partition)
    span = reader.spans([topic]).get(where, Span(0, 0))
    if not span.start <= offset < span.end:
        return None
    for block in reader.read({where: Span(offset, offset + 1)}):
        for message in block:
            # Another record stands there in a topic that was deleted and created anew.
            if message.timestamp()[1] == letter.value["source"]["timestamp"]:
                return _entry(message.value(), number)
    return None


def _entry(value: Any, number: int) -> bytes | None:
    """Return a request of a record as a record of its own; the whole value if it holds no set."""
    data: bytes | None = value
    try:
        requests = orjson.loads(data or b"")["subscriptionSet"]
        return orjson.dumps(requests[number]) if len(requests) > 1 else data
    except (orjson.JSONDecodeError, KeyError, IndexError, TypeError):
        return data


def _original(letter: Letter) -> bytes | None:
    text = letter.value.get("original")
    if text is None:
        return None
    return base64.b64decode(text) if letter.value.get("originalEncoding") == "base64" else str(text).encode()


def _key_of(value: bytes | None) -> bytes | None:
    """Return the key under which a producer writes an event: the group, or else the parent."""
    try:
        record = orjson.loads(value or b"")
        if "subscriptionSet" in record:
            record = record["subscriptionSet"][0]
        name = record.get("group") or record.get("parentTopic") or parse_lmq_name(record["lmqName"])[0]
    except (orjson.JSONDecodeError, AttributeError, TypeError, KeyError, IndexError, Rejected):
        return None
    return name.encode() if isinstance(name, str) else None
