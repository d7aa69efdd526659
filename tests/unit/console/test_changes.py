"""The last changes, within bounds."""

from typing import Any

import pytest

from streaming.client import Change, Op, Row, Subscriber
from streaming.console import budget
from streaming.console import changes as module
from streaming.console.budget import MAX_CHARACTERS
from streaming.console.changes import Changes


def change(topic: str = "t", op: Op = Op.ADD, client: str = "c", **source: Any) -> Change:
    row = Row(Subscriber("p", "g", client), topic, ("*",), "SUBSCRIBED", 1, "e")
    return Change(op, row, None, source)


def changes_of(*topics: str, op: Op = Op.ADD) -> Changes:
    changes = Changes()
    for topic in topics:
        changes.add(change(topic, op), 1, live=True)
    return changes


@pytest.mark.parametrize(
    ("seen", "size", "numbers", "missed"),
    [(7, 10, [8, 9, 10], 0), (10, 10, [], 0), (1, 100, [7, 8, 9, 10], 5), (1, 2, [9, 10], 7)],
)
def test_a_reader_gets_what_is_behind_its_number_and_how_many_it_has_missed(
    seen: int, size: int, numbers: list[int], missed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT", 4)
    found, left_out = changes_of(*map("t{}".format, range(1, 11))).since(seen, size)
    assert ([each.number for each in found], left_out) == (numbers, missed)
    assert [each.topic for each in found] == [f"t{number}" for number in numbers]


def test_one_answer_holds_a_bounded_number_of_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long names leave room for fewer changes, the last ones; patterns are kept in part."""
    changes = Changes()
    for number in range(100):
        row = Row(Subscriber("p", "g", "c"), f"{number}{'t' * 15_000}", ("*" * 16_000,) * 16, "SUBSCRIBED", 1, "e")
        changes.add(Change(Op.ADD, row, None, {}), 1, live=True)
    found, missed = changes.since(0, 200)
    assert sum(len(seen.topic) + sum(map(len, seen.patterns)) for seen in found) <= MAX_CHARACTERS
    assert (found[-1].number, missed) == (100, 100 - len(found))
    assert 10 < len(found) < 50
    monkeypatch.setattr(budget, "MAX_CHARACTERS", 1)
    assert [seen.number for seen in changes.since(0, 200)[0]] == [100]
    assert len(changes.of_pair(("p", "g", "c", None, f"7{'t' * 15_000}"))) == 1


def test_the_last_removal_of_a_pair_outlives_other_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", 2)
    monkeypatch.setattr(module, "REMOVALS", 2)
    changes = changes_of("first", "second", "third", op=Op.REMOVE)
    for _ in range(3):
        changes.add(change("other"), 1, live=True)
    pair = ("p", "g", "c", None)
    assert changes.of_pair((*pair, "first")) == []
    assert [seen.op for seen in changes.of_pair((*pair, "third"))] == ["REMOVE"]
    assert [seen.number for seen in changes.of_pair((*pair, "other"))] == [6, 5]


def test_only_live_changes_count_for_rates_and_latencies() -> None:
    changes = Changes()
    changes.add(change(timestamp=1), 10_000, live=False)
    assert changes.seconds() == []
    changes.add(change(timestamp=9_900), 10_000, live=True)
    changes.add(change(op=Op.REMOVE, timestamp=10_400), 10_500, live=True)
    changes.add(change(), 12_000, live=True)
    changes.add(change(timestamp=14_500), 14_000, live=True)  # by a clock that runs ahead
    assert [tuple(each) for each in changes.seconds()] == [(10, 1, 1, 100), (12, 1, 0, None), (14, 1, 0, 0)]


def test_clients_with_the_most_updates_come_first_without_those_read_at_the_start() -> None:
    changes = Changes()
    for client, live in (("old", False), ("a", True), ("b", True), ("b", True)):
        changes.add(change(client=client), 1, live=live)
    assert changes.busiest() == [(Subscriber("p", "g", "b"), 2), (Subscriber("p", "g", "a"), 1)]
