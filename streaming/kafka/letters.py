"""Dead letters of a job, read from their topic."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import orjson
from confluent_kafka import Message

from streaming.kafka.facts import EntryPlace
from streaming.kafka.reader import TopicReader


class Letter(NamedTuple):
    """A dead letter, identified by the position of the rejected entry."""

    id: EntryPlace
    value: Mapping[str, Any]
    partition: int

    @property
    def reason(self) -> str:
        """Reason, one of `streaming.records.model.Reason`."""
        return str(self.value.get("reason"))


class LetterFilter(NamedTuple):
    """Filter of dead letters: ids, reasons, and topics of the rejected entries. Empty criteria match all."""

    ids: Collection[EntryPlace] = ()
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
    found: dict[EntryPlace, Letter] = {}
    for block in reader.read(reader.spans([topic])):
        for letter_id, value, message in records(block):
            found.pop(letter_id, None)
            if value is not None:
                letter = Letter(letter_id, value, message.partition() or 0)
                if chosen.admits(letter):
                    found[letter_id] = letter
    return list(found.values())


def records(block: Iterable[Message]) -> Iterator[tuple[EntryPlace, Mapping[str, Any] | None, Message]]:
    """Yield the dead letters among some messages; None for one whose entry was replayed."""
    for message in block:
        key, value = _json(message.key()), _json(message.value())
        if isinstance(key, list) and len(key) == len(EntryPlace._fields) and isinstance(value, dict | None):
            yield EntryPlace(*key), value, message


def _json(data: Any) -> Any:
    """Parse JSON; None for no data or for invalid JSON, which the job did not write."""
    try:
        return None if data is None else orjson.loads(data)
    except orjson.JSONDecodeError:
        return None


def counts(letters: Iterable[Letter]) -> dict[str, int]:
    """Return the number of dead letters by reason, most frequent first."""
    return dict(sorted(Counter(letter.reason for letter in letters).items(), key=lambda item: (-item[1], item[0])))
