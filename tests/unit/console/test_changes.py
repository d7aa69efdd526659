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


def test_a_reader_gets_what_is_behind_its_number() -> None:
    changes = Changes()
    for number in range(5):
        changes.add(change(f"t{number}"), 1, live=True)
    found, missed = changes.since(2, 10)
    assert [seen.topic for seen in found] == ["t2", "t3", "t4"]
    assert missed == 0
    assert changes.since(5, 10) == ([], 0)


def test_a_slow_reader_is_told_how_many_it_has_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", 4)
    changes = Changes()
    for number in range(10):
        changes.add(change(f"t{number}"), 1, live=True)
    found, missed = changes.since(1, 100)
    assert [seen.number for seen in found] == [7, 8, 9, 10]
    assert missed == 5
    found, missed = changes.since(1, 2)
    assert [seen.number for seen in found] == [9, 10]
    assert missed == 7


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
    changes = Changes()
    for topic in ("first", "second", "third"):
        changes.add(change(topic, Op.REMOVE), 1, live=True)
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
    assert [tuple(second) for second in changes.seconds()] == [(10, 1, 1, 100), (12, 1, 0, None)]


def test_a_clock_that_runs_ahead_gives_no_negative_latency() -> None:
    changes = Changes()
    changes.add(change(timestamp=10_500), 10_000, live=True)
    assert changes.seconds()[0].worst_ms == 0
