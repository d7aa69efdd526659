"""What the work on one key gives to Spark: rows that hold records for Kafka, and counts."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import orjson

from streaming.subscription.client import Ignored
from streaming.updates.model import Op, Update, UpdateColumns
from streaming.updates.records import KafkaRecord, UpdateWriter
from streaming.updates.tables import Tables, text

ROW_BYTES = 16_384
"""From so many bytes of updates on a row is full. A row costs PySpark as much as some 20 updates cost us."""


class OutputKind:
    """What an output row holds; ADD, REMOVE and IGNORED only stand in counts."""

    UPDATES = "updates"
    DEAD_LETTER = "dead-letter"
    INPUT = "input:"
    COUNTS = "counts"
    ADD = "add"
    REMOVE = "remove"
    IGNORED = "ignored:"


COUNTED = {Op.ADD: OutputKind.ADD, Op.REMOVE: OutputKind.REMOVE}

OutputRow = tuple[str, bytes, bytes]
"""Kind, what the keys of all its records begin with, and its records (see `Tables`), or counts."""


@dataclass(slots=True)
class Output:
    """Output rows, and what is counted.

    Attributes:
        size: bytes of the updates in the rows.
        counts: updates and dead letters by kind.
        ignored: how many entries were ignored for which reason.
    """

    rows: list[OutputRow] = field(default_factory=list)
    size: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    ignored: Counter[Ignored] = field(default_factory=Counter)

    def add(self, kind: str, record: KafkaRecord) -> None:
        """Appends a row of one record."""
        # Its key stands alone: that of an input record is a name, in which there may be anything.
        self.rows.append((kind, record.key, text(Tables.singly([b""], [record.value]))))
        if kind == OutputKind.DEAD_LETTER:
            self.counts[kind] += 1

    def say(self, updates: Iterable[Update], writer: UpdateWriter) -> None:
        """Appends what updates say; a REMOVE is followed by the tombstone with which compaction forgets its key."""
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
            if size >= ROW_BYTES:
                self._add(Tables.singly(keys, values))
                keys, values, size = [], [], 0
        if keys:
            self._add(Tables.singly(keys, values))

    def say_columns(self, columns: UpdateColumns, writer: UpdateWriter) -> None:
        """`say` by column: a row of updates, at least one."""
        self.counts[COUNTED[columns.op]] += len(columns.pairs)
        self._add(Tables.of(writer, columns))

    def _add(self, updates: Tables) -> None:
        self.rows.append((OutputKind.UPDATES, b"", text(updates)))
        self.size += len(self.rows[-1][-1])

    def drain(self) -> "Output":
        """What there is, which is no more here."""
        drain = Output(self.rows, self.size, self.counts, self.ignored)
        self.rows, self.size, self.counts, self.ignored = [], 0, Counter(), Counter()
        return drain

    def all_rows(self) -> Iterator[OutputRow]:
        """The rows, and behind them what was done, as JSON; none where nothing was."""
        yield from self.rows
        counts = {**self.counts, **{OutputKind.IGNORED + reason: count for reason, count in self.ignored.items()}}
        if counts:
            yield OutputKind.COUNTS, b"", orjson.dumps(counts)
