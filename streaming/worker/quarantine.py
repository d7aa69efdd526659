"""Entries that the job leaves out, as noted in the checkpoint.

A micro-batch is fixed once it is planned, so an entry that kills workers would do so at every start. The job leaves
such an entry out, and writes one dead letter. The decision is part of the checkpoint: a repeated micro-batch leaves out
the same entries. A state partition that had already written the micro-batch when the decision was made is exempt: its
output cannot change any more, so it applies the entry.
"""

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Final, Self

import orjson

from streaming.kafka.facts import EntryPlace
from streaming.records.model import Reason, Source
from streaming.records.updates import Problem

NOTE: Final = "quarantine.json"
"""File of the checkpoint with the decisions."""

MAX_PER_HOUR: Final = 100
"""Maximum number of decisions within an hour. Beyond it the job stops, because entries are hardly the cause."""

_HOUR_MS: Final = 3_600_000
_32_BITS: Final = 0xFFFFFFFF

_LETTER: Final = "the work on this entry was stopped, and the job has left it out: {}"


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision to leave out the entry at a place in Kafka.

    The micro-batch is the first that may contain the entry; the key of parent and number writes its dead letter. Exempt
    state partitions apply it. The decision was made at `decided`, in milliseconds since the epoch.
    """

    topic: str
    partition: int
    offset: int
    entry: int
    timestamp: int
    micro_batch: int
    parent: str
    number: int
    reason: str
    exempt: tuple[int, ...] = ()
    decided: int = 0
    by_hand: bool = False

    @property
    def place(self) -> EntryPlace:
        """Place of the entry."""
        return EntryPlace(self.topic, self.partition, self.offset, self.entry)

    def problem(self) -> Problem:
        """Return the problem in place of the entry."""
        source = Source(self.topic, self.partition, self.offset, self.entry, self.timestamp)
        return Problem(source, Reason.QUARANTINED, _LETTER.format(self.reason))


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Content of the note.

    Attributes:
        micro_batch: number of the last micro-batch that a start found planned and not committed; -1 for none.
        starts: number of starts that found it so.
    """

    decisions: tuple[Decision, ...] = ()
    micro_batch: int = -1
    starts: int = 0

    @classmethod
    def parse(cls, content: bytes | None) -> Self:
        """Return the decisions in a note, if there is one; raise `ValueError`."""
        if content is None:
            return cls()
        try:
            found = orjson.loads(content)
            decisions = tuple(Decision(**{**each, "exempt": tuple(each["exempt"])}) for each in found["decisions"])
            return cls(decisions, found["micro_batch"], found["starts"])
        except (KeyError, TypeError) as error:
            raise ValueError(str(error)) from None

    def dump(self) -> bytes:
        """Return the content of the note."""
        return orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2)

    def of(self, place: EntryPlace) -> Decision | None:
        """Return the decision about an entry; None if there is none."""
        return next((each for each in self.decisions if each.place == place), None)

    def with_(self, decision: Decision) -> Self:
        """Return the decisions with one added, or replaced for the same entry."""
        return replace(self, decisions=(*self.without(decision.place).decisions, decision))

    def without(self, place: EntryPlace) -> Self:
        """Return the decisions without the decision about an entry."""
        return replace(self, decisions=tuple(each for each in self.decisions if each.place != place))

    def started(self, micro_batch: int) -> Self:
        """Return the note of a start that finds a micro-batch planned and not committed."""
        former = self.starts if self.micro_batch == micro_batch else 0
        return replace(self, micro_batch=micro_batch, starts=former + 1)

    def renewed(self) -> Self:
        """Return the decisions for a new checkpoint, which has written nothing yet."""
        return type(self)(tuple(replace(each, micro_batch=0, exempt=()) for each in self.decisions))

    def unread(self, read: Mapping[str, Mapping[int, int]]) -> tuple[Decision, ...]:
        """Return the decisions about entries beyond these offsets, up to which committed micro-batches have read."""
        return tuple(each for each in self.decisions if each.offset >= read.get(each.topic, {}).get(each.partition, 0))

    def is_full(self, now: int) -> bool:
        """Return True if the job made `MAX_PER_HOUR` decisions within the hour before a time in milliseconds."""
        recent = [each for each in self.decisions if not each.by_hand and each.decided > now - _HOUR_MS]
        return len(recent) >= MAX_PER_HOUR


def left_out(
    decisions: Iterable[Decision], micro_batch: int, partition: int | None
) -> dict[tuple[str, int, int, int], Problem]:
    """Return the problems in place of excluded entries, by their places, for a key of a state partition."""
    return {
        each.place: each.problem()
        for each in decisions
        if each.micro_batch <= micro_batch and partition not in each.exempt
    }


def reported(
    decisions: Iterable[Decision],
    excluded: Mapping[tuple[str, int, int, int], Problem],
    key: tuple[str, int],
    places: Collection[tuple[str, int, int, int]],
) -> list[Problem]:
    """Return the problems that a key reports of those from `left_out`, one dead letter for each entry."""
    return [
        excluded[each.place]
        for each in decisions
        if each.place in excluded and each.place in places and (each.parent, each.number) == key
    ]


def now_ms() -> int:
    """Return the time in milliseconds since the epoch."""
    return int(time.time() * 1_000)


def partition_of(parent: str, number: int, partitions: int) -> int:
    """Return the state partition of a key, as Spark distributes keys: by Murmur3 with seed 42 of parent and number."""
    data = parent.encode()
    whole = len(data) - len(data) % 4
    words = [int.from_bytes(data[at : at + 4], "little") for at in range(0, whole, 4)]
    words += [byte - 256 if byte > 127 else byte for byte in data[whole:]]  # noqa: PLR2004 - as signed words, as only Spark does
    found = _murmur3([number], 4, _murmur3(words, len(data), 42))
    return (found - (1 << 32) if found >> 31 else found) % partitions  # Spark takes it for signed


def _murmur3(words: Iterable[int], length: int, seed: int) -> int:
    found = seed
    for word in words:
        mixed = word * 0xCC9E2D51 & _32_BITS
        found ^= (mixed << 15 | mixed >> 17) * 0x1B873593 & _32_BITS
        found = ((found << 13 | found >> 19) * 5 + 0xE6546B64) & _32_BITS
    found ^= length
    found = (found ^ found >> 16) * 0x85EBCA6B & _32_BITS
    found = (found ^ found >> 13) * 0xC2B2AE35 & _32_BITS
    return found ^ found >> 16
