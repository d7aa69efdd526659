"""Replay of rejected entries: the original is written to its input again."""

import base64
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import orjson

from streaming.errors import NotWritten
from streaming.kafka.letters import Letter
from streaming.kafka.reader import Partition, TopicReader
from streaming.kafka.writer import Writer
from streaming.records.parsing import key_of

_FLUSH_SECONDS: Final = 60.0


class Original(NamedTuple):
    """A rejected entry as a record of its input topic; of a record with several requests only the rejected one."""

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
        text = letter.value.get("original")
        if letter.value.get("truncated"):
            value = _long_original(reader, letter)
            if value is None:
                yield Lost(letter, "Kafka no longer has the record, and the dead letter holds only its beginning")
                continue
        elif letter.value.get("originalEncoding") == "base64":
            value = None if text is None else base64.b64decode(text)
        else:
            value = None if text is None else str(text).encode()
        yield Original(letter, _key_of(value), value)


def write(bootstrap_servers: str, options: dict[str, str], dead_letters: str, entries: Sequence[Original]) -> None:
    """Write entries to their inputs, then mark their dead letters as done with tombstones.

    Raises:
        ConfigInvalid: a client option is invalid.
        NotWritten: Kafka rejected a record; the message names its topic.
    """
    writer = Writer(bootstrap_servers, options, NotWritten)
    for entry in entries:
        place = entry.letter.id  # the same partition keeps it after later records of its producer
        writer.send(place.topic, entry.value, entry.key, place.partition)
    writer.flush(_FLUSH_SECONDS)
    for entry in entries:  # only after the entries are written
        writer.send(dead_letters, None, orjson.dumps(tuple(entry.letter.id)), entry.letter.partition)
    writer.flush(_FLUSH_SECONDS)


def _long_original(reader: TopicReader, letter: Letter) -> bytes | None:
    """Return a rejected entry from its record, or None if Kafka no longer has the record."""
    topic, partition, offset, number = letter.id
    message = reader.record(Partition(topic, partition), offset)
    # If the topic was created again, the offset has another record.
    if message is None or message.timestamp()[1] != letter.value["source"]["timestamp"]:
        return None
    data = message.value()
    try:
        requests = orjson.loads(data or b"")["subscriptionSet"]
        return orjson.dumps(requests[number]) if len(requests) > 1 else data
    except (orjson.JSONDecodeError, KeyError, IndexError, TypeError):
        return data


def _key_of(value: bytes | None) -> bytes | None:
    try:
        key = key_of(orjson.loads(value or b""))
    except orjson.JSONDecodeError:
        return None
    return None if key is None else key.encode()
