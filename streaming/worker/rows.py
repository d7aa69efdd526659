"""Rows that Spark exchanges for one key: input by column, output with records and counts, and facts for metrics."""

import itertools
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt
import orjson

from streaming.coordinator import COORDINATOR
from streaming.records.columns import Ints
from streaming.records.model import Source, Stream
from streaming.records.record import KafkaRecord
from streaming.records.updates import Cause, Op, Update, UpdateColumns
from streaming.records.writing import SEPARATOR, Tables, UpdateWriter
from streaming.state.client import Ignored
from streaming.storage.journal import Journal
from streaming.worker.failures import NOT_OF_AN_ENTRY, EntryFailed

STREAMS = tuple(Stream)
"""Input streams by their number in a row; also the order in which a micro-batch is read."""

CLOCK = STREAMS.index(Stream.CLOCK)
"""Number of the clock stream."""

StreamTopics = tuple[str, str, str, str]
"""Kafka topics of the input streams, in the order of `STREAMS`."""

Number = TypeVar("Number", int, Ints)


class InputRow(NamedTuple):
    """One input entry; rows sort in the order in which they are read.

    Attributes:
        stream: its number in `STREAMS`.
        entry: twice its position in the record; one more if no shard sees it, because it names no parent. Of a tick,
            which many keys receive: 0 for the key that reports it if it is invalid, 1 for the others.
        timestamp: of the record, in milliseconds since the epoch.
    """

    stream: int
    partition: int
    offset: int
    entry: int
    timestamp: int
    payload: bytes | None


class InputRows(NamedTuple):
    """Input rows by column."""

    streams: Ints
    partitions: Ints
    offsets: Ints
    entries: Ints
    timestamps: Ints
    payloads: npt.NDArray[Any]

    @classmethod
    def of(cls, rows: Iterable[InputRow]) -> Self:
        """Return the columns of some rows."""
        kinds = (np.int64,) * 5 + (np.object_,)
        columns = list(zip(*rows, strict=True)) or [()] * len(kinds)
        return cls(*map(np.array, columns, kinds))

    @classmethod
    def concat(cls, several: Sequence[Self]) -> Self:
        """Return all rows of one or more tables."""
        return several[0] if len(several) == 1 else cls(*map(np.concatenate, zip(*several, strict=True)))

    def ordered(self) -> Self:
        """Return the rows in the order in which they are read."""
        order = np.lexsort((self.entries, self.offsets, self.partitions, self.streams))
        in_order = bool((order[1:] > order[:-1]).all())  # nearly always: a parent's events are in one partition
        return self if in_order else self.take(order)

    def take(self, which: Ints | slice) -> Self:
        """Return the rows at some places."""
        return type(self)(*(column[which] for column in self))

    def places(self, topics: Sequence[str]) -> set[tuple[str, int, int, int]]:
        """Return Kafka topic, partition, offset and position of each entry."""
        columns = (self.streams, self.partitions, self.offsets, position(self.entries))
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return {(topics[stream], partition, offset, entry) for stream, partition, offset, entry in rows}

    def by_row(self) -> "Iterator[tuple[int, int, int, int, int, bytes | None]]":
        """Yield the rows, with the fields of `InputRow`; to name the fields takes 0.4 us a row."""
        return zip(*(column.tolist() for column in self), strict=True)


def joined(rows: InputRows, pieces: Ints) -> InputRows:
    """Return rows with their payloads whole, in the order in which they are read.

    The pieces of a payload are numbered from 1, and spread over rows in any order; 0 is a payload that is whole.
    """
    order = np.lexsort((pieces, rows.entries, rows.offsets, rows.partitions, rows.streams))
    rows, pieces = rows.take(order), pieces[order]
    starts = np.flatnonzero(pieces <= 1)
    payloads = np.empty(len(starts), np.object_)
    for number, (start, end) in enumerate(itertools.pairwise((*starts.tolist(), len(pieces)))):
        payloads[number] = rows.payloads[start] if end == start + 1 else b"".join(rows.payloads[start:end])
    return rows.take(starts)._replace(payloads=payloads)


def position(entry: Number) -> Number:
    """Return the position in its record of an entry, or of each of many."""
    return entry // 2


LABEL_CHARACTERS: Final = 128
"""Greatest length of the name of a parent in metrics."""

_TIMES: Final = 16
"""Largest number of timestamps that a key reports."""


class KeyFacts(NamedTuple):
    """A key after a micro-batch, and the events that it has applied.

    Attributes:
        parent: the parent topic as `label` returns it; empty for a bucket of the coordinator.
        clients: number of clients on the shard, or known to the bucket of the coordinator.
        times: timestamps of the events, in milliseconds since the epoch: all, or an even sample of them.
        weight: number of events that each of these times represents.
        newest: latest timestamp of each input partition that was read: number of the stream, partition, timestamp.
    """

    parent: str
    shard: int
    topics: int
    clients: int
    state_bytes: int
    times: list[int]
    weight: float
    newest: list[tuple[int, int, int]]


def facts(parent: str, number: int, size: tuple[int, int, int], rows: InputRows) -> KeyFacts:
    """Return the facts about a key, given its size and its rows in order."""
    times = rows.timestamps[rows.streams != CLOCK]
    count = len(times)
    if count > _TIMES:
        times = np.sort(times)[(2 * np.arange(_TIMES) + 1) * count // (2 * _TIMES)]
    name = "" if parent == COORDINATOR else label(parent)
    return KeyFacts(name, number, *size, times.tolist(), count / max(1, len(times)), _newest(rows))


def label(name: str) -> str:
    """Return a name in the length that metrics show; a long one ends in its digest."""
    if len(name) <= LABEL_CHARACTERS:
        return name
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{name[: LABEL_CHARACTERS - len(digest) - 3]}...{digest}"


def _newest(rows: InputRows) -> list[tuple[int, int, int]]:
    """Return the latest timestamp of each stream and partition among the rows, which are ordered by both."""
    streams, partitions, times = rows.streams, rows.partitions, rows.timestamps
    if streams[0] == streams[-1] and partitions[0] == partitions[-1]:  # nearly always: a parent's events are together
        return [(int(streams[0]), int(partitions[0]), int(times.max()))]
    changes = (streams[1:] != streams[:-1]) | (partitions[1:] != partitions[:-1])
    begins = np.concatenate(([0], np.flatnonzero(changes) + 1))
    newest = np.maximum.reduceat(times, begins)
    return list(zip(streams[begins].tolist(), partitions[begins].tolist(), newest.tolist(), strict=True))


class OutputKind:
    """Content of an output row; ADD, REMOVE, IGNORED, SUSPECT and FAILURE are in counts only."""

    UPDATES = "updates"
    DEAD_LETTER = "dead-letter"
    INPUT = "input:"
    ANSWER = "answer"
    COUNTS = "counts"
    ADD = "add"
    REMOVE = "remove"
    IGNORED = "ignored:"
    SUSPECT = "suspect:"
    FAILURE = "failure:"


MAX_FAILURES: Final = 8
"""Maximum number of failed entries that an output reports to the log."""

FACTS: Final = "facts"
"""Name, among the counts of a key, of the facts about it."""

_COUNTED: Final = {
    (op, cause): f"{kind}:{cause}"
    for op, kind in ((Op.ADD, OutputKind.ADD), (Op.REMOVE, OutputKind.REMOVE))
    for cause in Cause
}
"""Names of counted updates."""

OutputRow = tuple[str, bytes, bytes]
"""Kind, common start of all keys, and records (see `Tables`) or counts."""


@dataclass(slots=True)
class Output:
    """Output rows and counts.

    Attributes:
        size: bytes of the updates and dead letters in the rows.
        counted: number of updates and dead letters by kind and cause.
        suspects: parent, group and entry of literal groups with an entry that looks like a pattern.
        failures: places of entries that raised an exception, with the messages of their dead letters; the first ones.
    """

    rows: list[OutputRow] = field(default_factory=list)
    size: int = 0
    counted: Counter[str] = field(default_factory=Counter)
    ignored: Counter[Ignored] = field(default_factory=Counter)
    suspects: list[tuple[str, str, str]] = field(default_factory=list)
    failures: list[tuple[str, int, int, int, str]] = field(default_factory=list)
    facts: tuple[Any, ...] | None = None

    def add(self, kind: str, record: KafkaRecord) -> None:
        """Append a row of one record."""
        # The key is not in the tables: the key of an input record is a name, which may contain any character.
        self.rows.append((kind, record.key, SEPARATOR.join(Tables.singly([b""], [record.value]))))

    def add_dead_letter(self, reason: str, record: KafkaRecord) -> None:
        """Append a row of a dead letter."""
        self.add(OutputKind.DEAD_LETTER, record)
        self.counted[f"{OutputKind.DEAD_LETTER}:{reason}"] += 1
        self.size += len(self.rows[-1][-1])

    def add_updates(self, updates: Sequence[Update] | UpdateColumns, writer: UpdateWriter, row_bytes: int) -> None:
        """Append one row of updates by column, at least one, or rows of updates one by one, of about `row_bytes`."""
        if isinstance(updates, UpdateColumns):
            self.counted[_COUNTED[updates.op, updates.cause]] += len(updates.pairs)
            self._add_tables(Tables.of(writer, updates))
            return
        self.counted.update([_COUNTED[update.op, update.cause] for update in updates])
        part: list[KafkaRecord] = []
        size = 0
        for record in writer.records(updates):
            if size >= row_bytes and record.value is not None:  # a tombstone stays with its REMOVE
                self._add_tables(Tables.singly(*zip(*part, strict=True)))
                part, size = [], 0
            part.append(record)
            size += len(record.value or b"")
        if part:
            self._add_tables(Tables.singly(*zip(*part, strict=True)))

    def _add_tables(self, tables: Tables) -> None:
        self.rows.append((OutputKind.UPDATES, b"", SEPARATOR.join(tables)))
        self.size += len(self.rows[-1][-1])

    def drain(self) -> "Output":
        """Return the content, and start again empty."""
        drained = Output(self.rows, self.size, self.counted, self.ignored)
        self.rows, self.size, self.counted, self.ignored = [], 0, Counter(), Counter()
        return drained

    def all_rows(self) -> Iterator[OutputRow]:
        """Yield the rows, and the counts as a last row of JSON unless there are none."""
        yield from self.rows
        counts: dict[str, Any] = {
            **self.counted,
            **{OutputKind.IGNORED + reason: count for reason, count in self.ignored.items()},
            **{OutputKind.SUSPECT + orjson.dumps(suspect).decode(): 1 for suspect in self.suspects},
            **{OutputKind.FAILURE + orjson.dumps(failure).decode(): 1 for failure in self.failures},
        }
        if self.facts is not None:
            counts[FACTS] = tuple(self.facts)  # orjson takes no named tuples
        if counts:
            yield OutputKind.COUNTS, b"", orjson.dumps(counts)


def by_kind(total: Counter[str]) -> Counter[str]:
    """Return counts without the causes of updates and the reasons of dead letters."""
    summed: Counter[str] = Counter()
    for name, count in total.items():
        summed[name if name.startswith(OutputKind.IGNORED) else name.partition(":")[0]] += count
    return summed


class Ran(NamedTuple):
    """A run that has succeeded: its last output, the state after it, and topics, clients and bytes of its journal."""

    output: Output
    journal: Journal
    size: tuple[int, int, int]


Run = Callable[[InputRows, Journal], Generator[Output, None, Ran]]
"""Applies rows to a state, and yields output; changes nothing if it raises."""


class Isolation(NamedTuple):
    """Runs of a key's rows: all at once, and in halves if an entry raises an exception, until that entry is alone.

    A failed run changes nothing. The relation does not depend on how rows are split into micro-batches. So the other
    entries are applied as if the failed entries did not exist, at a cost that grows with the logarithm of their number.

    Attributes:
        run: applies some of its rows.
        source_of: returns the source of rows that are a single one.
        reject: returns the output of a row that is not applied because of an exception.
    """

    run: Run
    source_of: Callable[[InputRows], Source]
    reject: Callable[[InputRows, Exception], Output]

    def apply(self, rows: InputRows, journal: Journal) -> Generator[Output, None, tuple[Output, Ran | None]]:
        """Apply rows in order without those that fail; yield all but the last output.

        Returns the last output, and the last run that has succeeded. Raises `EntryFailed` if an entry failed after
        output of its run was yielded.
        """
        waiting, last, outputs = [rows], None, deque[Output]()
        while waiting:
            part = waiting.pop()
            has_written, ran = yield from _guarded(self.run(part, journal))
            if isinstance(ran, Ran):
                outputs.append(ran.output)
                last, journal = ran, ran.journal
            elif has_written:
                raise self._culprit(part, journal, ran) from ran
            elif len(part.offsets) == 1:
                outputs.append(self.reject(part, ran))
            else:
                waiting += _halves(part)
            if len(outputs) > 1:
                yield outputs.popleft()
        return outputs.pop(), last

    def _culprit(self, rows: InputRows, journal: Journal, error: Exception) -> Exception:
        """Return the error that names the first entry that fails alone, or else the error itself."""
        waiting = [rows] if len(rows.offsets) == 1 else _halves(rows)
        while waiting:
            part = waiting.pop()
            ran = _result(_guarded(self.run(part, journal)))
            if isinstance(ran, Ran):
                journal = ran.journal
            elif len(part.offsets) == 1:
                return EntryFailed(self.source_of(part), ran)
            else:
                waiting += _halves(part)
        return error


def _guarded(steps: Generator[Output, None, Ran]) -> Generator[Output, None, tuple[bool, Ran | Exception]]:
    """Yield the outputs of a run; return whether there were any, and its result or its exception."""
    has_written = False
    while True:
        try:
            output = next(steps)
        except StopIteration as end:
            return has_written, end.value
        except NOT_OF_AN_ENTRY:
            raise
        except Exception as error:  # noqa: BLE001 - any exception of an entry concerns that entry only
            return has_written, error
        has_written = True
        yield output


def _result(steps: Generator[Output, None, tuple[bool, Ran | Exception]]) -> Ran | Exception:
    """Return the result of a run without its output."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            _, ran = end.value
            found: Ran | Exception = ran
            return found


def _halves(rows: InputRows) -> list[InputRows]:
    """Return the second half of rows and the first, which is taken from the end."""
    middle = len(rows.offsets) // 2
    return [rows.take(slice(middle, None)), rows.take(slice(middle))]
