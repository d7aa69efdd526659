"""Output rows of one key: records for Kafka, and counts."""

from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import orjson

from streaming.records.model import Reason, Source
from streaming.records.updates import Cause, Op, Problem, Update, UpdateColumns
from streaming.records.writing import SEPARATOR, KafkaRecord, Tables, UpdateWriter, dead_letter, withdrawn
from streaming.state.client import Ignored
from streaming.worker.bounds import Bounds
from streaming.worker.failures import not_applicable
from streaming.worker.reading import StreamTopics
from streaming.worker.rows import InputRows, position


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
        ignored: number of ignored entries by reason.
        suspects: parent, group and entry of literal groups with an entry that looks like a pattern.
        failures: places of entries that raised an exception, with the messages of their dead letters; the first ones.
        facts: facts about the key, for its last output.
    """

    rows: list[OutputRow] = field(default_factory=list)
    size: int = 0
    counted: Counter[str] = field(default_factory=Counter)
    ignored: Counter[Ignored] = field(default_factory=Counter)
    suspects: list[tuple[str, str, str]] = field(default_factory=list)
    failures: list[tuple[str, int, int, int, str]] = field(default_factory=list)
    facts: tuple[Any, ...] | None = None

    @property
    def counts(self) -> Counter[str]:
        """Number of updates and dead letters by kind."""
        summed: Counter[str] = Counter()
        for name, count in self.counted.items():
            summed[name.partition(":")[0]] += count
        return summed

    def add(self, kind: str, record: KafkaRecord) -> None:
        """Append a row of one record."""
        # The key is not in the tables: the key of an input record is a name, which may contain any character.
        self.rows.append((kind, record.key, SEPARATOR.join(Tables.singly([b""], [record.value]))))

    def add_answers(self, records: Iterable[KafkaRecord | None]) -> None:
        """Append a row for each answer; None is a question without an answer."""
        for record in records:
            if record is not None:
                self.add(OutputKind.ANSWER, record)

    def add_dead_letter(self, reason: str, record: KafkaRecord) -> None:
        """Append a row of a dead letter."""
        self.add(OutputKind.DEAD_LETTER, record)
        self.counted[f"{OutputKind.DEAD_LETTER}:{reason}"] += 1
        self.size += len(self.rows[-1][-1])

    def add_failure(self, source: Source, message: str) -> None:
        """Note an entry that raised an exception, for the log of the driver."""
        if len(self.failures) < MAX_FAILURES:
            self.failures.append((source.topic, source.partition, source.offset, source.entry, message))

    def withdraw_dead_letter(self, record: KafkaRecord) -> None:
        """Append a row that takes a dead letter back."""
        self.add(OutputKind.DEAD_LETTER, record)

    def add_updates(self, updates: Sequence[Update], writer: UpdateWriter, row_bytes: int) -> None:
        """Append rows of updates, each about `row_bytes` long."""
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

    def add_columns(self, columns: UpdateColumns, writer: UpdateWriter) -> None:
        """Append one row of updates by column, at least one."""
        self.counted[_COUNTED[columns.op, columns.cause]] += len(columns.pairs)
        self._add_tables(Tables.of(writer, columns))

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


class DeadLetters(NamedTuple):
    """Writer of dead letters.

    Attributes:
        topics: Kafka topics of the input streams.
        piece_bytes: size of an output above which it is yielded.
    """

    topics: StreamTopics
    piece_bytes: int

    def source_of(self, rows: InputRows) -> Source:
        """Return the source of rows that are a single one."""
        ((stream, partition, offset, entry, timestamp, _),) = rows.by_row()
        return Source(self.topics[stream], partition, offset, position(entry), timestamp)

    def add(self, problems: Iterable[Problem], rows: InputRows, output: Output) -> Generator[Output, None, None]:
        """Add a dead letter for each problem, with the original entry, and yield full pieces of output."""
        originals: dict[tuple[str, int, int, int], bytes | None] = {}
        for source, reason, message, earlier in problems:
            if not message:
                output.withdraw_dead_letter(withdrawn(source))
                continue
            if not originals:
                originals = {
                    (self.topics[stream], partition, offset, position(entry)): payload
                    for stream, partition, offset, entry, _, payload in rows.by_row()
                }
            output.add_dead_letter(reason, dead_letter(source, reason, message, originals.get(source[:4], earlier)))
            if reason is Reason.NOT_APPLICABLE:
                output.add_failure(source, message)
            if output.size >= self.piece_bytes:
                yield output.drain()

    def reject(self, rows: InputRows, error: Exception) -> Output:
        """Return the dead letter of a row that raised an exception."""
        output = Output()
        deque(self.add([not_applicable(self.source_of(rows), error)], rows, output), maxlen=0)
        return output

    def oversize(self, rows: InputRows, bounds: Bounds | None) -> Generator[Output, None, None]:
        """Yield a dead letter for each value that was too large to be read."""
        output, limit = Output(), 0 if bounds is None else bounds.value_bytes
        for stream, partition, offset, _, timestamp, payload in rows.by_row():
            size, _, beginning = (payload or b"").partition(b"\n")
            source = Source(self.topics[stream], partition, offset, 0, timestamp)
            message = f"the value has {int(size):,} bytes; at most {limit:,} are allowed (max_value_bytes)"
            letter = dead_letter(source, Reason.VALUE_TOO_LARGE, message, beginning, size=int(size))
            output.add_dead_letter(Reason.VALUE_TOO_LARGE, letter)
            if output.size >= self.piece_bytes:
                yield output.drain()
        yield output
