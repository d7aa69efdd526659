"""Any history of updates gives the same relation after repetition and compaction."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from streaming.client import Op, Relation, Row
from tests.support.update_records import Record, add, gone, names, remove

KEYS: list[dict[str, Any]] = [
    {"topic": topic, "client": client, "parent": parent, "part": part}
    for topic, client, parent, part in [
        *(("t", "c", "p", None), ("t", "d", "p", None), ("u", "c", "p", None), ("t", "c", "q", None)),
        *(("t", "c", "p", "share:s"), ("t", "d", "p", "share:s"), ("t", "c", "p", "wamp:prefix:a")),
    ]
]
WRITERS = {
    "add": lambda number: [add(**KEYS[number])],
    "remove": lambda number: [remove(**KEYS[number]), gone(**KEYS[number])],
    "half removed": lambda number: [remove(**KEYS[number])],
    "tombstone": lambda number: [gone(**KEYS[number])],
}

Batch = list[Record]


@st.composite
def batches(draw: st.DrawFn) -> list[Batch]:
    """Draw the output of micro-batches: at most one update for each key."""
    plan = st.dictionaries(st.integers(0, len(KEYS) - 1), st.sampled_from(sorted(WRITERS)))
    return [
        [record for number, kind in batch.items() for record in WRITERS[kind](number)]
        for batch in draw(st.lists(plan, max_size=12))
    ]


def fold(log: list[Record]) -> Relation:
    relation = Relation()
    for record in log:
        relation.apply(*record)
    return relation


def compacted(log: list[Record], cut: int, data: st.DataObject, *, forgets: bool) -> list[tuple[int, Record]]:
    """A log with its offsets after the cleaner has been at some of its head.

    It removes what a later record of the head supersedes; with `forgets`, tombstones with nothing before them as well.
    """
    last = {record[0]: offset for offset, record in enumerate(log[:cut])}
    kept, seen = [], set()
    for offset, record in enumerate(log):
        if offset < cut and last[record[0]] != offset and data.draw(st.booleans()):
            continue
        if forgets and offset < cut and record[1] is None and record[0] not in seen and data.draw(st.booleans()):
            continue
        seen.add(record[0])
        kept.append((offset, record))
    return kept


@given(batches())
def test_the_last_record_of_a_key_decides(written: list[Batch]) -> None:
    log = [record for batch in written for record in batch]
    last = dict(log)
    relation = fold(log)
    assert set(relation.rows()) == {row for record in last.items() for row in fold([record]).rows()}
    assert len(relation) == len(relation.rows())


@given(batches(), st.data())
def test_a_compacted_topic_gives_the_same_relation(written: list[Batch], data: st.DataObject) -> None:
    """Read from the start, also while it is being compacted, or from where one was."""
    log = [record for batch in written for record in batch]
    wanted = set(fold(log).rows())
    cut, position = data.draw(st.integers(0, len(log))), data.draw(st.integers(0, len(log)))
    assert set(fold([record for _, record in compacted(log, cut, data, forgets=True)]).rows()) == wanted
    rest = [record for offset, record in compacted(log, cut, data, forgets=False) if offset >= position]
    assert set(fold(log[:position] + rest).rows()) == wanted


@given(batches(), st.data())
def test_repeated_batches_change_nothing(written: list[Batch], data: st.DataObject) -> None:
    """A failed micro-batch is repeated whole, after any part of it."""
    log: list[Record] = []
    for batch in written:
        for _ in range(data.draw(st.integers(0, 2))):
            log += batch[: data.draw(st.integers(0, len(batch)))]
        log += batch
    once, often = Relation(), Relation()
    wanted = [once.apply(*record) for batch in written for record in batch]
    found = [often.apply(*record) for record in log]
    assert list(filter(None, found)) == list(filter(None, wanted))
    assert set(often.rows()) == set(once.rows())


@given(batches())
def test_changes_add_up_to_the_relation(written: list[Batch]) -> None:
    """So a copy kept by `on_change` is right at every moment; and all questions agree."""
    relation, copy = Relation(), dict[tuple[str | None, ...], Row]()
    for record in (record for batch in written for record in batch):
        change = relation.apply(*record)
        if change is not None:
            assert change.former == copy.get(names(change.row))
            if change.op is Op.ADD:
                copy[names(change.row)] = change.row
            else:
                del copy[names(change.row)]
        assert set(relation.rows()) == set(copy.values())
        for parent in "pq":
            for topic in "tu":
                found = relation.subscribers(parent, topic)
                assert len(found) == len(set(found))
                assert set(found) == {row for row in copy.values() if (row.parent, row.lite_topic) == (parent, topic)}
            for client in "cd":
                assert relation.topics(parent, "g", client) == {
                    row.lite_topic for row in copy.values() if (row.parent, row.client_id) == (parent, client)
                }
