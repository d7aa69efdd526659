"""Caches of a worker process: the sizes of their entries are for users to choose, so their bytes are bounded."""

import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from matcher.cache import BoundedCache
from streaming.records import writing as records
from streaming.records.model import LITE, SelectorSpec, Source, TopicMetadata
from streaming.records.subscribers import SubscriberKey
from streaming.records.updates import Cause, Op, Update
from streaming.state import group, policy

MIB = 1024 * 1024
SLACK = MIB
"""Bytes beside the entries: tables of the dicts, and what one call makes."""

SOURCE = Source("t", 0, 0, 0, 0)


def held_after(ask: Callable[[str], object], texts: Iterator[str]) -> int:
    """Return the memory that is held after all questions, in bytes."""
    tracemalloc.start()
    try:
        for text in texts:
            ask(text)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return held


def long_names(total: int, length: int) -> Iterator[str]:
    return (f"{number:0{length}}" for number in range(total // length))


@pytest.mark.parametrize("length", [200, 16_000])
def test_patterns_whose_validity_is_remembered(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Invalid ones have errors, which repeat a part of them."""
    monkeypatch.setattr(group, "_PATTERN_PROBLEMS", BoundedCache(*arguments(group._PATTERN_PROBLEMS, MIB)))
    held = held_after(lambda text: group._PATTERN_PROBLEMS[f"{text}*", LITE, False], long_names(4 * MIB, length))
    assert held < MIB + SLACK


@pytest.mark.parametrize("kind", ["SQL92", "TAG"])
def test_the_size_of_compiled_selectors_is_not_underestimated(kind: str) -> None:
    """The estimate of their size is none below the truth."""
    text = " or ".join(["a<>-b"] * 120) if kind == "SQL92" else "||".join(chr(0x4E00 + each) for each in range(1_000))
    cache = BoundedCache(*arguments(policy._COMPILED, 4 * MIB))
    glue = " or " if kind == "SQL92" else "||"
    policy._compiled(SelectorSpec(kind, "a"))
    held = held_after(
        lambda number: cache[SelectorSpec(kind, f"{text}{glue}a{number}")], (str(number) for number in range(60))
    )
    assert 0 < len(cache) < 60
    assert held < 4 * MIB + SLACK


def test_the_longest_selector_is_kept() -> None:
    """It would be compiled for each topic otherwise."""
    policy._COMPILED.clear()
    policy.accepts(SelectorSpec("TAG", "a" * 65_536), TopicMetadata())
    assert len(policy._COMPILED) == 1
    policy._COMPILED.clear()


def test_the_cache_of_subscribers_json_is_bounded() -> None:
    cache = BoundedCache(*arguments(records._SUBSCRIBERS, MIB))
    names = long_names(4 * MIB, 16_000)
    assert held_after(lambda text: cache[text, SubscriberKey(text, text), 1], names) < MIB + SLACK


def test_the_cache_of_topics_and_patterns_json_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A micro-batch with many updates of long names holds the JSON of some of them only."""
    monkeypatch.setattr(records, "_EVENT_CACHE_BYTES", MIB)
    monkeypatch.setattr(records, "_PATTERN_CACHE_BYTES", MIB)
    writer = records.UpdateWriter("p")

    def write(text: str) -> None:
        key = SubscriberKey("g", "c")
        writer.record(Update(Op.ADD, key, text, (text,), Cause.SUBSCRIBED, None, SOURCE, None, False, None))

    assert held_after(write, long_names(8 * MIB, 16_000)) < 2 * MIB + SLACK


def arguments(cache: BoundedCache[Any, Any], max_bytes: int) -> tuple[Any, Any, int]:
    """Return the arguments of a smaller cache of the same function."""
    return cache._compute, cache._size, max_bytes
