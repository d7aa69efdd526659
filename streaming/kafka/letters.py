"""Dead letters of a job, read from their topic."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Self

import orjson
from confluent_kafka import Message

from streaming.errors import ConfigInvalid
from streaming.kafka.reader import TopicReader

_ID = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})\[(?P<partition>\d+)\]@(?P<offset>\d+)(?:#(?P<entry>\d+))?")


class LetterId(NamedTuple):
    """Position of a rejected entry, which identifies its dead letter."""

    topic: str
    partition: int
    offset: int
    entry: int = 0

    @classmethod
    def of(cls, text: str) -> Self:
        """Parse an id in the format of `str`.

        Raises:
            ConfigInvalid: the text is not an id.
        """
        found = _ID.fullmatch(text)
        if found is None:
            raise ConfigInvalid(
                f"{text!r} is not the id of a dead letter; expected lite-topic-events[0]@12 or ...@12#3"
            )
        topic, *numbers = found.groups("0")
        return cls(topic, *map(int, numbers))

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]@{self.offset}" + (f"#{self.entry}" if self.entry else "")


class Letter(NamedTuple):
    """A dead letter.

    Attributes:
        id: position of the rejected entry.
        value: the dead letter in Kafka.
        partition: number of its partition.
    """

    id: LetterId
    value: Mapping[str, Any]
    partition: int

    @property
    def reason(self) -> str:
        """Reason, one of `streaming.records.model.Reason`."""
        return str(self.value.get("reason"))


class LetterFilter(NamedTuple):
    """Filter of dead letters. Empty criteria match all.

    Attributes:
        ids: positions of rejected entries.
        reasons: reasons.
        topics: Kafka topics of the rejected entries.
    """

    ids: Collection[LetterId] = ()
    reasons: Collection[str] = ()
    topics: Collection[str] = ()

    def admits(self, letter: Letter) -> bool:
        """Return True if a dead letter matches."""
        return (
            (not self.ids or letter.id in self.ids)
            and (not self.reasons or letter.reason in self.reasons)
            and (not self.topics or letter.id.topic in self.topics)
        )


def read(reader: TopicReader, topic: str, chosen: LetterFilter) -> list[Letter]:
    """Return the dead letters that match a filter, in the order of their rejection.

    Rewritten dead letters are returned once. Dead letters whose entry was replayed are omitted.

    Raises:
        TopicUnreadable: Kafka does not answer, or has no such topic.
    """
    found: dict[LetterId, Letter] = {}
    for block in reader.read(reader.spans([topic])):
        for letter_id, value, message in records(block):
            found.pop(letter_id, None)
            if value is not None:
                letter = Letter(letter_id, value, message.partition() or 0)
                if chosen.admits(letter):
                    found[letter_id] = letter
    return list(found.values())


def records(block: Iterable[Message]) -> Iterator[tuple[LetterId, Mapping[str, Any] | None, Message]]:
    """Yield the dead letters among some messages; None for one whose entry was replayed."""
    for message in block:
        key, value = _json(message.key()), _json(message.value())
        if isinstance(key, list) and len(key) == len(LetterId._fields) and isinstance(value, dict | None):
            yield LetterId(*key), value, message


def _json(data: Any) -> Any:
    """Parse JSON; None for no data or for invalid JSON, which the job did not write."""
    try:
        return None if data is None else orjson.loads(data)
    except orjson.JSONDecodeError:
        return None


def counts(letters: Iterable[Letter]) -> dict[str, int]:
    """Return the number of dead letters by reason, most frequent first."""
    found: dict[str, int] = {}
    for letter in letters:
        found[letter.reason] = found.get(letter.reason, 0) + 1
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))
