"""Table of all rows of the relation with the sources that contain them, on disk to save memory."""

import sqlite3
from collections.abc import Iterable, Iterator
from enum import IntFlag
from pathlib import Path
from typing import NamedTuple, Self


class Says(IntFlag):
    """Sources that contain a row.

    Attributes:
        INPUTS: the inputs, processed again.
        STATE: the state after the last committed micro-batch.
        NEXT: the state after the micro-batch that has started since, if any.
        LATE: not a source: the last record of the row is newer than that micro-batch.
    """

    INPUTS = 1
    STATE = 2
    NEXT = 4
    UPDATES = 8
    LATE = 16


BOTH_STATES = Says.STATE | Says.NEXT


class LedgerRow(NamedTuple):
    """A row of the table, with partition and offset of its last record, if the updates topic has one."""

    key: bytes
    says: Says
    last: tuple[int, int] | None
    said: int = 0


class UpdateMark(NamedTuple):
    """Record of the updates topic: `UPDATES` for an ADD, `LATE` after the micro-batch, and the digest of an ADD."""

    key: bytes
    says: int
    partition: int
    offset: int
    is_tombstone: bool
    value: int = 0


_MARK = (
    "INSERT INTO rows (key, says, wanted) VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE SET "
    "says = says | excluded.says, wanted = coalesce(excluded.wanted, wanted)"
)

# A tombstone keeps the place of the REMOVE before it.
_FOLD = f"""
INSERT INTO rows (key, says, part, place, said) VALUES (?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET
    says = says & {~(Says.UPDATES | Says.LATE)} | excluded.says,
    said = excluded.said,
    part = CASE WHEN ? AND part IS NOT NULL THEN part ELSE excluded.part END,
    place = CASE WHEN ? AND part IS NOT NULL THEN place ELSE excluded.place END
"""  # noqa: S608 - the numbers are constants

_CACHE_KB = 65_536
"""Page cache of a table, in KiB."""


class Table:
    """A table on disk for one run, as a context manager."""

    def __init__(self, file: Path) -> None:
        self._table = sqlite3.connect(file, isolation_level=None)
        for line in (
            "journal_mode = OFF",
            "synchronous = OFF",
            f"cache_size = -{_CACHE_KB}",
            "locking_mode = EXCLUSIVE",
        ):
            self._table.execute(f"PRAGMA {line}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._table.close()

    def _write(self, statement: str, rows: Iterable[tuple[object, ...]]) -> None:
        self._table.execute("BEGIN")
        self._table.executemany(statement, rows)
        self._table.execute("COMMIT")


class Ledger(Table):
    """Table of the rows, which takes about 170 bytes of disk per row."""

    def __init__(self, file: Path) -> None:
        super().__init__(file)
        self.clear()

    def clear(self) -> None:
        """Empty the table."""
        self._table.execute("DROP TABLE IF EXISTS rows")
        self._table.execute(
            "CREATE TABLE rows (key BLOB PRIMARY KEY, says INTEGER NOT NULL, part INTEGER, place INTEGER, "
            "wanted INTEGER, said INTEGER) WITHOUT ROWID"
        )

    def mark(self, rows: Iterable[tuple[bytes, int | None]], says: Says) -> None:
        """Note that a source contains these rows; a state has the value of each row's ADD."""
        self._write(_MARK, ((key, int(says), value) for key, value in rows))

    def fold(self, marks: Iterable[UpdateMark]) -> None:
        """Note records of the updates topic; the last record of a row counts."""
        self._write(_FOLD, ((*mark[:4], mark.value, mark.is_tombstone, mark.is_tombstone) for mark in marks))

    def counts(self) -> dict[Says, int]:
        """Return the number of rows by source."""
        found = dict.fromkeys(Says, 0)
        for says, count in self._table.execute("SELECT says, count(*) FROM rows GROUP BY says"):
            for witness in Says:
                found[witness] += count if says & witness else 0
        return found

    def count_in_flight(self) -> int:
        """Return the number of rows that are changing, or changed while they were read."""
        found = self._table.execute(
            f"SELECT count(*) FROM rows WHERE says & {Says.LATE} OR says & {BOTH_STATES} NOT IN (0, {BOTH_STATES})"  # noqa: S608
        )
        return int(found.fetchone()[0])

    def disagreements(self, *, inputs: bool) -> Iterator[LedgerRow]:
        """Yield the rows on which the sources differ, in order of their keys, without rows in flight."""
        sources = BOTH_STATES | Says.UPDATES | (Says.INPUTS if inputs else 0)
        yield from self._rows(f"says & {BOTH_STATES} IN (0, {BOTH_STATES}) AND says & {sources} NOT IN (0, {sources})")

    def doubts(self) -> Iterator[LedgerRow]:
        """Yield the rows in state and updates whose last ADD has another value than the state.

        They are in order of their keys, without rows in flight.
        """
        sources = BOTH_STATES | Says.UPDATES
        yield from self._rows(f"says & {sources} = {sources} AND wanted IS NOT said")

    def _rows(self, condition: str) -> Iterator[LedgerRow]:
        statement = "SELECT key, says, part, place, said FROM rows WHERE NOT says & ? AND "
        for key, says, part, place, said in self._table.execute(f"{statement}{condition} ORDER BY key", [Says.LATE]):
            yield LedgerRow(key, Says(says), None if part is None else (part, place), said)
