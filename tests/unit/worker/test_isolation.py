"""An entry that raises an exception is one dead letter, and the other entries count as if it did not exist."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streaming.coordinator.rules import PendingEnds
from streaming.errors import EntriesLethal, StateCorrupted
from streaming.expansion import apply_events
from streaming.expansion.compare import Announcer
from streaming.expansion.micro_batch import RequestReader
from streaming.expansion.topics import TopicChanges
from streaming.records.model import Reason, Source
from streaming.records.updates import Problem
from streaming.records.writing import UpdateWriter
from streaming.spark import monitoring
from streaming.state import ShardState
from streaming.storage.store import StateStore
from streaming.tuning import Tuning
from streaming.worker import reading
from streaming.worker.reading import KeyReader
from streaming.worker.rows import InputRow, InputRows, OutputKind
from streaming.worker.worker import Worker, WorkerConfig
from tests.support.events import WILD, created, leave, replace, tick
from tests.support.simulator import TOPICS as NAMES
from tests.support.simulator import rows_of
from tests.support.states import CLOCK, GROUPS, HOME, SUBSCRIPTIONS, TOPICS, Written, forget, row, work

MARK = "marked"
ERRORS = [TypeError("x" * 100_000), RecursionError(), MemoryError(), ValueError("\ud800"), KeyError(), AssertionError()]

Patch = Callable[[pytest.MonkeyPatch, Exception], None]


@pytest.fixture(autouse=True)
def _nothing_known() -> None:
    """Each test begins as a new worker process."""
    forget()


def relation(output: Written) -> set[tuple[str, str]]:
    """Clients and topics that were added."""
    pairs = zip(output.kinds, output.keys, strict=True)
    return {(json.loads(key)[2], json.loads(key)[3]) for kind, key in pairs if kind == OutputKind.ADD}


def raising(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, error: Exception) -> None:
    """Let a function raise for arguments that name the marked entry."""
    known = getattr(owner, name)

    def patched(*arguments: Any, **named: Any) -> Any:
        if MARK in repr([each for each in arguments if not hasattr(each, "__dict__")]):
            raise error
        return known(*arguments, **named)

    monkeypatch.setattr(owner, name, patched)


def at_reader(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    raising(monkeypatch, reading, "json_object", error)


def at_request(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    raising(monkeypatch, RequestReader, "read", error)


def at_topic(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    raising(monkeypatch, TopicChanges, "read", error)
    raising(monkeypatch, TopicChanges, "read_columns", error)


def at_update(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    raising(monkeypatch, Announcer, "update", error)


def at_encoding(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    raising(monkeypatch, UpdateWriter, "record", error)


def at_apply(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Behind a part of the changes."""
    known = ShardState.apply

    def patched(state: ShardState, delta: Any) -> None:
        known(state, delta)
        if MARK in repr((delta.clients, delta.added)):
            raise error

    monkeypatch.setattr(ShardState, "apply", patched)


def requests(count: int, *marked: int) -> list[InputRow]:
    """Requests of many clients for the topic `t`, of which some have the mark."""
    return [
        row(SUBSCRIPTIONS, replace("t", client=f"{MARK}{number}" if number in marked else f"c{number}"), number)
        for number in range(count)
    ]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.parametrize("at", [at_reader, at_request, at_update, at_encoding, at_apply])
def test_a_request_that_raises_is_one_dead_letter(at: Patch, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    state, _ = work("p", 0, [row(TOPICS, created())], None, WorkerConfig(NAMES))
    good = requests(20)
    expected = work("p", 0, good[:7] + good[8:], state, WorkerConfig(NAMES))
    forget()
    at(monkeypatch, error)
    rows = requests(20, 7)
    after, output = work("p", 0, rows, state, WorkerConfig(NAMES))
    (letter,) = output.letters
    assert letter["reason"] == Reason.NOT_APPLICABLE
    assert letter["source"] == Source(NAMES[SUBSCRIPTIONS], 0, 7, 0, 1_007)._asdict()
    assert letter["original"] == (rows[7].payload or b"").decode()
    assert type(error).__name__ in letter["message"]
    assert len(letter["message"]) < 300
    assert relation(output) == relation(expected[1])
    forget()
    again = work("p", 0, rows[::-1], state, WorkerConfig(NAMES))
    assert (again[0], rows_of(again[1])) == (after, rows_of(output))
    monkeypatch.undo()
    following = [row(TOPICS, created("u"), 9), row(SUBSCRIPTIONS, replace("t", client="c0"), 30)]
    assert relation(work("p", 0, following, after, WorkerConfig(NAMES))[1]) == set()
    forget()
    assert work("p", 0, following, after, WorkerConfig(NAMES))[0] is not None


@pytest.mark.parametrize(
    ("at", "columnar"),
    [
        *((at, 1) for at in (at_reader, at_topic, at_apply)),
        *((at, 10_000) for at in (at_reader, at_topic, at_update, at_encoding, at_apply)),
    ],
)
def test_a_topic_event_that_raises_is_one_dead_letter(
    at: Patch, columnar: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many are read at once."""
    worker = Worker(WorkerConfig(NAMES), Tuning(columnar_min_topics=columnar))
    subscribed = [row(GROUPS, WILD), row(SUBSCRIPTIONS, replace("*"))]
    state, _ = work("p", 0, subscribed, None, worker)
    at(monkeypatch, TypeError())
    names = [f"{MARK}5" if number == 5 else f"t{number}" for number in range(30)]
    rows = [row(TOPICS, created(name, tags="x"), offset) for offset, name in enumerate(names)]
    _, output = work("p", 0, rows, state, worker)
    assert relation(output) == {("c", name) for name in names if name != f"{MARK}5"}
    assert [letter["source"]["offset"] for letter in output.letters] == [5]


def test_each_of_many_entries_that_raise_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a number of runs that grows with theirs, and hardly with that of the others."""
    state, _ = work("p", 0, [row(TOPICS, created())], None, WorkerConfig(NAMES))
    at_request(monkeypatch, TypeError())
    marked = (0, 3, 4, 77, 199)
    runs = 0

    def counted(*arguments: Any) -> Any:
        nonlocal runs
        runs += 1
        return apply_events(*arguments)

    monkeypatch.setattr("streaming.expansion.expansion.apply_events", counted)
    _, output = work("p", 0, requests(200, *marked), state, WorkerConfig(NAMES))
    assert [letter["source"]["offset"] for letter in output.letters] == list(marked)
    assert relation(output) == {(f"c{number}", "t") for number in range(200) if number not in marked}
    assert runs < 2 * len(marked) * 9


def test_a_request_that_stops_the_coordinator_stops_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [*requests(9, 4), row(SUBSCRIPTIONS, leave(parent=...), 9, 1)]
    expected = work(*HOME, requests(9)[:4] + requests(9)[5:] + rows[-1:], None, WorkerConfig(NAMES))
    forget()
    raising(monkeypatch, PendingEnds, "follow", TypeError())
    after, output = work(*HOME, rows, None, WorkerConfig(NAMES))
    assert [letter["source"]["offset"] for letter in output.letters] == [4]
    monkeypatch.undo()
    later = [row(CLOCK, tick(5_000), 20)]
    assert work(*HOME, later, after, WorkerConfig(NAMES))[1].kinds == (
        work(*HOME, later, expected[0], WorkerConfig(NAMES))[1].kinds
    )


def test_a_damaged_state_concerns_no_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (StateCorrupted("x"), OSError("the disk is full")):
        at_apply(monkeypatch, error)
        with pytest.raises(type(error)):
            work("p", 0, requests(9, 4), None, WorkerConfig(NAMES))
        monkeypatch.undo()


@pytest.mark.parametrize("key", [("p", 0), HOME])
def test_a_state_that_cannot_be_decoded_concerns_no_entry(
    key: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    state, _ = work(*key, requests(3), None, WorkerConfig(NAMES))
    forget()
    monkeypatch.setattr(StateStore, "load", _unreadable)
    with pytest.raises(StateCorrupted, match="cannot be decoded: KeyError at "):
        work(*key, requests(3), state, WorkerConfig(NAMES))


def _unreadable(*_: Any) -> None:
    raise KeyError


def test_an_entry_that_raises_behind_written_output_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark has that output already, so the task must fail."""
    worker = Worker(WorkerConfig(NAMES), Tuning(piece_bytes=1, updates_per_chunk=1))
    state, _ = work("p", 0, [row(TOPICS, created())], None, worker)
    at_encoding(monkeypatch, TypeError())
    for _ in range(2):
        with pytest.raises(EntriesLethal) as error:
            work("p", 0, requests(9, 4, 6), state, worker)
        (named,) = error.value.entries
        assert (named["topic"], named["partition"], named["offset"], named["entry"]) == (NAMES[SUBSCRIPTIONS], 0, 4, 0)
        assert named["reason"].startswith("the entry raised TypeError at ")


def test_an_excluded_entry_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    at_reader(monkeypatch, AssertionError())
    rows = InputRows.of([*requests(3, 1), *(row(TOPICS, created(f"t{n}"), n) for n in range(4))])
    problem = Problem(Source(NAMES[SUBSCRIPTIONS], 0, 1, 0, 1_001), Reason.NOT_APPLICABLE, "said before")
    topic = Problem(Source(NAMES[TOPICS], 0, 2, 0, 1_002), Reason.NOT_APPLICABLE, "said before")
    excluded = {each.source[:4]: each for each in (problem, topic)}
    for columnar in (1, 10):
        found = KeyReader("p", 0, NAMES, columnar, excluded=excluded).read(rows)
        assert found.rejected == [problem, topic]
        assert len(found.events) == (3 if columnar == 1 else 5)  # the topics that are left come as one


def test_the_driver_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the first ones in each key; the dead letters name all."""
    at_request(monkeypatch, TypeError("x" * 1_000))
    worker = Worker(WorkerConfig(NAMES))
    steps = worker.work("p", 0, InputRows.of(requests(20, *range(4, 20))), None)
    said = [
        payload for output in _outputs(steps) for kind, _, payload in output.all_rows() if kind == OutputKind.COUNTS
    ]
    total, _ = monitoring.add_up({"sink": {"metrics": {"counts": f"[{b','.join(said).decode()}]"}}})
    failures = sorted(monitoring.take(total, OutputKind.FAILURE))
    assert failures[0][:4] == [NAMES[SUBSCRIPTIONS], 0, 4, 0]
    assert "TypeError at tests" not in failures[0][4]
    assert total == {"dead-letter:not-applicable": 16}


def _outputs(steps: Any) -> Iterator[Any]:
    yield from steps
