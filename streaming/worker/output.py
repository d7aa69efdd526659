"""Output rows of one key: records for Kafka, and counts."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from streaming.events.model import Source
from streaming.subscription.client import Ignored
from streaming.updates.model import Cause, Op, Update, UpdateColumns
from streaming.updates.records import KafkaRecord, UpdateWriter
from streaming.updates.tables import Tables, text


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
"""Number of entries that one output names for the log."""

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
        suspects: parent, group and entry where a literal group reads what looks like a pattern as a name.
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
        # The key stands alone: that of an input record is a name, which may contain anything.
        self.rows.append((kind, record.key, text(Tables.singly([b""], [record.value]))))

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

    def add_updates(self, updates: Iterable[Update], writer: UpdateWriter, row_bytes: int) -> None:
        """Append rows of updates, each about `row_bytes` long.

        A REMOVE is followed by the tombstone with which compaction forgets its key.
        """
        keys: list[bytes] = []
        values: list[bytes | None] = []
        size = 0
        for update in updates:
            key, value = writer.record(update)
            keys.append(key)
            values.append(value)
            if update.op is Op.REMOVE:
                keys.append(key)
                values.append(None)
            self.counted[_COUNTED[update.op, update.cause]] += 1
            size += len(value or b"")
            if size >= row_bytes:
                self._add_tables(Tables.singly(keys, values))
                keys, values, size = [], [], 0
        if keys:
            self._add_tables(Tables.singly(keys, values))

    def add_columns(self, columns: UpdateColumns, writer: UpdateWriter) -> None:
        """Append one row of updates by column, at least one."""
        self.counted[_COUNTED[columns.op, columns.cause]] += len(columns.pairs)
        self._add_tables(Tables.of(writer, columns))

    def _add_tables(self, tables: Tables) -> None:
        self.rows.append((OutputKind.UPDATES, b"", text(tables)))
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
