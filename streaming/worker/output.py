"""Output rows of one key: records for Kafka, and counts."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import orjson

from streaming.subscription.client import Ignored
from streaming.updates.model import Op, Update, UpdateColumns
from streaming.updates.records import KafkaRecord, UpdateWriter
from streaming.updates.tables import Tables, text


class OutputKind:
    """Content of an output row; ADD, REMOVE, IGNORED and SUSPECT stand in counts only."""

    UPDATES = "updates"
    DEAD_LETTER = "dead-letter"
    INPUT = "input:"
    ANSWER = "answer"
    COUNTS = "counts"
    ADD = "add"
    REMOVE = "remove"
    IGNORED = "ignored:"
    SUSPECT = "suspect:"


COUNTED = {Op.ADD: OutputKind.ADD, Op.REMOVE: OutputKind.REMOVE}

OutputRow = tuple[str, bytes, bytes]
"""Kind, common start of all keys, and records (see `Tables`) or counts."""


@dataclass(slots=True)
class Output:
    """Output rows and counts.

    Attributes:
        size: bytes of the updates and dead letters in the rows.
        counts: number of updates and dead letters by kind.
        ignored: number of ignored entries by reason.
        suspects: parent, group and entry where a literal group reads what looks like a pattern as a name.
    """

    rows: list[OutputRow] = field(default_factory=list)
    size: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    ignored: Counter[Ignored] = field(default_factory=Counter)
    suspects: list[tuple[str, str, str]] = field(default_factory=list)

    def add(self, kind: str, record: KafkaRecord) -> None:
        """Append a row of one record."""
        # The key stands alone: that of an input record is a name, which may contain anything.
        self.rows.append((kind, record.key, text(Tables.singly([b""], [record.value]))))
        if kind == OutputKind.DEAD_LETTER:
            self.counts[kind] += 1
            self.size += len(self.rows[-1][-1])

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
            self.counts[COUNTED[update.op]] += 1
            size += len(value or b"")
            if size >= row_bytes:
                self._add_tables(Tables.singly(keys, values))
                keys, values, size = [], [], 0
        if keys:
            self._add_tables(Tables.singly(keys, values))

    def add_columns(self, columns: UpdateColumns, writer: UpdateWriter) -> None:
        """Append one row of updates by column, at least one."""
        self.counts[COUNTED[columns.op]] += len(columns.pairs)
        self._add_tables(Tables.of(writer, columns))

    def _add_tables(self, tables: Tables) -> None:
        self.rows.append((OutputKind.UPDATES, b"", text(tables)))
        self.size += len(self.rows[-1][-1])

    def drain(self) -> "Output":
        """Return the content, and start again empty."""
        drained = Output(self.rows, self.size, self.counts, self.ignored)
        self.rows, self.size, self.counts, self.ignored = [], 0, Counter(), Counter()
        return drained

    def all_rows(self) -> Iterator[OutputRow]:
        """Yield the rows, and the counts as a last row of JSON unless there are none."""
        yield from self.rows
        counts = {
            **self.counts,
            **{OutputKind.IGNORED + reason: count for reason, count in self.ignored.items()},
            **{OutputKind.SUSPECT + orjson.dumps(suspect).decode(): 1 for suspect in self.suspects},
        }
        if counts:
            yield OutputKind.COUNTS, b"", orjson.dumps(counts)
