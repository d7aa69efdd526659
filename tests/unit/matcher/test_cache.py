"""BoundedCache: memory stays below the bound, whatever is asked for."""

import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest

from matcher.cache import ENTRY_BYTES, BoundedCache

MIB = 1024 * 1024


class Doubled:
    """A function that notes its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __call__(self, text: str) -> str:
        self.calls.append(text)
        return text + text


def size(text: str, doubled: str) -> int:
    return len(text) + len(doubled)


def test_a_result_is_computed_once() -> None:
    doubled = Doubled()
    cache = BoundedCache(doubled, size, MIB)
    assert [cache["a"], cache["b"], cache["a"]] == ["aa", "bb", "aa"]
    assert doubled.calls == ["a", "b"]
    assert len(cache) == 2
    cache.clear()
    assert cache["a"] == "aa"
    assert doubled.calls == ["a", "b", "a"]


def test_a_used_entry_stays() -> None:
    doubled = Doubled()
    cache = BoundedCache(doubled, size, 100 * ENTRY_BYTES)
    for number in range(1_000):
        assert cache["stays"]
        assert cache[f"passes {number}"]
    assert doubled.calls.count("stays") == 1
    assert len(cache) <= 100


def test_a_large_entry_is_not_kept() -> None:
    """One entry must not push out all the others."""
    doubled = Doubled()
    cache = BoundedCache(doubled, size, MIB)
    assert cache["a"]
    for number in range(100):
        assert cache[f"{number}" * MIB]
    assert cache["a"]
    assert doubled.calls.count("a") == 1
    assert len(cache) == 1


def test_an_exception_is_not_kept() -> None:
    def refuse(text: str) -> str:
        calls.append(text)
        raise ValueError(text)

    calls: list[str] = []
    cache = BoundedCache(refuse, size, MIB)
    for _ in range(2):
        with pytest.raises(ValueError, match="a"):
            assert cache["a"]
    assert calls == ["a", "a"]


@pytest.mark.parametrize("length", [10, 1_000, 16_384, 300_000])
def test_memory_is_bounded_whatever_the_lengths(length: int) -> None:
    """Four times the bound goes through; at most the bound stays."""
    cache = BoundedCache(lambda text: text + text, size, MIB)
    tracemalloc.start()
    try:
        for number in range(max(20, 4 * MIB // (ENTRY_BYTES + 3 * length))):
            assert cache[f"{number:0{length}}"]
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < MIB + 64 * 1024


def test_threads_get_right_answers() -> None:
    cache = BoundedCache(lambda text: text + text, size, 40 * ENTRY_BYTES)

    def wrong(_: int) -> list[str]:
        return [text for text in map(str, range(2_000)) if cache[text] != text + text]

    with ThreadPoolExecutor(4) as pool:
        assert not any(pool.map(wrong, range(4)))
    assert len(cache) <= 40
