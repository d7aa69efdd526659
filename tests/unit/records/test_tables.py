"""Records by column are the same as those of `UpdateWriter.record`, to the byte."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.records import writing as records_module
from streaming.records.columns import MAX_SORT_KEY, Hits, Interner, Pairs
from streaming.records.subscribers import SubscriberKey
from streaming.records.updates import Op, UpdateColumns
from streaming.records.writing import MAX_PATTERN_BYTES, SEPARATOR, Tables, UpdateWriter
from tests.support.states import records
from tests.support.update_columns import AWKWARD, SUBSCRIBERS, columns_of, written


def table_records(columns: UpdateColumns) -> list[tuple[bytes, bytes | None]]:
    return list(records(SEPARATOR.join(Tables.of(UpdateWriter("p$é"), columns))))


@pytest.mark.rule("by-column")
@given(
    topics=st.lists(st.sampled_from(AWKWARD) | st.text(min_size=1), min_size=1, max_size=9),
    updates=st.lists(
        st.tuples(st.integers(0, 8), st.integers(0, 3), st.lists(st.sampled_from(AWKWARD), max_size=3).map(tuple)),
        min_size=1,
    ),
    kind=st.tuples(
        st.sampled_from(Op),
        st.integers(1, 3),
        st.builds(lambda first, count: range(first, first + count), st.integers(0, 70_000), st.integers(1, 3)),
    ),
    rest=st.tuples(
        st.none() | st.builds(lambda value: {"type": "TAIL_N", "value": value}, st.integers(-(1 << 63), (1 << 63) - 1)),
        st.booleans(),
    ),
    size=st.integers(1, 3_000),
    room=st.sampled_from([MAX_PATTERN_BYTES, 20]),
)
def test_they_are_those_of_each_update(
    *,
    topics: list[str],
    updates: list[tuple[int, int, tuple[str, ...]]],
    kind: tuple[Op, int, range],
    rest: tuple[dict[str, Any] | None, bool],
    size: int,
    room: int,
) -> None:
    """This holds for awkward names, any sources, any size of pieces, and for more patterns than an update names."""
    rows = [(row % len(topics), subscriber, patterns) for row, subscriber, patterns in updates]
    columns, one_by_one = columns_of(rows, topics, *kind)
    option, reset = rest
    columns = replace(columns, offset_option=option, reset=reset)
    one_by_one = [update._replace(offset_option=option, reset=reset) for update in one_by_one]
    assert list(columns.one_by_one()) == one_by_one
    records_module._PATTERNS.clear()
    with patch.object(records_module, "MAX_PATTERN_BYTES", room):
        assert table_records(columns) == written(one_by_one)
        assert [pair for piece in columns.pieces(size) for pair in table_records(piece)] == written(one_by_one)
    records_module._PATTERNS.clear()


@pytest.mark.parametrize("size", [1, 700, 1_500, 10_000, 21_000])
def test_pieces_are_of_some_size(size: int) -> None:
    """A piece has at most that size, and is not much smaller; a larger update is a piece of its own."""
    columns, one_by_one = columns_of([(0, 0, ("a",))] * 80, ["t"])
    *pieces, last = ([value for _, value in table_records(piece) if value] for piece in columns.pieces(size))
    assert sum(map(len, pieces)) + len(last) == len(one_by_one)
    assert all(len(b"".join(piece)) <= size or len(piece) == 1 for piece in [*pieces, last])
    assert all(len(b"".join(piece)) > size / 3 for piece in pieces)


def test_columns_of_nothing_have_no_pieces() -> None:
    columns, _ = columns_of([(0, 0, ())], ["t"])
    nothing = UpdateColumns(columns.op, columns.cause, [], columns.sources, columns.pairs.take(slice(0)), [])
    assert not list(nothing.pieces(1))


@pytest.mark.parametrize("max_sort_key", [MAX_SORT_KEY, 0])
def test_hits_of_one_subscriber_and_topic_are_one_pair(max_sort_key: int) -> None:
    """Its patterns are sorted, each once; everything adds none. There may be too many to order them by one number."""
    subscribers = [SubscriberKey("g", "one"), SubscriberKey("g", "two")]
    hits = Hits.of([(1, 0, 2), (0, 0, 1), (1, 0, 0), (1, 0, 2), (1, 1, -1), (1, 1, 1), (0, 1, -1), (1, 0, 1)])
    pairs = Pairs.of(hits, subscribers, ["b", "c", "a"], max_sort_key=max_sort_key)
    assert [
        (row, pairs.subscriber_table[subscriber].client_id, pairs.pattern_table[patterns])
        for row, subscriber, patterns in pairs.numbers()
    ] == [(0, "one", ("c",)), (0, "two", ()), (1, "one", ("a", "b", "c")), (1, "two", ("c",))]


asked = st.sets(st.tuples(st.integers(0, 5), st.sampled_from(SUBSCRIBERS)))


@given(these=asked, others=asked)
def test_what_others_ask_for_as_well_is_left_out(
    these: set[tuple[int, SubscriberKey]], others: set[tuple[int, SubscriberKey]]
) -> None:
    """Patterns do not matter for this."""

    def pairs_of(wanted: set[tuple[int, SubscriberKey]], text: str) -> Pairs:
        numbers: Interner[SubscriberKey] = Interner()
        hits = Hits.of((row, numbers[subscriber], 0) for row, subscriber in wanted)
        return Pairs.of(hits, numbers.items_by_number, [text])

    left = pairs_of(these, "a").without(pairs_of(others, "b"))
    found = [(row, left.subscriber_table[number]) for row, number in zip(left.rows, left.subscribers, strict=True)]
    assert len(found) == len(left)
    assert set(found) == these - others


def test_a_client_with_several_rows_for_a_topic_has_one_topic() -> None:
    subscribers = [SubscriberKey("g", "c", "wamp::a"), SubscriberKey("g", "c", "wamp::b"), SubscriberKey("g", "d")]
    pairs = Pairs.of(Hits.of([(0, 0, 0), (0, 1, 1), (1, 1, 1), (1, 2, 0)]), subscribers, ["a", "b"])
    counts = {key.client_id: count for key, count in pairs.topics_by_client().items()}
    assert counts == {"c": 2, "d": 1}
