"""Batches: what the comparison with brute force does not reach."""

import zlib
from typing import Any

import numpy as np
import pytest

from matcher import InvalidPattern, MatcherError, PatternIndex
from matcher.batch import FlatPatterns, FlatTopics
from matcher.batch.codec import dump
from matcher.batch.postings import Postings
from matcher.batch.segments import MAX_POSITIONS, Salt, cut, hashes, pack
from matcher.batch.shapes import MAX_SHAPES
from matcher.batch.shapes import usable as usable_keys
from matcher.dialects import get_dialect
from matcher.errors import CorruptIndex
from tests.support.keys import match_by_keys

LONG = "x" * 70
TRICKY = [
    # a dialect and topics that arrays cut differently from `str.split` when they are careless
    ("lite", ["", "_", "__", "___", "____", "_____", "a_", "_b", "a___b", "a_____b", "a__", "__a", "a\n__b", "a_\n_b"]),
    ("lite", ["é__日本", "日本__é_", "😀___😀", "a\0", "a", "\0", "a__\0"]),
    ("nats", ["a", "a.b", ".", "..", "", "a..b", ".a", "a.", "x" * 8, "x" * 9, f"{LONG}.a", f"{LONG}y.a"]),
    ("nats", ["a b", "a.*", "a.>", "a.**", "*", ">", "a\tb.c", "é.日本"]),
    ("mqtt", ["", "/", "//", "a/", "/a", "$SYS/a", "$", "a/$b", "a/+", "#", "a\0b", "\ud800/a", "x" * 65_536, "é/b"]),
    ("wamp", ["", ".", "a", "a.b", "..", "com.a", "com.ab", "com.", "*", "com.*"]),
]
PATTERNS = {
    "lite": ["*", "**", "a__*", "*__*", "*__**", "a", "_", "a__b", "日本__*", "*__é_", "*__*__*", "a__**"],
    "nats": ["*", ">", "a.*", "*.*", "a.>", "*.>", "a", "a.b", f"{LONG}.*", f"{LONG}y.a", "x" * 8, "*.a", "é.>"],
    "mqtt": ["+", "#", "a/+", "+/+", "a/#", "+/#", "a", "$SYS/#", "$/#", "+/a", "/+", "$SYS/+", "a/$b"],
    "wamp": ["a", "com.*", "*", "**", "*.a", "com.**", "com.a*", "*.*", "com.*.*"],
}


def pairs(patterns: list[str], topics: list[str], dialect: str) -> set[tuple[int, int]]:
    index: PatternIndex[int] = PatternIndex(dialect)
    for number, pattern in enumerate(patterns):
        index.add(pattern, number)
    return {(row, number) for row, topic in enumerate(topics) for number in index.match(topic)}


def of_patterns(index: FlatPatterns, topics: list[str]) -> set[tuple[int, int]]:
    rows, numbers = index.match_batch(topics)
    found = list(zip(rows.tolist(), numbers.tolist(), strict=True))
    assert len(found) == len(set(found))
    return set(found)


def of_topics(index: FlatTopics, patterns: list[str]) -> set[tuple[int, int]]:
    numbers, rows = index.expand_batch(patterns)
    found = list(zip(rows.tolist(), numbers.tolist(), strict=True))
    assert found == sorted(found, key=lambda pair: (pair[1], pair[0]))
    return set(found)


@pytest.mark.parametrize(("dialect", "topics"), TRICKY)
def test_tricky_topics(dialect: str, topics: list[str]) -> None:
    patterns = PATTERNS[dialect]
    expected = pairs(patterns, topics, dialect)
    assert of_patterns(FlatPatterns(patterns, dialect), topics) == expected
    assert of_topics(FlatTopics(topics, dialect), patterns) == expected


@pytest.mark.rule("lite-segments")
@pytest.mark.parametrize(("dialect", "topics"), TRICKY)
def test_segments_are_those_of_the_dialect(dialect: str, topics: list[str]) -> None:
    segments = cut(topics, get_dialect(dialect))
    texts = [segments.text(number).decode("utf-8", "surrogatepass") for number in range(len(segments.starts))]
    separator = get_dialect(dialect).separator
    assert texts == [part for topic in topics for part in topic.split(separator)]
    assert segments.counts.tolist() == [len(topic.split(separator)) for topic in topics]


def test_many_segments_and_many_shapes() -> None:
    wide = ["a." * (MAX_POSITIONS + extra) + "z" for extra in range(-2, 3)]
    shapes = [".".join("a*"[number >> bit & 1] for bit in range(8)) for number in range(2 * MAX_SHAPES)]
    patterns = [*wide, *shapes, *shapes[:50], ".".join(["*"] * 20), "a.>", ".".join(["a"] * 18) + ".>"]
    topics = [*wide, ".".join(["a"] * 8), ".".join(["a"] * 20), ".".join(["b"] * 20), "a"]
    expected = pairs(patterns, topics, "nats")
    index = FlatPatterns(patterns, "nats")
    assert of_patterns(index, topics) == expected
    assert of_patterns(FlatPatterns.from_bytes(index.to_bytes()), topics) == expected
    assert of_topics(FlatTopics(topics, "nats"), patterns) == expected


def of_keys(texts: list[str], topics: list[str], dialect: str) -> list[tuple[int, int]]:
    rules = get_dialect(dialect)
    return match_by_keys([rules.parse(text) for text in texts], topics, rules)


def test_keys_of_many_topics_and_of_repeated_patterns() -> None:
    topics = [f"a/{number}" for number in range(40_000)]
    found = of_keys(["a/39999", "a/39999", "+/7", "b/+", "a/#"], topics, "mqtt")
    assert [pair for pair in found if pair[1] < 4] == [(7, 2), (39_999, 0), (39_999, 1)]
    assert len(found) == 3 + len(topics)
    assert of_keys(["a"], [], "mqtt") == of_keys([], ["a"], "mqtt") == []


def test_postings_of_topics_with_hundreds_of_segments() -> None:
    """The number of segments has one byte."""
    topics = [".".join(["a"] * count) for count in (1, 2, 255, 256, 257, 300, 512, 513)]
    rules = get_dialect("nats")
    postings = Postings(Postings.empty(rules, b"").replaced((), topics), rules, b"")
    long = ".".join("*" * 256)
    patterns = [rules.parse(text) for text in ("a.>", "*", "a.*", ">", "b.>", long, f"{long}.>")]
    found = [topic for some in postings.expand(patterns, lambda rows: [topics[row] for row in rows]) for topic in some]
    assert sorted(found) == sorted([*topics[1:], topics[0], topics[1], *topics, topics[3], *topics[4:]])


_DEEP = "__".join("a" * MAX_POSITIONS)
_SHAPED = ("__".join("a*"[number >> place & 1] for place in range(8)) for number in range(1, 100))
COMMON = [
    ("x{}__c__y", ["**__x7__c__y", "x7__**__y", *("__".join(["**", "c", *"*" * after]) for after in range(25))], 3),
    (f"{_DEEP}__x{{}}", [f"**__z{number}__*" for number in range(100)], 1),
    (f"{'__'.join('a' * 12)}__x{{}}", [f"{each}__*__*__*__*__*" for each in _SHAPED], 3),
]
"""Form of topics, patterns whose literals all topics have or may have, and number of filters."""


@pytest.mark.parametrize(("form", "texts", "filters"), COMMON)
def test_few_of_many_patterns_with_common_literals_are_filtered(
    form: str, texts: list[str], filters: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are expanded together, also behind a pattern with a rare literal."""
    monkeypatch.setattr("matcher.batch.postings._ROWS_AT_ONCE", 2)
    topics, rules = [form.format(number) for number in range(500)], get_dialect("lite")
    postings = Postings(Postings.empty(rules, b"").replaced((), topics), rules, b"")
    filtered, former = list[str](), Postings._candidates

    def candidates(own: Postings, pattern: Any, terms: Any) -> Any:
        filtered.append(pattern.text)
        return former(own, pattern, terms)

    monkeypatch.setattr(Postings, "_candidates", candidates)
    patterns = [rules.parse(text, allow_inner_multi=True) for text in texts]
    found = {topic for some in postings.expand(patterns, lambda rows: [topics[row] for row in rows]) for topic in some}
    assert found == {topic for topic in topics if any(each.accepts(topic.split("__")) for each in patterns)}
    assert len(filtered) == filters


def test_batches_larger_than_a_chunk() -> None:
    topics = [f"a.{number}" for number in range(40_000)]
    rows, numbers = FlatPatterns(["a.*", "a.39999", "b.*"], "nats").match_batch(topics)
    assert sorted(rows[numbers == 0].tolist()) == list(range(40_000))
    assert rows[numbers == 1].tolist() == [39_999]
    assert len(rows) == 40_001


def test_the_same_pattern_twice_has_two_numbers() -> None:
    assert of_patterns(FlatPatterns(["a__*", "b", "a__*"]), ["a__x"]) == {(0, 0), (0, 2)}


def test_empty_batches_and_empty_indexes() -> None:
    assert of_patterns(FlatPatterns([]), ["a"]) == set()
    assert of_patterns(FlatPatterns(["a"]), []) == set()
    assert of_topics(FlatTopics([]), ["a", "**"]) == set()
    assert of_topics(FlatTopics(["a"]), []) == set()
    for texts in ([], ["a"]):
        assert len(FlatPatterns(texts)) == len(FlatTopics(texts)) == len(texts)


def test_an_invalid_pattern_is_refused_or_matches_nothing() -> None:
    """As with the other indexes: an error where it is kept, nothing where it asks."""
    with pytest.raises(InvalidPattern):
        FlatPatterns(["a*"])
    assert FlatTopics(["a*"]).expand("a*").tolist() == []


def test_the_bytes_are_the_index() -> None:
    patterns = FlatPatterns(["a__*", "**", "a__**__b"], allow_inner_multi=True)
    topics = FlatTopics(["a__x", "a__x__b", "日本"], allow_inner_multi=True)
    assert FlatPatterns.from_bytes(patterns.to_bytes()).to_bytes() == patterns.to_bytes()
    copy = FlatTopics.from_bytes(topics.to_bytes())
    assert copy.to_bytes() == topics.to_bytes()
    assert copy.expand("a__**__b").tolist() == [1]
    assert copy.nbytes == topics.nbytes > 0
    assert patterns.nbytes > 0


@pytest.mark.parametrize("damage", [lambda data: data[:-1] + b"\xff", lambda data: b"what" + data, lambda _: b""])
def test_damaged_bytes_are_refused(damage: object) -> None:
    assert callable(damage)
    data = damage(FlatPatterns(["a__*"]).to_bytes())
    with pytest.raises(CorruptIndex) as caught:
        FlatPatterns.from_bytes(data)
    assert isinstance(caught.value, MatcherError)
    with pytest.raises(CorruptIndex, match="holds patterns, not topics"):
        FlatTopics.from_bytes(FlatPatterns(["a"]).to_bytes())


def forged(index: FlatPatterns | FlatTopics, part: str, name: str, value: Any) -> bytes:
    """The bytes of an index with another fact or another array, and the right checksum."""
    facts, arrays = dict(index._header), dict(index._arrays)
    if part == "fact":
        facts[name] = value
    else:
        arrays[name] = np.array(value, arrays[name].dtype)
    return dump(facts, arrays)


PATTERN_INDEX = FlatPatterns(["a__*", "b__**", "**__b"], allow_inner_multi=True, salt=b"salt")
TOPIC_INDEX = FlatTopics(["a__é", "b"])
FORGED: list[tuple[FlatPatterns | FlatTopics, list[tuple[str, str, Any]]]] = [
    (PATTERN_INDEX, [
        ("fact", "dialect", "stomp"),
        ("fact", "dialect", ["nats"]),
        ("fact", "size", 4),
        ("fact", "size", 1 << 70),
        ("fact", "size", "3"),
        ("fact", "salt", "no salt"),
        ("fact", "shapes", [["END", 2, [1]]]),
        ("fact", "shapes", [["END", 2, [1]], ["STARTS", 2, []]]),
        ("fact", "shapes", [["END", 2, [1]], ["SOME", 17, list(range(17))]]),
        ("fact", "shapes", [["END", 2, [0, 1]], ["SOME", 1, []]]),
        ("fact", "shapes", {}),
        ("fact", "others", [[3, ["**__b", [0, "b"], "END", None, None]]]),
        ("fact", "others", [[1.0, ["**__b", [0, "b"], "END", None, None]]]),
        ("fact", "others", [[2, ["**__b", [7, "b"], "END", None, None]]]),
        ("fact", "others", [[2, ["**__b", [0], "STARTS", None, None]]]),
        ("fact", "others", [[2, ["**__b", [0, "b"], "LAST", None, None]]]),
        ("fact", "others", [[2, "**__b"]]),
        ("fact", "others", []),
        ("array", "keys", [5, 4]),
        ("array", "keys", [0, 4]),
        ("array", "shapes", []),
        ("array", "shapes", [0, 2]),
        ("array", "literals", [0, 9]),
        ("array", "first_literals", [0, 2, 2]),
        ("array", "first_literals", [0, -1, 2]),
        ("array", "numbers", [0, 9]),
        ("array", "first_numbers", [0, 2, 2]),
        ("array", "texts", []),
        ("array", "lengths", [1, -1]),
    ]),
    (TOPIC_INDEX, [
        ("fact", "dialect", None),
        ("fact", "dialect", {}),
        ("fact", "allow_inner_multi", "yes"),
        ("array", "counts", [2, 3]),
        ("array", "counts", [2, -1]),
        ("array", "firsts", [0, 3, 2]),
        ("array", "firsts", []),
        ("array", "segments", [0, 1, 9]),
        ("array", "texts", [0xFF] * 15),
        ("array", "lengths", [0] * 3),
        ("array", "postings", [0, 2, 0]),
        ("array", "postings", [0, -1, 0]),
        ("array", "kinds", []),
        ("array", "bounds", [0, 9, 2, 3]),
        ("array", "places", []),
    ]),
    (FlatTopics(["é__"]), [("array", "lengths", [1, 1])]),  # half a character
]  # fmt: skip


@pytest.mark.parametrize(
    ("index", "part", "name", "value"), [(index, *change) for index, changes in FORGED for change in changes]
)
def test_a_forged_index_is_refused(index: FlatPatterns | FlatTopics, part: str, name: str, value: Any) -> None:
    with pytest.raises(CorruptIndex):
        type(index).from_bytes(forged(index, part, name, value))


HEADERS = [b"", b"{}", b"[{}, []]", b"[[], []]", b'[{"kind": "patterns"}, []]', b"[" * 100_000, b"[1]", b"\xff"]


@pytest.mark.parametrize("header", [*HEADERS, b'[{"kind": "x"}]'])
def test_a_forged_header_is_refused(header: bytes) -> None:
    body = len(header).to_bytes(4, "little") + header
    with pytest.raises(CorruptIndex):
        FlatPatterns.from_bytes(b"rxf2" + zlib.crc32(body).to_bytes(4, "little") + body)


def test_an_index_of_another_release_is_refused() -> None:
    with pytest.raises(CorruptIndex, match="of another release; build it again"):
        FlatTopics.from_bytes(b"rxf1" + FlatTopics(["a__b"]).to_bytes()[4:])


def test_arrays_that_are_cut_off_are_refused() -> None:
    """The layout names more than the data holds."""
    body = FlatTopics(["a__b"]).to_bytes()[8:-8]
    with pytest.raises(CorruptIndex, match="whole array"):
        FlatTopics.from_bytes(b"rxf2" + zlib.crc32(body).to_bytes(4, "little") + body)


def test_hits_are_verified_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a hash that knows only lengths, everything collides and the answers stay right."""
    for module in ("patterns", "shapes", "pattern_keys"):
        monkeypatch.setattr(f"matcher.batch.{module}.hashes", lambda segments, _: segments.lengths.astype("u8"))
    topics = ["a.b", "b.a", "a.c", "c.c", "a.long"]
    for pattern in ("a.*", "*.b", "a.b", "a.>", "a.long", "*.c"):
        assert of_patterns(FlatPatterns([pattern], "nats"), topics) == pairs([pattern], topics, "nats")
    patterns, levels = (
        ["a/+", "c/+", "+/b", "+/c", "a/b", "b/a", "a/#", "c/#"],
        [each.replace(".", "/") for each in topics],
    )
    assert of_keys(patterns, levels, "mqtt") == sorted(pairs(patterns, levels, "mqtt"))
    for module in ("shapes", "pattern_keys"):
        monkeypatch.setattr(f"matcher.batch.{module}.at_positions", lambda hashed, *_: hashed)
    assert of_keys(patterns, levels, "mqtt") == sorted(pairs(patterns, levels, "mqtt"))


def test_patterns_with_equal_keys_are_looked_up_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hash of 16 bits makes some of these patterns equal."""
    for module in ("patterns", "shapes"):
        monkeypatch.setattr(f"matcher.batch.{module}.hashes", lambda *given: hashes(*given) & np.uint64(0xFFFF))
    segments = [f"{number:07}xxxx" for number in range(4_000)]
    patterns = [f"{segment}__*" for segment in segments]
    index = FlatPatterns(patterns, salt=b"salt" * 100)  # a salt may be longer than a keyed hash takes
    rivals = len(index._header["others"])
    assert 0 < rivals < len(patterns) / 2
    topics = [f"{segment}__a" for segment in segments]
    wanted = {(number, number) for number in range(len(topics))}
    for each in (index, FlatPatterns.from_bytes(index.to_bytes())):
        assert of_patterns(each, topics) == wanted
    monkeypatch.setattr("matcher.batch.patterns.hashes", lambda segments, _: segments.lengths.astype("u8"))
    assert len(FlatPatterns(["a__*", "b__*", "a__*"])._header["others"]) == 3
    assert usable_keys(np.array([1, 2], np.uint64))
    assert not usable_keys(np.array([0, 2], np.uint64))
    assert not usable_keys(np.array([2, 2], np.uint64))


@pytest.mark.parametrize("chosen", ["0000000p000p000p", "00000000" + "0000000p000p000p"])
def test_segments_that_collide_cannot_be_chosen(chosen: str) -> None:
    """Without a secret factor between them, the last word removes the difference of the one before in 18 % of salts."""
    segments = pack(["0" * len(chosen), chosen])
    assert not any(np.ptp(hashes(segments, Salt(bytes([number])))) == 0 for number in range(256))


def test_salts_change_hashes() -> None:
    segments = cut(["a.longer-than-a-word." + LONG], get_dialect("nats"))
    one, other = hashes(segments, Salt(b"one")), hashes(segments, Salt(b"other"))
    assert not (one == other).any()
    assert (one == hashes(segments, Salt(b"one"))).all()
