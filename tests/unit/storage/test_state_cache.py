"""States that a worker keeps decoded, and the memory that they are taken to have."""

import gc
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from streaming import state
from streaming.coordinator import COORDINATOR, bucket_of
from streaming.records.model import BIND_TOPIC, NO_METADATA, QUOTA, WILDCARD
from streaming.state import ShardDelta, ShardState, group
from streaming.storage.journal import Journal
from streaming.storage.store import Kind, StateStore
from streaming.worker.rows import InputRow, InputRows
from streaming.worker.worker import Worker, WorkerConfig
from tests.support.events import created, deleted, encoded, replace, with_attributes
from tests.support.simulator import TOPICS as NAMES
from tests.support.states import GROUPS, SUBSCRIPTIONS, TOPICS, decode

ROOT = Path(__file__).parents[3]

# A state serves journals that begin with the one that it stands for.


class Sized:
    """A state of as much memory as its journal."""

    def memory_bytes(self, text_bytes: int) -> int:
        """Return the size of the journal."""
        return text_bytes

    def apply(self, delta: Any) -> None:
        """Stands for making the changes."""


def unread(decoded: Sized, changes: Iterable[Any]) -> None:
    """Stands for making the changes: what they are does not matter."""


def cached(max_bytes: int = 1_000) -> StateStore:
    return StateStore(cache_bytes=max_bytes)


def put(cache: StateStore, name: str, size: int) -> tuple[Journal, Sized]:
    """Keeps a state that stands for so many bytes."""
    journal, decoded = Journal(tail=name[:1].encode() * size), Sized()
    cache.keep((name, 0), journal, decoded)
    return journal, decoded


def take(cache: StateStore, name: str, journal: Journal, shard: int = 0) -> Sized | None:
    """What the cache has for this journal; None when it has to begin afresh."""
    fresh = Sized()
    found = cache.load(Kind(lambda: fresh, unread, lambda journal, *_: journal), (name, shard), journal)
    return None if found is fresh else found


@pytest.mark.parametrize("other", [b"y" * 100, b"a" * 99, b""])
def test_a_state_is_taken_once_for_its_key_and_its_bytes(other: bytes) -> None:
    """The caller may change the state, so no other caller must get it. For other bytes it is not kept either."""
    cache = cached()
    data, decoded = put(cache, "a", 100)
    assert take(cache, "a", data, shard=1) is None
    assert take(cache, "b", data) is None
    assert take(cache, "a", data) is decoded
    assert take(cache, "a", data) is None
    put(cache, "a", 100)
    assert take(cache, "a", Journal(tail=other)) is None
    assert take(cache, "a", data) is None


def test_a_state_is_brought_up_to_what_another_worker_appended() -> None:
    cache = StateStore()
    decoded = ShardState()
    decoded.apply(ShardDelta(added={"a": NO_METADATA}))
    former = state.append(Journal(), decoded, ShardDelta())
    cache.keep(("p", 0), former, decoded)
    elsewhere = decode(former.stored)
    elsewhere.apply(ShardDelta(added={"b": NO_METADATA}))
    renewed = state.append(former, elsewhere, ShardDelta(added={"b": NO_METADATA}))
    assert renewed.continues(former.position)
    assert cache.load(Kind(ShardState, state.replay, state.append), ("p", 0), renewed) is decoded
    assert list(decoded.topics) == ["a", "b"]


def test_a_state_that_another_worker_compacted_is_decoded_again() -> None:
    """Its journal amounts to the same, but no longer continues the one that is known."""
    cache = StateStore()
    decoded = ShardState()
    delta = ShardDelta(added={"a": NO_METADATA})
    decoded.apply(delta)
    longer = state.append(state.append(Journal(), decoded, ShardDelta()), decoded, ShardDelta())
    cache.keep(("p", 0), longer, decoded)
    fresh = ShardState()
    renewed = state.append(Journal(), decoded, ShardDelta())
    assert cache.load(Kind(lambda: fresh, state.replay, state.append), ("p", 0), renewed) is fresh
    assert fresh == decoded


def test_nothing_is_kept_for_an_empty_journal() -> None:
    cache = cached()
    cache.keep(("a", 0), Journal(), Sized())
    assert take(cache, "a", Journal()) is None


def test_the_least_recently_used_goes_first() -> None:
    """Until the rest has room, in bytes."""
    cache = cached()
    kept = {name: put(cache, name, 300) for name in "abc"}
    assert take(cache, "a", kept["a"][0]) is kept["a"][1]
    kept["a"] = put(cache, "a", 300)
    kept["d"] = put(cache, "d", 400)  # 1,300: b has to go
    assert take(cache, "b", kept["b"][0]) is None
    for name in "acd":
        assert take(cache, name, kept[name][0]) is kept[name][1]


def test_exactly_as_many_bytes_as_allowed_are_kept() -> None:
    cache = cached()
    a, b = put(cache, "a", 500), put(cache, "b", 500)
    assert take(cache, "a", a[0]) is a[1]
    assert take(cache, "b", b[0]) is b[1]
    large, _ = put(cache, "large", 1_001)
    assert take(cache, "large", large) is None


def test_a_taken_or_replaced_state_makes_room() -> None:
    cache = cached()
    for _ in range(10):
        put(cache, "a", 600)
        data, decoded = put(cache, "a", 900)
        assert take(cache, "a", data) is decoded


# The memory of a state is estimated from what it holds.

Batches = list[tuple[int, list[bytes]]]
"""Records of each micro-batch, all of one stream."""


def topics(count: int, **fields: Any) -> Batches:
    names = (f"orders__{number:07}__created" for number in range(count))
    return [(TOPICS, [encoded(created(name, **fields)) for name in names])]


def requests(count: int, entries: Callable[[int], list[str]], **fields: Any) -> Batches:
    values = (encoded(replace(client=f"c-{number}", liteTopicSet=entries(number), **fields)) for number in range(count))
    return [(SUBSCRIPTIONS, list(values))]


COUNT = 2_000
GROUP: Batches = [(GROUPS, [encoded(with_attributes({BIND_TOPIC: "p", WILDCARD: "", QUOTA: -1}))])]
PATTERN: Batches = [*GROUP, *requests(1, lambda _: ["orders__*__created"])]
SHAPES: dict[str, Batches] = {
    "topics": [*PATTERN, *topics(COUNT)],
    "topics with an index": [*GROUP, *topics(COUNT), *requests(1, lambda _: ["orders__*__paid"])],
    "deep topics with an index": [
        *GROUP,
        (TOPICS, [encoded(created(f"a__{number}__" + "__".join("abcdefgh" * 3))) for number in range(COUNT)]),
        *requests(1, lambda _: ["a__*__paid"]),
    ],
    "described topics": [*PATTERN, *topics(COUNT, tags="red", properties={"price": "12"}, ttlMs=1_000_000)],
    "clients": [*GROUP, *requests(COUNT, lambda number: [f"orders__{number}__*"]), *topics(100)],
    "clients with versions": [*GROUP, *requests(COUNT, lambda number: [f"orders__{number}__*"], version=7)],
    "clients of all topics": [*GROUP, *requests(COUNT, lambda _: []), *topics(2)],
    "patterns": [*GROUP, *requests(50, lambda one: [f"orders__{one}__*__{two}" for two in range(100)]), *topics(100)],
    "filters": [
        *GROUP, *requests(50, lambda one: [f"a/{one}/+/{two}" for two in range(100)], dialect="mqtt"), *topics(100)
    ],
    "parsed patterns": [
        *GROUP, *requests(50, lambda one: [f"a.{one}.*.{two}" for two in range(100)], dialect="nats"), *topics(100)
    ],
    "patterns of many forms": [
        *GROUP,
        *requests(50, lambda one: [
            "__".join("*" if (one * 100 + two) >> bit & 1 else f"s{bit}" for bit in range(13)) for two in range(100)
        ]),
        *topics(100),
    ],
    "deep patterns": [
        *GROUP,
        *requests(20, lambda one: [
            f"*__{one}__{two}__" + "__".join(f"{one * 100 + two + at:x}" for at in range(29)) for two in range(100)
        ]),
        *topics(100),
    ],
    "long patterns": [
        *GROUP,
        *requests(3, lambda one: [
            f"*__{one}__{two}__" + "__".join(f"{at:x}" for at in range(2_000)) for two in range(40)
        ]),
        *topics(100),
    ],
    "deep patterns of another dialect": [
        *GROUP,
        *requests(20, lambda one: [
            f"*.{one}.{two}." + ".".join(f"{one * 100 + two + at:x}" for at in range(7)) for two in range(100)
        ], dialect="nats"),
        *topics(100),
    ],
    "shares": [
        *GROUP,
        *requests(50, lambda one: [f"$share/s/a/{one}/+/{two}" for two in range(100)], dialect="mqtt"), *topics(100),
    ],
    "names": [*requests(50, lambda one: [f"orders__{one}__{two}" for two in range(100)]), *topics(100)],
}  # fmt: skip


def no_replay(_: ShardState, changes: Iterable[Any]) -> None:
    assert not list(changes)


class Measured:
    """A worker that is fed micro-batch by micro-batch, and the memory of what it keeps."""

    def __init__(self, parent: str, number: int = 0) -> None:
        self._key = parent, number
        self._worker = Worker(WorkerConfig(NAMES, client_timeout_ms=60_000))
        self._data: bytes | None = None
        self._offset = 0

    def feed(self, stream: int, values: list[bytes]) -> None:
        """Work off a micro-batch."""
        rows = [InputRow(stream, 0, self._offset + at, 0, 1_000, value) for at, value in enumerate(values)]
        self._offset += len(rows)
        steps = self._worker.work(*self._key, InputRows.of(rows), self._data)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                self._data = end.value
                return

    def states(self) -> tuple[ShardState, ShardState]:
        """The state that is kept, and the same as read anew."""
        journal = Journal.open(self._data)
        kept = self._worker.states.load(Kind(ShardState, no_replay, state.append), self._key, journal)
        self._worker.states.keep(self._key, journal, kept)
        return kept, decode(self._data)

    def estimate_ratio(self) -> float:
        """The estimate over the memory that is free when the state is dropped."""
        estimated = self._worker.states.memory_bytes
        group._PATTERN_PROBLEMS.clear()  # which keeps the texts of patterns too
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        self._worker.states = StateStore(cache_bytes=0)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        return estimated / (before - after)


def ratio(key: tuple[str, int], batches: Batches) -> float:
    """Return the estimate over the measured memory of a state."""
    tracemalloc.start()
    measured = Measured(*key)
    for stream, values in batches:
        measured.feed(stream, values)
    return measured.estimate_ratio()


def ratio_elsewhere(expression: str) -> float:
    """Evaluate an expression in a process of its own, whose memory no other test has touched."""
    code = f"import tests.unit.storage.test_state_cache as t; print({expression})"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_estimate_is_near_the_memory_of_a_shard(shape: str) -> None:
    """All that takes memory is counted; the bounds leave room for other lengths of names."""
    assert 0.7 <= ratio_elsewhere(f't.ratio(("p", 0), t.SHAPES["{shape}"])') <= 2


@pytest.mark.parametrize("version", [None, 7])
def test_the_estimate_is_near_the_memory_of_a_coordinator(version: int | None) -> None:
    entries = 'lambda number: [f"orders__{number}__*"]'
    batches = f"t.requests(t.COUNT, {entries}, version={version})"
    assert 0.7 <= ratio_elsewhere(f"t.ratio({(COORDINATOR, bucket_of('g'))}, {batches})") <= 1.5


def test_the_estimate_excludes_removed_entries() -> None:
    """It equals that of the state as read anew, whatever came, changed and went."""
    measured = Measured("p")
    entries = ["a", "b", "c"]
    history: Batches = [
        *requests(20, lambda _: entries),
        *topics(50, tags="red"),
        (TOPICS, [encoded(deleted(f"orders__{number:07}__created")) for number in range(40)]),
        *topics(10),
        *requests(5, lambda _: ["d"], action="PARTIAL_ADD"),
        *requests(10, lambda _: ["a", "b"], action="PARTIAL_REMOVE"),
        *requests(3, lambda _: [], action="COMPLETE_REMOVE"),
        *requests(2, lambda _: ["e"]),
    ]
    for stream, values in history:
        measured.feed(stream, values)
        kept, anew = measured.states()
        assert kept == anew
        assert kept.memory_bytes(0) == anew.memory_bytes(0)
    assert len(kept.topics) == 20
