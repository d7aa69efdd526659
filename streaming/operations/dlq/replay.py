"""Replay of rejected entries: the original is written to its input again."""

import base64
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import orjson
from confluent_kafka import KafkaError, Message, Producer

from streaming.errors import NotWritten, Rejected
from streaming.kafka.clients import cause, create, reason, writing
from streaming.kafka.letters import Letter
from streaming.kafka.permissions import writable
from streaming.kafka.reader import Partition, Span, TopicReader
from streaming.records.parsing import parse_lmq_name

_FLUSH_SECONDS = 60.0


class Original(NamedTuple):
    """A rejected entry as a record of its input topic.

    Attributes:
        letter: its dead letter.
        key: key under which its producer writes such records.
        value: the entry; of a record with several requests only the rejected request.
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

    A dead letter holds only the beginning of a long entry, so long entries are read from their input topic.

    Raises:
        TopicUnreadable: Kafka does not answer.
    """
    for letter in letters:
        value = _original(letter)
        if letter.value.get("truncated"):
            value = _long_original(reader, letter)
            if value is None:
                yield Lost(letter, "Kafka no longer has the record, and the dead letter holds only its beginning")
                continue
        yield Original(letter, _key_of(value), value)


def write(bootstrap_servers: str, options: dict[str, str], dead_letters: str, entries: Sequence[Original]) -> None:
    """Write entries to their inputs, then mark their dead letters as done with tombstones.

    Raises:
        ConfigInvalid: a client option is invalid.
        NotWritten: Kafka rejected a record; the message names its topic.
    """
    given = {"log_level": 0, "enable.idempotence": True, **options, "bootstrap.servers": bootstrap_servers}
    producer = create(Producer, given)
    failed: list[tuple[str, KafkaError]] = []

    def note(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append((message.topic() or "", error))

    with writing(producer, entries[0].letter.id.topic, NotWritten):
        for entry in entries:
            place = entry.letter.id  # the same partition keeps it after later records of its producer
            _send(producer, Partition(place.topic, place.partition), entry.key, entry.value, note)
        _flush(producer, failed)
        for entry in entries:  # only after the entries are written
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
        raise NotWritten(f"Kafka has not accepted {left} records within {_FLUSH_SECONDS:g} s")


def _long_original(reader: TopicReader, letter: Letter) -> bytes | None:
    """Return a rejected entry from its record, or None if Kafka no longer has the record."""
    topic, partition, offset, number = letter.id
    where = Partition(topic, partition)
    span = reader.spans([topic]).get(where, Span(0, 0))
    if not span.start <= offset < span.end:
        return None
    for block in reader.read({where: Span(offset, offset + 1)}):
        for message in block:
            # If the topic was created again, the offset has another record.
            if message.timestamp()[1] == letter.value["source"]["timestamp"]:
                return _entry(message.value(), number)
    return None


def _entry(value: Any, number: int) -> bytes | None:
    """Return one request of a record as a separate record, or the whole value if it has one."""
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
    """Return the key of an event: the group, otherwise the parent."""
    try:
        record = orjson.loads(value or b"")
        if "subscriptionSet" in record:
            record = record["subscriptionSet"][0]
        name = record.get("group") or record.get("parentTopic") or parse_lmq_name(record["lmqName"])[0]
    except (orjson.JSONDecodeError, AttributeError, TypeError, KeyError, IndexError, Rejected):
        return None
    return name.encode() if isinstance(name, str) else None
