"""The table of rows by who says that they hold."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming.operations.verify.ledger import BOTH_STATES, Ledger, Says, UpdateMark

ALL = Says.INPUTS | BOTH_STATES | Says.UPDATES


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "rows.sqlite") as made:
        yield made


def rows(*keys: bytes) -> list[tuple[bytes, None]]:
    return [(key, None) for key in keys]


def record(key: bytes, offset: int = 0, says: int = 0, *, is_tombstone: bool = False) -> UpdateMark:
    return UpdateMark(key, int(says), 0, offset, is_tombstone)


def add(key: bytes, offset: int = 0) -> UpdateMark:
    return record(key, offset, Says.UPDATES)


def tombstone(key: bytes, offset: int = 0) -> UpdateMark:
    return record(key, offset, is_tombstone=True)


def found(ledger: Ledger, *, inputs: bool = True) -> dict[bytes, Says]:
    return {row.key: row.says for row in ledger.disagreements(inputs=inputs)}


def test_rows_of_which_all_say_the_same_are_no_disagreement(ledger: Ledger) -> None:
    ledger.mark(rows(b"held"), BOTH_STATES)
    ledger.mark(rows(b"held"), Says.INPUTS)
    ledger.fold([add(b"held"), add(b"gone"), record(b"gone"), tombstone(b"gone")])
    assert found(ledger) == {}


@pytest.mark.parametrize("says", [Says.INPUTS, BOTH_STATES, Says.UPDATES, ALL & ~Says.INPUTS, ALL & ~BOTH_STATES])
def test_each_witness_alone_is_a_disagreement(ledger: Ledger, says: Says) -> None:
    """Unless it is the inputs that differ, and they were not read."""
    ledger.mark(rows(b"row"), says)
    assert found(ledger) == {b"row": says}
    assert bool(found(ledger, inputs=False)) == (says | Says.INPUTS not in (ALL, Says.INPUTS))


def test_the_last_record_of_a_row_counts_and_a_tombstone_leaves_the_place_of_its_removal(ledger: Ledger) -> None:
    ledger.fold([add(b"row", 1), record(b"row", 2), add(b"row", 5)])
    ledger.fold([add(b"other", 3), record(b"other", 4)])
    assert found(ledger) == {b"row": Says.UPDATES}
    ledger.fold([tombstone(b"other", 6), tombstone(b"compacted", 9)])
    ledger.mark(rows(b"other", b"compacted"), BOTH_STATES)
    places = {row.key: row.last for row in ledger.disagreements(inputs=True)}
    assert places == {b"row": (0, 5), b"other": (0, 4), b"compacted": (0, 9)}


def test_rows_with_another_value_than_the_state_are_doubted(ledger: Ledger) -> None:
    """Whatever the order of the sources; inputs have no values."""
    ledger.fold([add(b"right"), add(b"wrong")._replace(value=7)])
    ledger.mark([(b"right", 0), (b"wrong", 8)], BOTH_STATES)
    ledger.mark(rows(b"right", b"wrong"), Says.INPUTS)
    assert [(row.key, row.said) for row in ledger.doubts()] == [(b"wrong", 7)]


def test_rows_in_flight_are_not_judged(ledger: Ledger) -> None:
    """Those that the micro-batch under way changes, and those with a record since."""
    ledger.mark(rows(b"comes"), Says.NEXT)
    ledger.mark(rows(b"goes"), Says.STATE)
    ledger.fold([record(b"late", says=Says.UPDATES | Says.LATE)])
    assert found(ledger, inputs=False) == {}
    assert ledger.count_in_flight() == 3


def test_rows_are_counted_by_witness(ledger: Ledger) -> None:
    ledger.mark(rows(b"a", b"b"), BOTH_STATES)
    ledger.fold([add(b"a"), add(b"c"), add(b"d")])
    assert (ledger.counts()[Says.STATE], ledger.counts()[Says.UPDATES], ledger.counts()[Says.INPUTS]) == (2, 3, 0)
    ledger.clear()
    assert sum(ledger.counts().values()) == 0
