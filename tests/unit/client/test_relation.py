"""Effect of records on the relation, and of any history of them."""

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.client import Change, Malformed, Op, Relation, Row, Subscriber
from streaming.client.relation import Pool
from streaming.records.model import Source
from streaming.records.subscribers import SubscriberKey
from streaming.records.updates import Cause, Update
from streaming.records.updates import Op as JobOp
from streaming.records.writing import UpdateWriter
from tests.support.update_records import Record, add, gone, key, names, remove, value

MAX_BYTES_A_ROW = 700


def fold(*records: Record) -> Relation:
    relation = Relation()
    for record in records:
        relation.apply(*record)
    return relation


def changes_of(*records: Record) -> list[Change]:
    relation = Relation()
    return [change for record in records if (change := relation.apply(*record)) is not None]


def test_pages_and_counts_are_those_of_the_rows() -> None:
    """Of a topic, and of a subscriber; in the order of their arrival."""
    records = [add(f"t{topic}", client=f"c{client}") for client in range(5) for topic in range(4) if client >= topic]
    relation = fold(*records, add("t0", parent="q"), remove("t3", client="c4"))
    rows = relation.subscribers("p", "t1")
    assert relation.count_of_topic("p", "t1") == len(rows) == 4
    assert [relation.page_of_topic("p", "t1", start, 3) for start in (0, 3, 6)] == [rows[:3], rows[3:], []]
    c4 = Subscriber("p", "g", "c4")
    assert relation.count_of_subscriber(c4) == 3
    assert [row.lite_topic for row in relation.page_of_subscriber(c4, 1, 5)] == ["t1", "t2"]
    assert relation.row(c4, "t2") == relation.page_of_subscriber(c4, 2, 1)[0]
    assert relation.row(c4, "t3") is None
    assert relation.parents() == {"p": len(relation) - 1, "q": 1}
    relation = fold(add("t"))  # a single row is a page, too
    assert len(relation.page_of_topic("p", "t", 0, 9)) == relation.count_of_topic("p", "t") == 1
    assert relation.page_of_topic("p", "t", 1, 9) == relation.page_of_topic("p", "x", 0, 9) == []
    nobody = Subscriber("x", "g", "c")
    assert relation.count_of_topic("x", "t") == relation.count_of_subscriber(nobody) == 0
    assert relation.page_of_topic("x", "t", 0, 9) == relation.page_of_subscriber(nobody, 0, 9) == []
    assert relation.row(nobody, "t") is None


def test_rows_that_are_not_admitted_are_left_out() -> None:
    """Rows that are held change and go whatever is admitted."""
    admitted = ["c"]
    relation = Relation(lambda subscriber: subscriber.client_id in admitted)
    assert relation.apply(*add("t")) is not None
    assert relation.apply(*add("t", client="d")) is None
    assert relation.apply(*remove("t", client="d")) is None
    admitted.clear()
    assert relation.apply(*add("t", changes={"version": 9})) is not None
    assert [row.version for row in relation.rows()] == [9]
    assert relation.apply(*remove("t")) is not None
    assert len(relation) == 0
    assert relation.parents() == {}


def test_a_row_has_the_fields_of_its_update() -> None:
    """Also fields of some updates only, and fields unknown to this version."""
    said = {"patterns": ["a__*", "**"], "cause": "TOPIC_CREATED", "version": 7, "eventId": "x-y"}
    (row,) = fold(add("a__b", changes=said)).rows()
    assert names(row) == ("p", "g", "c", "a__b", None)
    assert (row.patterns, row.cause, row.version, row.event_id) == (("a__*", "**"), "TOPIC_CREATED", 7, "x-y")
    assert row.lmq_name == "%LMQ%$p$a__b"
    assert row.further == {}
    further = {"offsetOption": {"type": "TAIL_N", "value": 10}, "resetOffset": True, "bitmap": "Ag==", "new": [1]}
    (row,) = fold(add(changes=further)).rows()
    assert row.further == further


def test_each_part_of_a_client_is_a_row() -> None:
    """The whole key identifies a row; a client receives a topic as long as one of its parts does."""
    parts = ("share:s1/a", "share:s2/a/+", "wamp:prefix:com.app", None)
    relation = fold(*(add(part=part) for part in parts), add("u", part="wamp:prefix:com.app"))
    assert [row.part for row in relation.subscribers("p", "t")] == list(parts)
    assert [row.share for row in relation.subscribers("p", "t")] == ["s1", "s2", None, None]
    assert relation.topics("p", "g", "c") == {"t", "u"}
    for part in parts:
        assert "t" in relation.topics("p", "g", "c")
        relation.apply(*remove(part=part))
    assert relation.topics("p", "g", "c") == {"u"}


@pytest.mark.parametrize("records", [[remove()], [gone()], [remove(), gone()], [gone(), gone()]])
def test_a_removed_row_is_gone_once(records: list[Record]) -> None:
    """By the REMOVE, or by the tombstone left of it after compaction."""
    first, *others = changes_of(add("other"), add(), *records)[2:]
    assert (first.op, names(first.row)) == (Op.REMOVE, ("p", "g", "c", "t", None))
    assert others == []
    assert [row.lite_topic for row in fold(add("other"), add(), *records).rows()] == ["other"]


def test_a_removal_says_why() -> None:
    """The fields of the update; after a tombstone alone, those of the former row."""
    added = add(changes={"patterns": ["a"]})
    end = remove(changes={"patterns": ["b"], "cause": "TOPIC_DELETED", "version": 9, "eventId": "x", "further": 1})
    _, change = changes_of(added, end)
    assert change.row == Row(Subscriber("p", "g", "c"), "t", ("b",), "TOPIC_DELETED", 9, "x", b'{"further":1}')
    assert change.former == changes_of(added)[0].row
    assert change.source["offset"] == 7
    _, change = changes_of(added, gone())
    assert change == Change(Op.REMOVE, changes_of(added)[0].row, changes_of(added)[0].row, {})


def test_a_newer_update_replaces_the_row() -> None:
    relation = fold(add(changes={"patterns": ["a"]}))
    change = relation.apply(*add(changes={"patterns": ["b"]}))
    assert change is not None
    assert change.former is not None
    assert (change.op, change.former.patterns, change.row.patterns) == (Op.ADD, ("a",), ("b",))
    assert relation.rows() == [change.row]
    assert len(relation) == 1


def test_the_last_of_two_updates_with_one_id_stays() -> None:
    """A job started again on the same input may write more under the same id; compaction keeps the last."""
    first, last = (add(changes={"eventId": "e", "patterns": [pattern]}) for pattern in "ab")
    assert len(changes_of(first, last)) == 1
    assert fold(first, last).rows() == fold(last).rows()


WRONG: dict[str, list[Any]] = {
    "op": [..., None, 1, ["ADD"], {}, "UPDATE"],
    "patterns": [..., None, "*", [1], {"*": 1}],
    "cause": [..., None, 1],
    "version": [..., "1", 1.5, True],
    "eventId": [..., None, 1],
    "source": [None, "s"],
}
MALFORMED: list[tuple[bytes | None, bytes | None]] = [
    (None, None),
    (b"", value()),
    (b"p", value()),
    (b"{}", None),
    (b'"pgct"', value()),
    (b'["p","g","c"]', value()),
    (b'["p","g","c","t","part","more"]', value()),
    (b'["p","g","c",7]', value()),
    (b'["p","g","c","t",null]', value()),
    (b"\xff", value()),
    (key(), b""),
    (key(), b"{"),
    (key(), b"\xff\xfe"),
    (key(), b"null"),
    (key(), b"[]"),
    (key(), b'"ADD"'),
    (key(), b"{}"),
    (key(), value()[:-1] + b',"x":' + b"[" * 300 + b"]" * 300 + b"}"),
    *((key(), value(**{field: wrong})) for field, values in WRONG.items() for wrong in values),
]


@pytest.mark.parametrize("record", MALFORMED)
def test_a_malformed_record_changes_nothing(record: tuple[bytes | None, bytes | None]) -> None:
    relation = fold(add(), add("u"))
    before = relation.rows()
    with pytest.raises(Malformed):
        relation.apply(*record)
    assert relation.rows() == before


def test_what_the_job_writes_is_understood() -> None:
    """Names with any characters come back as they were."""
    option = {"type": "OFFSET", "value": 3}
    relation = Relation()
    for name in ("a", 'a","b', "é", "😀", "\\", "\n", "\x01", "%LMQ%$a$b"):
        update = Update(
            JobOp.ADD,
            SubscriberKey(name, name),
            name,
            (name,),
            Cause.SUBSCRIBED,
            7,
            Source("s", 2, 40, 1, 1_700),
            option,
        )
        change = relation.apply(*UpdateWriter(name).record(update))
        (row,) = relation.subscribers(name, name)
        assert row == Row(Subscriber(name, name, name), name, (name,), "SUBSCRIBED", 7, row.event_id, row.further_json)
        assert row.further == {"offsetOption": option}
        assert change is not None
        assert change.source == {"topic": "s", "partition": 2, "offset": 40, "entry": 1, "timestamp": 1_700}
        relation.apply(*UpdateWriter(name).record(update._replace(op=JobOp.REMOVE)))
        assert len(relation) == 0


def test_nothing_is_left_of_what_is_removed() -> None:
    relation = fold()
    topics = [(parent, topic, part) for parent in "pq" for topic in "tuv" for part in (None, "share:s", "share:r")]
    for parent, topic, part in topics:
        relation.apply(*add(topic, parent=parent, part=part))
    for parent, topic, part in reversed(topics):
        relation.apply(*remove(topic, parent=parent, part=part))
    assert relation._parents == {}


@pytest.mark.parametrize("shape", ["each its own topic", "ten of each"])
def test_a_row_is_small(shape: str) -> None:
    """A million rows fit well into a gigabyte, also where no two rows share a topic or a client."""
    count, shared = 5_000, 1 if shape == "each its own topic" else 10

    def records() -> Any:
        for number in range(count):
            topic = f"eu__acme__order__created-{number // shared:07d}"
            client = f"client-{number // shared // 10 * 10 + number % shared:07d}@host-17"
            said = {"patterns": [topic], "eventId": f"{number:016x}-{number:016x}"}
            yield add(topic, client=client, group="billing", parent="orders", changes=said)

    relation = Relation()
    for record in records():  # what is kept for all rows together is not counted
        relation.apply(*record)
        break
    tracemalloc.start()
    try:
        for record in records():
            relation.apply(*record)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(relation) == count
    assert size / count < MAX_BYTES_A_ROW


def test_equal_texts_are_kept_once() -> None:
    rows = fold(*(add(topic, client=client) for topic in "tu" for client in "cd")).rows()
    for shared in ("subscriber", "lite_topic", "group", "patterns", "cause"):
        values = [getattr(row, shared) for row in rows]
        assert len({id(each) for each in values}) == len(set(values)), shared


def test_a_full_pool_forgets_and_goes_on() -> None:
    pool = Pool(room=2_000)
    for number in range(1_000):
        text = f"text {number}"
        assert pool.text(text) == text
        assert pool.texts((text, "a")) == (text, "a")
    assert len(pool._held) < 20


# Any history of updates gives the same relation after repetition and compaction.

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
    relation = fold(*log)
    assert set(relation.rows()) == {row for record in last.items() for row in fold(record).rows()}
    assert len(relation) == len(relation.rows())


@given(batches(), st.data())
def test_a_compacted_topic_gives_the_same_relation(written: list[Batch], data: st.DataObject) -> None:
    """Read from the start, also while it is being compacted, or from where one was."""
    log = [record for batch in written for record in batch]
    wanted = set(fold(*log).rows())
    cut, position = data.draw(st.integers(0, len(log))), data.draw(st.integers(0, len(log)))
    assert set(fold(*(record for _, record in compacted(log, cut, data, forgets=True))).rows()) == wanted
    rest = [record for offset, record in compacted(log, cut, data, forgets=False) if offset >= position]
    assert set(fold(*log[:position], *rest).rows()) == wanted


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
