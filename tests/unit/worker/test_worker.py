"""The work on one state key, and what a worker process keeps between micro-batches."""

import dataclasses
import json
from collections.abc import Generator, Iterator
from itertools import count
from typing import Any

import pytest

from streaming.coordinator import COORDINATOR, UNROUTABLE, bucket_of
from streaming.errors import StateCorrupted
from streaming.expansion.compare import Announcer
from streaming.records.model import BIND_TOPIC, QUOTA, WILDCARD, Reason
from streaming.records.routing import Routing
from streaming.records.updates import Update
from streaming.state.client import Ignored
from streaming.storage.journal import Journal, Position
from streaming.tuning import Tuning
from streaming.worker.rows import InputRow, InputRows, KeyFacts, Output, OutputKind, OutputRow
from streaming.worker.worker import SWEEP_MS, Worker, WorkerConfig
from tests.support.events import WILD, add, created, deleted, encoded, leave, replace, tick, wake, with_attributes
from tests.support.simulator import TOPICS as NAMES
from tests.support.simulator import Memories, rows_of
from tests.support.states import (
    CLOCK,
    GROUPS,
    HOME,
    SUBSCRIPTIONS,
    TOMBSTONE,
    TOPICS,
    Written,
    decode_home,
    forget,
    row,
    work,
)

SETTINGS = WorkerConfig(NAMES, Routing({"big": 3}))


@pytest.fixture(autouse=True)
def _nothing_known() -> None:
    """Each test begins as a new worker process."""
    forget()


def updates(output: Written) -> list[tuple[str, str]]:
    return [
        (kind, json.loads(key or b"")[3])
        for kind, key in zip(output.kinds, output.keys, strict=True)
        if kind in (OutputKind.ADD, OutputKind.REMOVE, TOMBSTONE)
    ]


SUBSCRIBED = [row(GROUPS, WILD), row(SUBSCRIPTIONS, replace("*"))]


# InputRows in, new bytes and output rows out.


@pytest.mark.rule("order-of-inputs")
def test_rows_come_in_any_order() -> None:
    rows = [*SUBSCRIBED, row(TOPICS, created()), row(TOPICS, deleted(), 1)]
    rows += [row(TOPICS, created("u"), 2)]
    expected = work("p", 0, rows, None, SETTINGS)
    reversed_ = work("p", 0, rows[::-1], None, SETTINGS)
    assert reversed_[0] == expected[0]
    assert rows_of(reversed_[1]) == rows_of(expected[1])
    assert updates(expected[1]) == [(OutputKind.ADD, "u")]


@pytest.mark.parametrize("many", [1, 64])
def test_the_time_comes_behind_topics_however_many(many: int) -> None:
    """Each stream is read as it is when it has many rows."""
    worker = Worker(SETTINGS, Tuning(columnar_min_topics=many))
    data, _ = work("p", 0, [*SUBSCRIBED, row(TOPICS, created(ttlMs=1_000))], None, worker)
    late = row(CLOCK, wake(70_000))
    _, output = work("p", 0, [late, row(TOPICS, created("u"), 1)], data, worker)
    assert sorted(updates(output)) == [(OutputKind.ADD, "u"), (OutputKind.REMOVE, "t"), (TOMBSTONE, "t")]


def test_rows_with_equal_places_need_no_comparison_of_payloads() -> None:
    """A stream may have deletions, whose payload is None, but no two records at one place."""
    _, output = work("p", 0, [row(TOPICS, None, 1), row(TOPICS, b"", 2), row(TOPICS, None, 3)], None, SETTINGS)
    assert [letter["source"]["offset"] for letter in output.letters] == [1, 2, 3]


def test_nothing_changed_gives_the_very_same_bytes() -> None:
    """The job tells by this that it need not write the state."""
    data, _ = work("p", 0, [*SUBSCRIBED, row(TOPICS, created())], None, SETTINGS)
    again, output = work("p", 0, [row(TOPICS, created(), 1)], data, SETTINGS)
    assert again is data
    assert (output.kinds, output.ignored) == ([], {Ignored.TOPIC_EXISTS: 1})


def test_nothing_left_gives_no_bytes() -> None:
    data, _ = work("p", 0, [row(TOPICS, created())], None, SETTINGS)
    assert data is not None
    nothing, _ = work("p", 0, [row(TOPICS, deleted(), 1)], data, SETTINGS)
    assert nothing is None


@pytest.mark.rule("damaged-state")
def test_damaged_bytes_are_not_worked_on() -> None:
    """By a worker that does not hold what they were."""
    data, _ = work("p", 0, SUBSCRIBED, None, SETTINGS)
    assert data is not None
    forget()
    with pytest.raises(StateCorrupted):
        work("p", 0, [row(TOPICS, created())], data[:-1] + bytes([data[-1] ^ 1]), SETTINGS)


BIG = [("big", number) for number in range(3)]
OTHER_HOME, NOWHERE = (COORDINATOR, HOME[1] + 1), (COORDINATOR, UNROUTABLE)
END = encoded(leave(parent=...))
REPORTED: list[tuple[InputRow, dict[tuple[str, int], Reason | None]]] = [
    # All shards and the coordinator see a request or a group event, so the coordinator reports it.
    (row(GROUPS, with_attributes({BIND_TOPIC: "big"}, group=" ")), {HOME: Reason.BLANK_NAME, **dict.fromkeys(BIG)}),
    (row(SUBSCRIPTIONS, replace("t", parent="big", client="")), {HOME: Reason.BLANK_NAME, **dict.fromkeys(BIG)}),
    (row(TOPICS, created(parent="big", event="?")), dict.fromkeys(BIG, Reason.UNKNOWN_EVENT)),
    (row(CLOCK, wake("?", "big")), dict.fromkeys(BIG, Reason.WRONG_TYPE)),
    # The first shard reports a request of another parent; for the coordinator it is as good as any.
    (row(SUBSCRIPTIONS, replace("t", parent="q")), {HOME: None, **dict.fromkeys(BIG), BIG[0]: Reason.NOT_ROUTABLE}),
    (row(CLOCK, wake(5, "big", 1)), {BIG[1]: None, BIG[2]: Reason.NOT_ROUTABLE}),
    # A shard is not told the time by ticks and alarms.
    (row(CLOCK, tick(5_000)), {("p", 0): Reason.NOT_ROUTABLE, NOWHERE: Reason.NOT_ROUTABLE}),
    (row(CLOCK, {"alarm": 5, "parentTopic": "p", "shard": 0}), {("p", 0): Reason.NOT_ROUTABLE}),
    # The JVM may place nowhere, or elsewhere, what Python can place. No shard sees it.
    (row(SUBSCRIPTIONS, replace("t")), {NOWHERE: Reason.NOT_ROUTABLE}),
    (row(TOPICS, created()), {NOWHERE: Reason.NOT_ROUTABLE}),
    (row(GROUPS, b"?"), {NOWHERE: Reason.NOT_JSON}),
    (row(GROUPS, WILD), {OTHER_HOME: Reason.NOT_ROUTABLE, BIG[0]: None}),
    (row(SUBSCRIPTIONS, None, entry=1), {NOWHERE: Reason.NOT_JSON}),
    (row(SUBSCRIPTIONS, replace("t", parent=...), entry=1), {HOME: Reason.MISSING_FIELD}),
    (row(SUBSCRIPTIONS, replace("t"), entry=1), {HOME: Reason.NOT_ROUTABLE}),
    (row(SUBSCRIPTIONS, END, entry=1), {OTHER_HOME: Reason.NOT_ROUTABLE}),
    (row(SUBSCRIPTIONS, END, entry=0), {HOME: None}),
    (row(TOPICS, created(parent="")), {NOWHERE: Reason.BLANK_NAME}),
    (row(CLOCK, b"{}"), {NOWHERE: Reason.MISSING_FIELD}),
    (row(CLOCK, {"alarm": 5, "parentTopic": "g", "shard": 0}), {OTHER_HOME: Reason.NOT_ROUTABLE}),
    (row(CLOCK, wake(5, "g")), {HOME: Reason.NOT_ROUTABLE}),
]


@pytest.mark.parametrize(("entry", "reports"), REPORTED)
def test_one_of_the_keys_that_see_an_entry_reports_it(
    entry: InputRow, reports: dict[tuple[str, int], Reason | None]
) -> None:
    for key, reason in reports.items():
        data, output = work(*key, [entry], None, SETTINGS)
        assert output.reasons == ([] if reason is None else [reason]), key
        assert data is None or reason is None


def test_a_dead_letter_shows_its_own_entry() -> None:
    """Of several entries of one record."""
    entries = [encoded(replace("ok", f"{name}*", client=name)) for name in "abc"]
    rows = [row(GROUPS, WILD), *(row(SUBSCRIPTIONS, entry, 5, 2 * at) for at, entry in enumerate(entries))]
    _, output = work("p", 0, rows, None, SETTINGS)
    shown = [(letter["source"]["entry"], letter["original"].encode()) for letter in output.letters]
    assert shown == list(enumerate(entries))
    assert set(output.reasons) == {Reason.INVALID_PATTERN}


@pytest.mark.parametrize("entries", [[" "], [" ", "t"], ["", "\t"]])
def test_a_blank_pattern_is_a_dead_letter(entries: list[str]) -> None:
    """What stands beside it is applied; alone it never widens to everything."""
    rows = [row(GROUPS, WILD), row(SUBSCRIPTIONS, replace(*entries), 1)]
    _, output = work("p", 0, [*rows, row(TOPICS, created()), row(TOPICS, created("u"), 1)], None, SETTINGS)
    (letter,) = output.letters
    assert (letter["reason"], letter["source"]["offset"]) == (Reason.INVALID_PATTERN, 1)
    assert "a pattern is blank" in letter["message"]
    assert updates(output) == ([(OutputKind.ADD, "t")] if "t" in entries else [])


@pytest.mark.rule("duplicate-fields")
@pytest.mark.parametrize(
    ("stream", "payload"),
    [
        (SUBSCRIPTIONS, b'{"topic":"p",' + encoded(replace("t", parent="q"))[1:]),
        (TOPICS, b'{"parentTopic":"p",' + encoded(created(parent="q"))[1:]),
    ],
)
def test_a_text_that_names_two_parents_is_a_dead_letter(stream: int, payload: bytes) -> None:
    """Spark may read the first where Python would read the last."""
    data, output = work("p", 0, [row(stream, payload)], None, SETTINGS)
    assert data is None
    # The coordinator, which sees each request, speaks of those.
    _, home = work(*HOME, [row(stream, payload)], None, SETTINGS)
    assert (home if stream == SUBSCRIPTIONS else output).reasons == [Reason.DUPLICATE_FIELD]
    assert stream == TOPICS or not output.letters


def test_a_shard_asks_to_be_woken_once_for_each_time() -> None:
    """Topics that end within the same step share an alarm; those that end in this batch need none."""
    made = [row(TOPICS, created(name, ttlMs=60_000), at) for at, name in enumerate("ab")]
    data, output = work("p", 0, made, None, SETTINGS)
    assert output.payloads_of("input:clock") == [{"alarm": 70_000, "parentTopic": "p", "shard": 0}]
    _, output = work("p", 0, [row(TOPICS, created("c", ttlMs=60_000), 5)], data, SETTINGS)
    assert output.kinds == []
    late = [row(CLOCK, wake(70_000), 9)]
    nothing, output = work("p", 0, late, data, SETTINGS)
    assert (nothing, output.kinds) == (None, [])


def test_the_parts_of_a_state_that_has_gone_are_removed() -> None:
    """The shard asks to be woken for that, once in a while, until Spark keeps none of their states any more."""
    archives = Memories()
    worker = Worker(
        dataclasses.replace(SETTINGS, archives=archives), Tuning(inline_bytes=100, retained_micro_batches=5)
    )
    names = [f"{number:050}" for number in range(9)]
    data, _ = work("p", 0, [row(TOPICS, created(name), at) for at, name in enumerate(names)], None, worker, batch=1)
    assert len(archives.of("p", 0)) == 1
    gone = [row(TOPICS, deleted(name), at) for at, name in enumerate(names)]
    for batch, rows, left in (2, gone, 1), (6, [woken(0)], 1), (8, [woken(SWEEP_MS)], 0):
        data, output = work("p", 0, rows, data, worker, batch=batch)
        assert len(archives.of("p", 0)) == left
        alarms = [json.loads(value or b"") for value in output.payloads if b'"alarm"' in (value or b"")]
        assert alarms == [{"alarm": SWEEP_MS, "parentTopic": "p", "shard": 0}] * left
    assert data is None


def woken(time: int) -> InputRow:
    """The row that wakes the shard."""
    return row(CLOCK, wake(time), 9)


BATCHES = [
    [row(TOPICS, created("u"), 1), row(SUBSCRIPTIONS, add("t"), 1)],
    [row(TOPICS, deleted(), 1)],
    [row(GROUPS, with_attributes({BIND_TOPIC: "p"}), 1)],
    [row(SUBSCRIPTIONS, leave(), 1)],
    [row(SUBSCRIPTIONS, replace("a*"), 1), row(TOPICS, b"?", 1)],
]


@pytest.mark.rule("isolation-of-entries")
def test_what_was_done_is_counted() -> None:
    """By kind, cause and reason; tombstones and the job's own events are no part of it."""
    rows = [*SUBSCRIBED, row(TOPICS, created()), row(TOPICS, created(), 1), row(TOPICS, b"?", 2)]
    data, (kind, _, counts) = last_row(rows, None)
    counted = json.loads(counts or b"")
    assert KeyFacts(*counted.pop("facts"))[:4] == ("p", 0, 1, 1)
    assert (kind, counted) == (
        OutputKind.COUNTS,
        {"add:TOPIC_CREATED": 1, "dead-letter:not-json": 1, "ignored:topic-exists": 1},
    )
    _, (kind, _, counts) = last_row([row(TOPICS, deleted(), 3)], data)
    counted = json.loads(counts or b"")
    assert KeyFacts(*counted.pop("facts"))[:4] == ("p", 0, 0, 1)
    assert (kind, counted) == (OutputKind.COUNTS, {"remove:TOPIC_DELETED": 1})
    assert not list(Output().all_rows())


def last_row(rows: list[InputRow], data: bytes | None) -> tuple[bytes | None, OutputRow]:
    (output,), data = pieces_of(Worker(SETTINGS).work("p", 0, InputRows.of(rows), data))
    *_, last = output.all_rows()
    return data, last


# A batch whose result was not stored is computed again from the old bytes.


@pytest.fixture
def data() -> bytes:
    """A state, which the cache holds decoded."""
    data, _ = work("p", 0, [*SUBSCRIBED, row(TOPICS, created())], None, SETTINGS)
    assert data is not None
    return data


@pytest.mark.rule("repeated-micro-batch", "end-before-commit")
@pytest.mark.parametrize("rows", BATCHES)
def test_a_result_that_was_not_stored_is_repeated_to_the_byte(data: bytes, rows: list[InputRow]) -> None:
    """The cache holds the changed state by then, and must not use it."""
    first = work("p", 0, rows, data, SETTINGS)
    again = work("p", 0, rows, data, SETTINGS)
    assert again[0] == first[0]
    assert rows_of(again[1]) == rows_of(first[1])


@pytest.mark.parametrize("rows", BATCHES[:4])
def test_a_task_that_fails_after_it_changed_the_state_is_repeated(
    data: bytes, rows: list[InputRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    append, calls = Journal.append, count()

    def fails_once(journal: Journal, *arguments: Any) -> Journal:
        if not next(calls):
            raise OSError("the task ends")
        return append(journal, *arguments)

    monkeypatch.setattr(Journal, "append", fails_once)
    with pytest.raises(OSError, match="the task ends"):
        work("p", 0, rows, data, SETTINGS)
    again = work("p", 0, rows, data, SETTINGS)
    forget()
    clean = work("p", 0, rows, data, SETTINGS)
    assert again[0] == clean[0]
    assert rows_of(again[1]) == rows_of(clean[1])


def test_another_worker_gives_the_same(data: bytes) -> None:
    """States decoded anew and states kept give the same bytes over several batches."""
    kept, decoded, warm = data, data, Worker(SETTINGS)
    for number, rows in enumerate(BATCHES):
        moved = [each._replace(offset=10 + number) for each in rows]
        one = work("p", 0, moved, kept, warm)
        other = work("p", 0, moved, decoded, Worker(SETTINGS))
        assert one[0] == other[0]
        assert rows_of(one[1]) == rows_of(other[1])
        assert one[0] is not None
        kept = decoded = one[0]


def test_workers_by_turns_give_what_one_gives() -> None:
    """A state that is brought up to what another worker did keeps no counts from before."""
    turns = [Worker(SETTINGS) for _ in range(2)]
    group = encoded(with_attributes({BIND_TOPIC: "p", WILDCARD: "", QUOTA: 2}))
    low = encoded(with_attributes({BIND_TOPIC: "p", QUOTA: 0}, group="h"))
    batches = [[row(GROUPS, group, 0), row(GROUPS, low, 1), row(SUBSCRIPTIONS, replace("*"))]]
    events = [(name, "CREATED") for name in "abcd"] + [(name, "DELETED") for name in "acb"]
    events += [(name, "CREATED") for name in "efgh"]
    for offset, (name, event) in enumerate(events):
        batches.append([row(TOPICS, created(name, event=event), offset)])
    data: bytes | None = None
    for number, rows in enumerate(batches):
        alone = work("p", 0, rows, data, Worker(dataclasses.replace(SETTINGS, state_cache_bytes=0)))
        renewed = work("p", 0, rows, data, turns[number // 2 % 2])
        assert rows_of(renewed[1]) == rows_of(alone[1])
        assert renewed[0] == alone[0]
        data = renewed[0]


def test_the_state_that_was_encoded_is_used_by_the_next_batch(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is decoded as long as batches go on from what this process wrote."""

    def no_decoding(journal: Journal, after: Position) -> Iterator[Any]:
        assert after == journal.position, "decoded"
        return iter(())

    monkeypatch.setattr(Journal, "changes", no_decoding)
    for number in range(3):
        renewed, _ = work("p", 0, [row(TOPICS, created(str(number)), 10 + number)], data, SETTINGS)
        assert renewed is not None
        data = renewed


# The homes, and what has no place.


@pytest.fixture
def placed() -> bytes:
    """Group `g` on parent `p`."""
    data, output = work(*HOME, [row(GROUPS, WILD)], None, SETTINGS)
    assert output.kinds == []
    assert data is not None
    return data


def parents(data: bytes | None) -> dict[str, str]:
    return {group: bound.parent for group, bound in decode_home(data).bindings.items()}


def test_a_group_that_moves_is_told_to_the_parent_that_it_leaves(placed: bytes) -> None:
    moved = [row(GROUPS, with_attributes({BIND_TOPIC: "q", WILDCARD: ""}), 8)]
    renewed, output = work(*HOME, moved, placed, SETTINGS)
    assert parents(renewed) == {"g": "q"}
    assert output.kinds == ["input:groups"]
    assert json.loads(output.payloads[0] or b"")["parentTopic"] == "p"
    again = work(*HOME, moved, placed, SETTINGS)
    assert (again[0], rows_of(again[1])) == (renewed, rows_of(output))
    forget()
    cold = work(*HOME, moved, placed, SETTINGS)
    assert (cold[0], rows_of(cold[1])) == (renewed, rows_of(output))


def test_a_home_without_change_gives_the_very_same_bytes(placed: bytes) -> None:
    rows = [row(GROUPS, with_attributes({}, parentTopic="q"), 9), row(CLOCK, tick(0), 9)]
    unknown = next(name for name in map("h{}".format, range(99)) if bucket_of(name) == HOME[1])
    again, output = work(*HOME, [*rows, row(GROUPS, with_attributes({}, group=unknown), 10)], placed, SETTINGS)
    assert again is placed
    assert (output.kinds, output.ignored) == ([], {Ignored.GROUP_UNKNOWN: 1})


def test_the_last_group_leaves_no_bytes(placed: bytes) -> None:
    renewed, output = work(*HOME, [row(GROUPS, with_attributes({}), 9)], placed, SETTINGS)
    assert renewed is None
    assert output.kinds == ["input:groups"]


def test_a_request_elsewhere_is_reported_by_home_with_its_own_entry(placed: bytes) -> None:
    """Of several entries of one record, on any parent; only the one that names no parent is no shard's."""
    entries = [encoded(replace("t")), encoded(replace("t", parent="q")), encoded(leave(parent=...))]
    rows = [row(SUBSCRIPTIONS, entry, 5, 2 * at) for at, entry in enumerate(entries[:2])]
    _, output = work(*HOME, [row(SUBSCRIPTIONS, entries[2], 5, 2 * 2 + 1), *rows], placed, SETTINGS)
    (letter,) = output.letters
    assert (letter["reason"], letter["source"]["entry"]) == (Reason.GROUP_BOUND_ELSEWHERE, 1)
    assert letter["original"].encode() == entries[1]
    assert output.kinds.count("input:subscriptions") == 2


def test_the_end_of_a_client_everywhere_names_its_own_entry() -> None:
    """Also that of an entry that cannot be read: its position is the one in its record."""
    data, _ = work(*HOME, [row(SUBSCRIPTIONS, replace("t"))], None, SETTINGS)
    leaving = row(SUBSCRIPTIONS, leave(parent=" "), 7, 5)
    _, output = work(*HOME, [leaving], data, SETTINGS)
    assert [json.loads(payload or b"")["asOf"] for payload in output.payloads] == [[0, 7, 1_007, 2]]
    _, output = work(*HOME, [leaving._replace(payload=encoded(replace("t", parent=...)))], data, SETTINGS)
    assert [letter["source"]["entry"] for letter in output.letters] == [2]


# What a wide pattern finds leaves in pieces.


def pieces_of(steps: Generator[Output, None, bytes | None]) -> tuple[list[Output], bytes | None]:
    pieces = []
    while True:
        try:
            pieces.append(next(steps))
        except StopIteration as end:
            return pieces, end.value


@pytest.mark.parametrize("quota", [-1, 1_000])
def test_output_comes_in_pieces(quota: int) -> None:
    """Each of so many updates, together what one piece would hold; the state is that of the whole."""
    group = encoded(with_attributes({BIND_TOPIC: "p", WILDCARD: "", QUOTA: quota}))
    topics = [row(TOPICS, created(f"t{number}"), number) for number in range(25)]
    data, _ = work("p", 0, [row(GROUPS, group), *topics], None, SETTINGS)
    rows = [row(SUBSCRIPTIONS, replace("*", "**"), 30), row(TOPICS, b"?", 31)]
    whole = work("p", 0, rows, data, SETTINGS)
    worker = Worker(SETTINGS, Tuning(piece_bytes=1, updates_per_chunk=10))
    outputs, stored = pieces_of(worker.work("p", 0, InputRows.of(rows), data))
    pieces = [written(output) for output in outputs]
    assert stored == whole[0]
    assert [piece.kinds.count(OutputKind.ADD) for piece in pieces] == [10, 10, 5, 0, 0]
    assert sorted(key or b"" for piece in pieces for key in piece.keys) == sorted(key or b"" for key in whole[1].keys)
    assert sum(len(piece.letters) for piece in pieces) == 1


def written(output: Output) -> Written:
    found = Written()
    found.add(output)
    return found


def test_what_no_quota_concerns_is_found_while_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before: there may be any number of it."""
    group = encoded(with_attributes({BIND_TOPIC: "p", WILDCARD: "", QUOTA: -1}))
    topics = [row(TOPICS, created(f"t{number}"), number) for number in range(3_000)]
    data, _ = work("p", 0, [row(GROUPS, group), *topics], None, SETTINGS)
    worker = Worker(SETTINGS, Tuning(piece_bytes=1, updates_per_chunk=10))
    made = 0
    update = Announcer.update

    def counted(self: Announcer, *arguments: Any, **named: Any) -> Update:
        nonlocal made
        made += 1
        return update(self, *arguments, **named)

    monkeypatch.setattr(Announcer, "update", counted)
    steps = worker.work("p", 0, InputRows.of([row(SUBSCRIPTIONS, replace("*"))]), data)
    for number in range(1, 4):
        next(steps)
        assert made == 10 * number
