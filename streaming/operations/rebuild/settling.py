"""Moment at which a job has read its inputs and everything that followed from them."""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from confluent_kafka import Message

from streaming.events.model import Source
from streaming.kafka.facts import Offsets
from streaming.kafka.reader import Partition, Span, TopicReader
from streaming.operations.verify.witnesses import Progress
from streaming.spark import positions
from streaming.spark.silent import Reading
from streaming.worker.signature import Origin, Signer

ROUNDS: Final = 10
"""Rounds after which all that followed from the present inputs has been read, steps of wide changes excepted.

An end of a lease follows from a tick, a longer record of it from a request; others follow from fewer.
"""

_TICK: Final = b'"tick"'
_STEP: Final = b'"wake":0'
"""Field of the records with which a shard wakes itself for the next step of a wide change."""


class Followed(NamedTuple):
    """What followed from the inputs, in a part of them.

    Attributes:
        own: the job wrote records to itself.
        steps: a wide change goes on.
    """

    own: bool
    steps: bool


class InputLook(Protocol):
    """Look at the inputs between two positions."""

    def __call__(self, start: Offsets, end: Offsets, /) -> Followed:
        """Return what the job wrote there."""


class Settling:
    """Follower of a running query, as a function to be called now and then.

    First the query reads what was there at its start. Then a tick tells the present time. From then on the inputs are
    read in rounds, each up to their ends, until the job wrote nothing to itself within a round. Where others write
    all the time, and it answers, a number of rounds is enough.

    Args:
        reading: the query.
        look: looks at a part of the inputs.
        progress: called with the number of records that were read.
    """

    def __init__(self, reading: Reading, look: InputLook, progress: Progress) -> None:
        self._reading = reading
        self._look = look
        self._progress = progress
        self._target = reading.ends()
        self._is_told = False
        self._former: Offsets | None = None
        self._rounds = 0

    def __call__(self) -> bool:
        """Tell whether the query may end."""
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
            self._advance()  # what follows from the tick is behind it
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
    """Return the number of offsets read so far, and of all to be read."""
    wanted = {(topic, number): end for topic, offsets in target.items() for number, end in offsets.items()}
    done = sum(min(end, read.get(topic, {}).get(number, 0)) for (topic, number), end in wanted.items())
    return done, sum(wanted.values())


def looking(reader: TopicReader, clock: str, events: set[str], signer: Callable[[], Signer | None]) -> InputLook:
    """Return a look at the inputs of a job.

    Args:
        reader: reader of the inputs.
        clock: name of the clock topic.
        events: names of the topics to which the job writes besides.
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
