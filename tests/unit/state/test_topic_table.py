"""A table of topics, against a dict."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matcher.batch.segments import join
from streaming.records.model import NO_METADATA, TopicMetadata
from streaming.state import settled as module
from streaming.state.settled import TextTable
from streaming.state.topic_table import StoredTopics, TopicTable, described, settled, since

DESCRIBED = TopicMetadata("red")
NAMES = ["", "a", "b", "a__b", "é", "\ud800", "x" * 70, "a\n", "b\0"]

steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from(NAMES), st.sampled_from([NO_METADATA, DESCRIBED])),
        st.tuples(st.just("remove"), st.sampled_from(NAMES)),
        st.just(("settle",)),
    ),
    max_size=30,
)


def table(topics: StoredTopics) -> TopicTable:
    arrays = settled(topics, ())
    assert arrays is not None
    known = {name: each for name, each in described(topics).items() if each is not NO_METADATA}
    return TopicTable(TextTable(arrays.names), known, {})


def assert_equal(found: TopicTable, wanted: Mapping[str, TopicMetadata]) -> None:
    assert list(found) == list(wanted)
    assert list(reversed(found)) == list(reversed(list(wanted)))
    for place in range(len(wanted) + 2):
        assert list(since(found, place)) == list(wanted)[place:]
    assert list(found.items()) == list(wanted.items())
    assert len(found) == len(wanted)
    assert {name: found[name] for name in NAMES if name in found} == wanted
    known = [name for name, each in wanted.items() if each is not NO_METADATA]
    assert [name for name, each in found.described.items() if each is not NO_METADATA] == known


@given(steps)
def test_a_table_is_like_a_dict(steps: list[tuple[str, ...]]) -> None:
    found, wanted = table({}), dict[str, TopicMetadata]()
    for step in steps:
        match step:
            case "add", name, metadata if name not in wanted:
                found[name] = wanted[name] = metadata  # type: ignore[assignment]
            case "remove", name:
                assert found.pop(name, None) == wanted.pop(name, None)
            case ("settle",):
                found = table(found)
                assert found.changes == 0
        assert_equal(found, wanted)
    assert_equal(table(wanted), wanted)


def test_many_topics_are_read_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ROWS_AT_ONCE", 3)
    wanted = {f"{number}" if number % 5 else f"é{number}": NO_METADATA for number in range(20)}
    found = table(wanted)
    for name in ("é0", "7", "8", "19"):
        del found[name], wanted[name]
    found["new"] = wanted["new"] = NO_METADATA
    assert list(found) == list(wanted)
    assert list(reversed(found)) == list(reversed(wanted))
    for place in range(len(wanted) + 2):
        assert list(since(found, place)) == list(since(wanted, place)) == list(wanted)[place:]
    assert list(table(found)) == list(wanted)


@pytest.mark.parametrize("array_texts", [1, 64])
def test_equal_hashes_do_no_harm(array_texts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_multipliers", lambda _: (0, [0] * 32))
    monkeypatch.setattr(module, "_ARRAY_TEXTS", array_texts)
    wanted = dict.fromkeys(NAMES, NO_METADATA)
    found = table(wanted)
    assert_equal(found, wanted)
    assert "other" not in found
    del found["a"]
    assert "a" not in found
    assert list(table(found)) == [name for name in NAMES if name != "a"]


@given(st.lists(st.text(st.characters(), max_size=140) | st.text("a\0\ud800\udc00", max_size=9), unique=True))
def test_a_text_has_the_same_hash_alone_and_in_arrays(texts: list[str]) -> None:
    """Texts of any length, and texts that differ in zeros at their ends only."""
    secret = bytes(16)
    alone = [module._hash(text.encode("utf-8", "surrogatepass"), secret) for text in texts]
    assert len(set(alone)) == len(texts)
    with pytest.MonkeyPatch.context() as patched:
        for array_texts in (1, len(texts) + 1):
            patched.setattr(module, "_ARRAY_TEXTS", array_texts)
            assert module._hashes(*join(texts, ""), secret).tolist() == alone


def test_the_hashes_are_secret() -> None:
    """Two tables of the same topics have them in different places, so a producer cannot choose names that collide."""
    one, other = (settled(dict.fromkeys(NAMES, NO_METADATA), ()) for _ in range(2))
    assert one is not None
    assert other is not None
    assert not np.array_equal(one.names["hashed"], other.names["hashed"])
    assert np.array_equal(one.names["texts"], other.names["texts"])


@pytest.mark.parametrize("limit", ["_ROW", "_MAX_TEXT_BYTES"])
def test_too_many_topics_have_no_table(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, limit, 4)
    assert settled({"abcd": NO_METADATA}, ()) is not None
    assert settled(dict.fromkeys("abcde", NO_METADATA), ()) is None


def test_errors_are_those_of_a_dict() -> None:
    found = table({"a": NO_METADATA})
    with pytest.raises(KeyError):
        found["b"]
    with pytest.raises(KeyError):
        del found["b"]
    found["a"] = DESCRIBED
    assert dict(found) == {"a": DESCRIBED}
