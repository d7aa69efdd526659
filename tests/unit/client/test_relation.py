"""Effect of records on the relation."""

import tracemalloc
from typing import Any

import pytest

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


def test_an_added_row_is_found_by_topic_and_by_client() -> None:
    relation = fold(add("t1"), add("t2"), add("t1", client="d"), add("t1", parent="q"))
    assert [row.client_id for row in relation.subscribers("p", "t1")] == ["c", "d"]
    assert relation.topics("p", "g", "c") == {"t1", "t2"}
    assert len(relation) == len(relation.rows()) == 4


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


def test_a_single_row_is_a_page_too() -> None:
    relation = fold(add("t"))
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


def test_what_nobody_receives_has_no_subscribers() -> None:
    relation = fold(add("t"), remove("t"))
    assert relation.subscribers("p", "t") == fold().subscribers("p", "t") == []
    assert relation.topics("p", "g", "c") == fold(add("t")).topics("p", "g", "d") == set()
    assert relation.rows() == []


def test_a_row_says_what_its_update_said() -> None:
    said = {"patterns": ["a__*", "**"], "cause": "TOPIC_CREATED", "version": 7, "eventId": "x-y"}
    (row,) = fold(add("a__b", changes=said)).rows()
    assert names(row) == ("p", "g", "c", "a__b", None)
    assert (row.patterns, row.cause, row.version, row.event_id) == (("a__*", "**"), "TOPIC_CREATED", 7, "x-y")
    assert row.lmq_name == "%LMQ%$p$a__b"
    assert row.further == {}


def test_further_fields_are_kept() -> None:
    """Fields of some updates only, and fields unknown to this version."""
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


def test_a_removal_of_what_is_not_there_changes_nothing() -> None:
    assert changes_of(remove(), gone(), gone("t", parent="q")) == []


def test_a_newer_update_replaces_the_row() -> None:
    relation = fold(add(changes={"patterns": ["a"]}))
    change = relation.apply(*add(changes={"patterns": ["b"]}))
    assert change is not None
    assert change.former is not None
    assert (change.op, change.former.patterns, change.row.patterns) == (Op.ADD, ("a",), ("b",))
    assert relation.rows() == [change.row]
    assert len(relation) == 1


def test_a_repeated_update_is_no_change() -> None:
    batch = [add("t1"), add("t2"), remove("t3"), gone("t3")]
    changes = changes_of(add("t3"), *batch, *batch, *batch)
    assert [(change.op, change.row.lite_topic) for change in changes] == [
        (Op.ADD, "t3"),
        (Op.ADD, "t1"),
        (Op.ADD, "t2"),
        (Op.REMOVE, "t3"),
    ]


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
