"""The work on one state key, and what a worker process keeps between micro-batches."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from streaming import codec, placement, state, worker
from streaming.errors import StateCorrupted
from streaming.events import BIND_TOPIC, WILDCARD, Reason
from streaming.routing import Routing
from streaming.state import Delta, ShardState
from streaming.worker import Kind, Output, Row, Settings, StateCache, work
from tests.support.simulator import rows_of
from tests.unit.streaming.builders import group_json, request_json, topic_json

GROUPS, SUBSCRIPTIONS, TOPICS = range(3)
BUCKET = placement.bucket_of("g")
SETTINGS = Settings(("groups", "subscriptions", "topics"), Routing({"big": 3}))


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch) -> StateCache:
    """A cache of this test alone."""
    fresh: StateCache = StateCache(worker.CACHE_BYTES)
    monkeypatch.setattr(worker, "_CACHE", fresh)
    return fresh


def row(stream: int, payload: bytes | None, offset: int = 0, entry: int = 0) -> Row:
    return Row(stream, 0, offset, entry, 1_000 + offset, payload)


def letters(output: Output) -> list[dict[str, Any]]:
    return [json.loads(payload or b"") for kind, payload in zip(output.kinds, output.payloads, strict=True)
            if kind == Kind.DEAD_LETTER]  # fmt: skip


def updates(output: Output) -> list[tuple[str, str]]:
    return [
        (kind, json.loads(key or b"")[3])
        for kind, key in zip(output.kinds, output.keys, strict=True)
        if kind in (Kind.ADD, Kind.REMOVE, Kind.TOMBSTONE)
    ]


SUBSCRIBED = [row(GROUPS, group_json()), row(SUBSCRIPTIONS, request_json(liteTopicSet=["*"]))]


# The cache serves a state for bytes that begin with those that it stands for.


def put(cache: StateCache, name: str, size: int) -> tuple[bytes, ShardState]:
    """Keeps a state that stands for so many bytes."""
    data, decoded = name[:1].encode() * size, ShardState()
    cache.put((name, 0), data, decoded)
    return data, decoded


def test_a_state_is_taken_out() -> None:
    """Whoever takes it may change it, so nobody else must get it."""
    cache = StateCache(1_000)
    data, decoded = put(cache, "a", 100)
    assert cache.take(("a", 0), data) is decoded
    assert cache.take(("a", 0), data) is None


def test_keys_are_parent_and_shard() -> None:
    cache = StateCache(1_000)
    data, decoded = put(cache, "a", 100)
    assert cache.take(("a", 1), data) is None
    assert cache.take(("b", 0), data) is None
    assert cache.take(("a", 0), data) is decoded


def test_a_state_of_other_bytes_is_never_used() -> None:
    """Nor is it kept: the bytes that it stands for are not the ones in the store."""
    cache = StateCache(1_000)
    data, _ = put(cache, "a", 100)
    assert cache.take(("a", 0), b"y" * 100) is None
    assert cache.take(("a", 0), data) is None


def test_a_state_is_brought_up_to_what_another_worker_appended() -> None:
    cache = StateCache(1_000)
    decoded = ShardState()
    decoded.apply(Delta(["a"]))
    former = state.encode(decoded)
    cache.put(("p", 0), former, decoded)
    elsewhere = state.decode(former)
    elsewhere.apply(Delta(["b"]))
    renewed = state.renew(former, elsewhere, Delta(["b"]))
    assert renewed is not None
    assert renewed.startswith(former)
    assert cache.take(("p", 0), renewed) is decoded
    assert list(decoded.topics) == ["a", "b"]


def test_a_state_that_another_worker_wrote_anew_is_decoded_anew() -> None:
    """Its bytes hold the same, but no longer begin with those that are known."""
    cache = StateCache(1_000)
    decoded = ShardState()
    decoded.apply(Delta(["a", "b"]))
    appended = codec.append(state.encode(ShardState()), [["a", "b"], [], [], []])
    cache.put(("p", 0), appended, decoded)
    assert cache.take(("p", 0), state.encode(decoded)) is None


def test_nothing_is_kept_for_no_bytes() -> None:
    cache = StateCache(1_000)
    cache.put(("a", 0), None, ShardState())
    assert cache.take(("a", 0), b"") is None


def test_the_least_recently_used_goes_first() -> None:
    """Until the rest has room, in bytes."""
    cache = StateCache(1_000)
    kept = {name: put(cache, name, 300) for name in "abc"}
    assert cache.take(("a", 0), kept["a"][0]) is kept["a"][1]
    kept["a"] = put(cache, "a", 300)
    kept["d"] = put(cache, "d", 400)  # 1,300: b has to go
    assert cache.take(("b", 0), kept["b"][0]) is None
    for name in "acd":
        assert cache.take((name, 0), kept[name][0]) is kept[name][1]


def test_exactly_as_many_bytes_as_allowed_are_kept() -> None:
    cache = StateCache(1_000)
    a, b = put(cache, "a", 500), put(cache, "b", 500)
    assert cache.take(("a", 0), a[0]) is a[1]
    assert cache.take(("b", 0), b[0]) is b[1]


def test_a_state_larger_than_the_cache_is_not_kept() -> None:
    cache = StateCache(1_000)
    large, _ = put(cache, "large", 1_001)
    assert cache.take(("large", 0), large) is None
    small, decoded = put(cache, "small", 1_000)
    assert cache.take(("small", 0), small) is decoded


def test_what_is_taken_or_replaced_makes_room() -> None:
    cache = StateCache(1_000)
    for _ in range(10):
        put(cache, "a", 600)
        data, decoded = put(cache, "a", 900)
        assert cache.take(("a", 0), data) is decoded


# Rows in, new bytes and output rows out.


def test_rows_come_in_any_order() -> None:
    rows = [*SUBSCRIBED, row(TOPICS, topic_json()), row(TOPICS, topic_json(event="DELETED"), 1)]
    rows += [row(TOPICS, topic_json(liteTopic="u"), 2)]
    expected = work("p", 0, rows, None, SETTINGS)
    reversed_ = work("p", 0, rows[::-1], None, SETTINGS)
    assert reversed_[0] == expected[0]
    assert rows_of(reversed_[1]) == rows_of(expected[1])
    assert updates(expected[1]) == [(Kind.ADD, "u")]


def test_rows_with_equal_places_need_no_comparison_of_payloads() -> None:
    """A stream may have deletions, whose payload is None, but no two records at one place."""
    _, output = work("p", 0, [row(TOPICS, None, 1), row(TOPICS, b"", 2), row(TOPICS, None, 3)], None, SETTINGS)
    assert [letter["source"]["offset"] for letter in letters(output)] == [1, 2, 3]


def test_a_remove_stands_before_its_tombstone() -> None:
    data, _ = work("p", 0, [*SUBSCRIBED, row(TOPICS, topic_json())], None, SETTINGS)
    _, output = work("p", 0, [row(TOPICS, topic_json(event="DELETED"), 1)], data, SETTINGS)
    assert updates(output) == [(Kind.REMOVE, "t"), (Kind.TOMBSTONE, "t")]
    assert output.payloads[1] is None


def test_nothing_changed_gives_the_very_same_bytes() -> None:
    """The job tells by this that it need not write the state."""
    data, _ = work("p", 0, [*SUBSCRIBED, row(TOPICS, topic_json())], None, SETTINGS)
    again, output = work("p", 0, [row(TOPICS, topic_json(), 1)], data, SETTINGS)
    assert again is data
    assert (output.kinds, output.counts) == (["ignored:topic-exists"], [1])


def test_nothing_left_gives_no_bytes() -> None:
    data, _ = work("p", 0, [row(TOPICS, topic_json())], None, SETTINGS)
    assert data is not None
    nothing, _ = work("p", 0, [row(TOPICS, topic_json(event="DELETED"), 1)], data, SETTINGS)
    assert nothing is None


def test_damaged_bytes_are_not_worked_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a worker that does not hold what they were."""
    data, _ = work("p", 0, SUBSCRIBED, None, SETTINGS)
    assert data is not None
    monkeypatch.setattr(worker, "_CACHE", StateCache(worker.CACHE_BYTES))
    with pytest.raises(StateCorrupted):
        work("p", 0, [row(TOPICS, topic_json())], data[:-1] + bytes([data[-1] ^ 1]), SETTINGS)


@pytest.mark.parametrize("number", range(3))
def test_one_shard_reports_what_all_of_them_see(number: int) -> None:
    """A bad request is seen by all shards of its parent, a bad topic event by one, a bad group event by home."""
    rows = [
        row(GROUPS, group_json(group=" ", attributes={BIND_TOPIC: "big"})),
        row(SUBSCRIPTIONS, request_json(topic="big", clientId="")),
        row(TOPICS, topic_json(parentTopic="big", event="?")),
    ]
    _, output = work("big", number, rows, None, SETTINGS)
    reported = [letter["source"]["topic"] for letter in letters(output)]
    assert reported == (["subscriptions", "topics"] if number == 0 else ["topics"])


def test_a_dead_letter_shows_its_own_entry() -> None:
    """Of several entries of one record."""
    entries = [request_json(clientId=name, liteTopicSet=["ok", f"{name}*"]) for name in "abc"]
    rows = [row(GROUPS, group_json()), *(row(SUBSCRIPTIONS, entry, 5, at) for at, entry in enumerate(entries))]
    _, output = work("p", 0, rows, None, SETTINGS)
    shown = [(letter["source"]["entry"], letter["original"].encode()) for letter in letters(output)]
    assert shown == list(enumerate(entries))
    assert {letter["reason"] for letter in letters(output)} == {Reason.INVALID_PATTERN}


@pytest.mark.parametrize(
    ("stream", "payload"),
    [
        (SUBSCRIPTIONS, b'{"topic":"p",' + request_json(topic="q")[1:]),
        (TOPICS, b'{"parentTopic":"p",' + topic_json(parentTopic="q")[1:]),
    ],
)
def test_a_text_that_names_two_parents_is_a_dead_letter(stream: int, payload: bytes) -> None:
    """Spark may read the first where Python reads the last."""
    data, output = work("p", 0, [row(stream, payload)], None, SETTINGS)
    assert data is None
    (letter,) = letters(output)
    assert letter["reason"] == Reason.NOT_ROUTABLE
    assert "stands in it twice" in letter["message"]


class Crash(Exception):
    """Stands for whatever ends a task."""


class FailingRenew:
    """Fails once, after the state was changed."""

    def __init__(self, renew: Callable[[bytes | None, ShardState, Delta], bytes | None]) -> None:
        self._renew = renew
        self.failed = False

    def __call__(self, data: bytes | None, shard: ShardState, delta: Delta) -> bytes | None:
        """Stand for `state.renew`."""
        if not self.failed:
            self.failed = True
            raise Crash
        return self._renew(data, shard, delta)


BATCHES = [
    [row(TOPICS, topic_json(liteTopic="u"), 1), row(SUBSCRIPTIONS, request_json(action="PARTIAL_ADD"), 1)],
    [row(TOPICS, topic_json(event="DELETED"), 1)],
    [row(GROUPS, group_json(attributes={BIND_TOPIC: "p"}), 1)],
    [row(SUBSCRIPTIONS, request_json(action="COMPLETE_REMOVE"), 1)],
    [row(SUBSCRIPTIONS, request_json(liteTopicSet=["a*"]), 1), row(TOPICS, b"?", 1)],
]


# A batch whose result was not stored is computed again from the old bytes.


@pytest.fixture
def data() -> bytes:
    """A state, which the cache holds decoded."""
    data, _ = work("p", 0, [*SUBSCRIBED, row(TOPICS, topic_json())], None, SETTINGS)
    assert data is not None
    return data


@pytest.mark.parametrize("rows", BATCHES)
def test_a_result_that_was_not_stored_is_repeated_to_the_byte(data: bytes, rows: list[Row]) -> None:
    """The cache holds the changed state by then, and must not use it."""
    first = work("p", 0, rows, data, SETTINGS)
    again = work("p", 0, rows, data, SETTINGS)
    assert again[0] == first[0]
    assert rows_of(again[1]) == rows_of(first[1])


@pytest.mark.parametrize("rows", BATCHES[:4])
def test_a_task_that_fails_after_it_changed_the_state_is_repeated(
    data: bytes, rows: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = FailingRenew(state.renew)
    monkeypatch.setattr(state, "renew", failing)
    with pytest.raises(Crash):
        work("p", 0, rows, data, SETTINGS)
    again = work("p", 0, rows, data, SETTINGS)
    monkeypatch.setattr(worker, "_CACHE", StateCache(worker.CACHE_BYTES))
    clean = work("p", 0, rows, data, SETTINGS)
    assert failing.failed
    assert again[0] == clean[0]
    assert rows_of(again[1]) == rows_of(clean[1])


def test_another_worker_gives_the_same(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """States decoded anew and states kept give the same bytes over several batches."""
    kept, decoded = data, data
    for number, rows in enumerate(BATCHES):
        moved = [each._replace(offset=10 + number) for each in rows]
        one = work("p", 0, moved, kept, SETTINGS)
        monkeypatch.setattr(worker, "_CACHE", StateCache(0))
        other = work("p", 0, moved, decoded, SETTINGS)
        monkeypatch.undo()
        assert one[0] == other[0]
        assert rows_of(one[1]) == rows_of(other[1])
        assert one[0] is not None
        kept = decoded = one[0]


def test_the_state_that_was_encoded_is_used_by_the_next_batch(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is decoded as long as batches go on from what this process wrote."""

    def no_decoding(*_: object, **__: object) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr(state, "decode", no_decoding)
    for number in range(3):
        renewed, _ = work("p", 0, [row(TOPICS, topic_json(liteTopic=str(number)), 10 + number)], data, SETTINGS)
        assert renewed is not None
        data = renewed


# The keys that place groups and say what is wrong with what has no place.


@pytest.fixture
def placed() -> bytes:
    """Group `g` on parent `p`."""
    data, output = work(placement.HOME, BUCKET, [row(GROUPS, group_json())], None, SETTINGS)
    assert output.kinds == []
    assert data is not None
    return data


def test_a_group_that_moves_is_told_to_the_parent_that_it_leaves(placed: bytes) -> None:
    moved = [row(GROUPS, group_json(attributes={BIND_TOPIC: "q", WILDCARD: ""}), 8)]
    renewed, output = work(placement.HOME, BUCKET, moved, placed, SETTINGS)
    assert placement.decode(renewed or b"").parents == {"g": "q"}
    assert output.kinds == [Kind.GROUP_EVENT]
    assert json.loads(output.payloads[0] or b"")["parentTopic"] == "p"
    again = work(placement.HOME, BUCKET, moved, placed, SETTINGS)
    assert (again[0], rows_of(again[1])) == (renewed, rows_of(output))


def test_placements_unchanged_give_the_very_same_bytes(placed: bytes) -> None:
    again, output = work(placement.HOME, BUCKET, [row(GROUPS, group_json(), 9)], placed, SETTINGS)
    assert again is placed
    assert output.kinds == []


def test_the_last_group_leaves_no_bytes(placed: bytes) -> None:
    renewed, output = work(placement.HOME, BUCKET, [row(GROUPS, group_json(attributes={}), 9)], placed, SETTINGS)
    assert renewed is None
    assert output.kinds == [Kind.GROUP_EVENT]


def test_an_unknown_group_that_is_deleted_is_counted() -> None:
    renewed, output = work(placement.HOME, BUCKET, [row(GROUPS, group_json(attributes={}))], None, SETTINGS)
    assert renewed is None
    assert output.kinds == ["ignored:group-unknown"]


@pytest.mark.parametrize(
    ("stream", "payload", "reason"),
    [
        (GROUPS, b"?", Reason.NOT_JSON),
        (SUBSCRIPTIONS, None, Reason.NOT_JSON),
        (SUBSCRIPTIONS, request_json(topic=...), Reason.MISSING_FIELD),
        (TOPICS, topic_json(parentTopic=""), Reason.BLANK_NAME),
        (TOPICS, topic_json(), Reason.NOT_ROUTABLE),
    ],
)
def test_what_has_no_place_is_a_dead_letter(stream: int, payload: bytes | None, reason: Reason) -> None:
    """Also what Python could place but Spark could not."""
    data, output = work(placement.HOME, 0, [row(stream, payload)], None, SETTINGS)
    assert data is None
    assert [letter["reason"] for letter in letters(output)] == [reason]
