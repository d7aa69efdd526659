"""Detection of the moment when a job has read its inputs and all records that follow from them."""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from confluent_kafka import Message

from streaming.kafka.facts import Offsets
from streaming.kafka.reader import Partition, Span, TopicReader
from streaming.operations.verify.witnesses import Progress
from streaming.records.model import Source
from streaming.spark import positions
from streaming.spark.silent import InputProgress
from streaming.worker.signature import Origin, Signer

ROUNDS: Final = 10
"""Rounds until every record that the job wrote in reaction to its inputs has been read. Backfills may take longer.

A chain of such records is at most this long: a tick ends a lease, a request makes a longer record of it.
"""

_TICK: Final = b'"tick"'
_STEP: Final = b'"wake":0'
"""Field of the records by which a shard wakes itself for the next step of a backfill."""


class Followed(NamedTuple):
    """Records that followed from the inputs, in a part of them.

    Attributes:
        own: the job wrote records to itself.
        steps: a backfill continues.
    """

    own: bool
    steps: bool


class InputLook(Protocol):
    """Function that inspects the inputs between two positions."""

    def __call__(self, start: Offsets, end: Offsets, /) -> Followed:
        """Return the records that the job wrote there."""


class Settling:
    """Check on a running query, to be called repeatedly.

    The query first reads the records that existed at its start. Then a tick sets the current time. From then on the
    inputs are read in rounds, each up to their ends, until the job wrote no record to itself within a round. If other
    producers write continuously, `ROUNDS` rounds are enough.

    Args:
        reading: the query.
        look: inspects a part of the inputs.
        progress: called with the number of records read.
    """

    def __init__(self, reading: InputProgress, look: InputLook, progress: Progress) -> None:
        self._reading = reading
        self._look = look
        self._progress = progress
        self._target = reading.ends()
        self._is_told = False
        self._former: Offsets | None = None
        self._rounds = 0

    def __call__(self) -> bool:
        """Return True if the query may end."""
        read = self._reading.read()
        self._progress("inputs", *_sizes(read, self._target))
        if positions.unread(self._target, read):
            return False
        if not self._is_told:
            self._is_told = self._reading.has_told_present()
            if self._is_told:
                self._target = self._reading.ends()  # the tick is among them
            return False
        if self._former is None:
            self._advance()  # records that follow from the tick are after it
            return False
        self._rounds += 1
        followed = self._look(self._former, self._target)
        if not followed.own or (self._rounds >= ROUNDS and not followed.steps):
            return True
        self._advance()
        return False

    def _advance(self) -> None:
        self._former, self._target = self._target, self._reading.ends()


def _sizes(read: Offsets, target: Offsets) -> tuple[int, int]:
    """Return the number of offsets read so far, and the total."""
    wanted = {(topic, number): end for topic, offsets in target.items() for number, end in offsets.items()}
    done = sum(min(end, read.get(topic, {}).get(number, 0)) for (topic, number), end in wanted.items())
    return done, sum(wanted.values())


def looking(reader: TopicReader, clock: str, events: set[str], signer: Callable[[], Signer | None]) -> InputLook:
    """Return a function that inspects the inputs of a job.

    Args:
        reader: reader of the inputs.
        clock: name of the clock topic.
        events: names of the other topics to which the job writes.
        signer: returns the signer of the job's records.
    """

    def look(start: Offsets, end: Offsets) -> Followed:
        spans = {
            Partition(topic, number): Span(start.get(topic, {}).get(number, 0), offset)
            for topic in (clock, *events)
            for number, offset in end[topic].items()
        }
        by, own, steps = signer(), False, False
        for block in reader.read(spans):
            for message in block:
                if message.topic() == clock:
                    own = own or _TICK not in (message.value() or b"")
                    steps = steps or _STEP in (message.value() or b"")
                else:
                    own = own or by is None or _is_own(by, message)
        return Followed(own, steps)

    return look


def _is_own(signer: Signer, message: Message) -> bool:
    source = Source(message.topic() or "", message.partition() or 0, message.offset() or 0, 0, 0)
    return signer.origin(message.value(), source) is Origin.OWN
