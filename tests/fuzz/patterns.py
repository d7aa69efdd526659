"""Dialects, indexes and batches: all ways to ask give one answer, and nothing fails but as announced."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Final, NamedTuple

import matcher
from matcher import PatternIndex, TopicIndex
from matcher.batch import FlatPatterns, FlatTopics
from matcher.batch.postings import Postings
from matcher.batch.shapes import shape_of
from matcher.dialects import mqtt, nats, wamp
from matcher.index.texts import PatternTexts
from matcher.index.topics import _is_short
from matcher.pattern import Pattern, Tail
from tests.fuzz.draw import Draw
from tests.support import definitions
from tests.support.keys import match_by_keys


class Case(NamedTuple):
    """A dialect, the tokens that its texts are made of, its definition and its options."""

    dialect: str
    tokens: Sequence[str]
    holds: definitions.Definition
    policies: Sequence[str | None] = (None,)
    inner: bool = False


_LITE: Final = ("a", "__", "*", "b", "__*__", "__**", "**", "_", " ", "longer-than-a-word", "é", "\0", "\n")
_MQTT: Final = ("a", "/", "+", "b", "/+/", "/#", "$", "#", "longer-than-a-word", "é", "\0", "$share/", "\ud800")
_NATS: Final = ("a", ".", "*", "b", ".*.", ".>", ">", " ", "longer-than-a-word", "é", "\0", "\t")
_WAMP: Final = ("a", ".", "*", "b", ".*.", ".*", "**", "..", "longer-than-a-word", "é", "#", "com.")
CASES: Final = (
    Case("lite", _LITE, definitions.lite),
    Case("lite", _LITE, definitions.lite, inner=True),
    Case("mqtt", _MQTT, definitions.mqtt),
    Case("nats", _NATS, definitions.nats),
    Case("wamp", _WAMP, definitions.wamp, (None, *wamp.POLICIES)),
)

Asked = tuple[str, str | None]  # the text of a pattern, and its policy


class Meeting(NamedTuple):
    """Valid patterns and any topics of one dialect, and which of them match by the definition."""

    case: Case
    asked: list[Asked]
    parsed: list[Pattern]
    topics: list[str]
    expected: set[tuple[int, int]]  # (topic, pattern)


def patterns(data: bytes) -> None:
    """Check reading, single checks and both indexes."""
    draw = Draw(data)
    meeting = _meet(draw)
    case = meeting.case
    for topic in meeting.topics:
        _check_topic(case, topic)
    for number, (text, policy) in enumerate(meeting.asked):
        for row, topic in enumerate(meeting.topics):
            expected = (row, number) in meeting.expected
            assert matcher.matches(text, topic, case.dialect, policy=policy, allow_inner_multi=case.inner) is expected
            why = matcher.explain(text, topic, case.dialect, policy=policy, allow_inner_multi=case.inner)
            assert why.matched is expected is (why.outcome == "match")
            assert str(why)
            assert bool(why.steps) is (why.outcome != "invalid-topic")
            assert why.outcome == "invalid-topic" or all(step.fits for step in why.steps) is expected
    _check_pattern_index(meeting, draw)
    _check_pattern_texts(meeting, draw)
    _check_topic_index(meeting, draw)
    _check_options(draw, case)


def batches(data: bytes) -> None:
    """Check the flat arrays, as built and as read from their bytes."""
    draw = Draw(data)
    meeting = _meet(draw)
    dialect, rules = meeting.case.dialect, matcher.get_dialect(meeting.case.dialect)
    built = FlatPatterns(meeting.parsed, dialect)
    for patterns in (built, FlatPatterns.from_bytes(built.to_bytes())):
        rows, numbers = patterns.match_batch(meeting.topics)
        found = list(zip(rows.tolist(), numbers.tolist(), strict=True))
        assert set(found) == meeting.expected
        assert len(found) == len(meeting.expected)
    made = FlatTopics(meeting.topics, dialect)
    for topics in (made, FlatTopics.from_bytes(made.to_bytes())):
        numbers, rows = topics.expand_batch(meeting.parsed)
        found = list(zip(rows.tolist(), numbers.tolist(), strict=True))
        assert found == sorted(meeting.expected, key=lambda pair: (pair[1], pair[0]))
    if rules.whole_wildcards:
        shaped = {number for number, pattern in enumerate(meeting.parsed) if shape_of(pattern)}
        expected = sorted(pair for pair in meeting.expected if pair[1] in shaped)
        assert match_by_keys(meeting.parsed, meeting.topics, rules) == expected
    _check_postings(meeting, draw)


def _check_postings(meeting: Meeting, draw: Draw) -> None:
    """Check the postings of some topics after others have come and gone."""
    topics, rules = meeting.topics, matcher.get_dialect(meeting.case.dialect)
    first = draw.number(len(topics) + 1)
    gone = {row for row in range(first) if draw.flag()}
    made = Postings(Postings.empty(rules, b"secret").replaced((), topics[:first]), rules, b"secret")
    postings = Postings(made.replaced(gone, topics[first:]), rules, b"secret")
    kept = [row for row in range(len(topics)) if row not in gone]
    assert len(postings) == len(kept)
    wild = {number: pattern for number, pattern in enumerate(meeting.parsed) if pattern.literal is None}
    for numbers in (list(wild), *([number] for number in wild)):
        asked = [wild[number] for number in numbers]
        found = list(chain.from_iterable(postings.expand(asked, lambda rows: [topics[kept[row]] for row in rows])))
        expected = [topics[row] for row, number in meeting.expected if number in numbers and row not in gone]
        assert set(found) == set(expected)
        assert len(found) <= len(expected)


def _meet(draw: Draw) -> Meeting:
    case = draw.pick(CASES)
    asked, parsed = [], []
    for _ in range(1 + draw.number(8)):
        text, policy = pattern_for(draw, case), draw.pick(case.policies)
        pattern = _read(case, text, policy)
        if pattern is not None:
            asked.append((text, policy))
            parsed.append(pattern)
    topics = [topic_for(draw, case, [text for text, _ in asked]) for _ in range(1 + draw.number(8))]
    expected = {
        (row, number)
        for row, topic in enumerate(topics)
        for number, (text, policy) in enumerate(asked)
        if case.holds(text, policy, topic)
    }
    return Meeting(case, asked, parsed, topics, expected)


def pattern_for(draw: Draw, case: Case) -> str:
    """Return any text, or one of a few whole segments, which is more likely a pattern."""
    if draw.flag():
        return draw.text(case.tokens)
    separator = matcher.get_dialect(case.dialect).separator
    segments = [token for token in case.tokens if separator not in token]
    return separator.join(draw.pick(segments[: 2 + draw.number(8)]) for _ in range(1 + draw.number(4)))


def topic_for(draw: Draw, case: Case, texts: Sequence[str]) -> str:
    """Return any topic, or a pattern with other segments in place of its wildcards, which it may match."""
    if not texts or draw.flag():
        return draw.text(case.tokens)
    separator = matcher.get_dialect(case.dialect).separator
    segments: list[str] = []
    for part in draw.pick(texts).split(separator):
        if part in ("*", "**", "+", "#", ">", "") or not draw.number(8):
            segments += draw.pick((["a"], ["b"], [], ["a", "b"], [""], [draw.text(case.tokens)], [part], ["é"]))
        else:
            segments.append(part)
    return separator.join(segments) + (draw.text(case.tokens) if draw.number(4) == 3 else "")


def _read(case: Case, text: str, policy: str | None) -> Pattern | None:
    """Parse and validate a text, which may be refused with a place in it."""
    dialect = matcher.get_dialect(case.dialect)
    valid = matcher.is_valid(text, case.dialect, policy=policy, allow_inner_multi=case.inner)
    pattern = None
    try:
        pattern = dialect.parse(text, policy=policy, allow_inner_multi=case.inner)
        dialect.validate(text, policy=policy, allow_inner_multi=case.inner)
    except matcher.InvalidPattern as error:
        _check_place(error, text, dialect.separator)
        assert not valid
    else:
        assert valid
    if pattern is None:
        assert not matcher.matches(text, text, case.dialect, policy=policy, allow_inner_multi=case.inner)
    else:
        assert pattern.text == text
        assert pattern.has_many == (matcher.pattern.MANY in pattern.segments)
    return pattern


def _check_place(error: matcher.errors.Malformed, text: str, separator: str) -> None:
    assert error.text == text
    assert 0 <= error.position <= len(text)
    assert 1 <= error.segment <= len(text.split(separator))
    assert error.reason
    assert error.hint
    assert len(str(error)) < 1_000  # it repeats a part of the text, at most six characters for one


def _check_topic(case: Case, topic: str) -> None:
    dialect = matcher.get_dialect(case.dialect)
    segments = dialect.split(topic)
    assert segments is None or dialect.separator.join(segments) == topic
    try:
        dialect.validate_topic(topic)
    except matcher.InvalidTopic as error:
        _check_place(error, topic, dialect.separator)
        assert segments is None or case.dialect == "wamp"  # there, matching validates nothing
    else:
        assert segments is not None
    mqtt.shared(topic)
    wamp.flaw_of_uri(topic, strict=True)
    nats.Nats().is_literal(topic)


def _check_options(draw: Draw, case: Case) -> None:
    """Options that a dialect does not know give the announced error, in every function."""
    policy, inner = draw.pick((None, "prefix", "", "é")), draw.flag()
    text, topic = draw.text(case.tokens), draw.text(case.tokens)
    knows = policy in (None, *(case.policies if case.dialect == "wamp" else ())) and not (
        inner and case.dialect != "lite"
    )
    calls: tuple[Callable[[], object], ...] = (
        lambda: matcher.matches(text, topic, case.dialect, policy=policy, allow_inner_multi=inner),
        lambda: matcher.is_valid(text, case.dialect, policy=policy, allow_inner_multi=inner),
        lambda: matcher.expand([text], [topic], case.dialect, policy=policy, allow_inner_multi=inner),
    )
    for call in calls:
        try:
            call()
        except matcher.UnsupportedOption:
            assert not knows
        else:
            assert knows


def _rank(pattern: Pattern) -> tuple[int, ...]:
    """Return what the best match has least of: first exact patterns, then one-segment wildcards, then the others.

    Of these the one of most segments is the best; those with an inner wildcard have no order.
    """
    if pattern.literal is not None:
        return (0,)
    if pattern.has_many:
        return (3,)
    if pattern.tail is Tail.END:
        return (1,)
    return (2, -len(pattern.whole))


def _check_pattern_index(meeting: Meeting, draw: Draw) -> None:
    """Add all, ask, remove and add some again, ask, and remove the rest."""
    case = meeting.case
    index: PatternIndex[int] = PatternIndex(case.dialect, allow_inner_multi=case.inner)
    kept = set(range(len(meeting.asked)))
    for number, (text, policy) in enumerate(meeting.asked):
        assert index.add(text, number, policy=policy)
        assert not index.add(meeting.parsed[number], number)
    for _ in range(3):
        assert len(index) == len(kept)
        assert sorted(index) == sorted((meeting.asked[number][0], number) for number in kept)
        for row, topic in enumerate(meeting.topics):
            found = index.match(topic)
            assert sorted(found) == [number for number in sorted(kept) if (row, number) in meeting.expected]
            assert index.match_patterns(topic) == [(meeting.asked[number][0], number) for number in found]
            ranks = [_rank(meeting.parsed[number]) for number in found]
            assert ranks == sorted(ranks)
        for number, (text, policy) in enumerate(meeting.asked):
            if draw.flag():
                change = index.remove if number in kept else index.add
                assert change(text, number, policy=policy)
                assert not change(text, number, policy=policy)
                kept ^= {number}
    for pattern, number in list(index):
        assert not index.remove(meeting.parsed[number], -1)
        assert index.remove(meeting.parsed[number], number), pattern
    assert list(index) == []
    assert len(index) == index._prefix_count == 0
    assert not index._exact
    assert index._trie.is_empty
    assert index._prefixes.is_empty
    assert not index._inner.entries
    assert {block.patterns for block in index._inner._blocks.values()} <= {()}


def _check_pattern_texts(meeting: Meeting, draw: Draw) -> None:
    """Add all at once or one by one, ask, remove and add some again, ask, and remove the rest."""
    case, texts = meeting.case, []
    for text, _ in meeting.asked:
        share = mqtt.shared(text) if case.dialect == "mqtt" else None
        texts.append(text if share is None else share.filter)
    index: PatternTexts[int] = PatternTexts(case.dialect, allow_inner_multi=case.inner)
    policies = [policy for _, policy in meeting.asked]
    for policy in dict.fromkeys(policies):
        index.add_all([((texts[at],), at) for at, each in enumerate(policies) if each == policy], policy=policy)
    kept = set(range(len(texts)))
    for _ in range(3):
        assert len(index) == len(kept)
        for row, topic in enumerate(meeting.topics):
            found = index.match_patterns(topic)
            assert sorted(found, key=lambda pair: pair[1]) == [
                (texts[number], number) for number in sorted(kept) if (row, number) in meeting.expected
            ]
            assert index.match(topic) == [number for _, number in found]
        for number, text in enumerate(texts):
            if draw.flag():
                (index.remove if number in kept else index.add)((text,), number, policy=policies[number])
                kept ^= {number}
    for number in kept:
        index.remove((texts[number],), number, policy=policies[number])
    assert len(index) == index.parsed == 0
    assert not index._values
    assert not index._spelling._forms
    assert not index._spelling._counts


def _check_nodes(index: TopicIndex) -> None:
    """Short topics have no nodes for themselves, which take memory; others do, or look-ups would search their texts."""
    nodes = [index._root]
    for node in nodes:
        below = [child for child in node.values() if not isinstance(child, str)]
        alone = {key: child for key, child in node.items() if isinstance(child, str)}
        ending = [] if node.topic is None else [node.topic]
        assert all(_is_short(topic, index._keys(topic) or []) or key == topic for key, topic in alone.items())
        if node is not index._root and not below:
            first, *others = *alone.values(), *ending
            assert others or not _is_short(first, index._keys(first) or [])
        nodes += below
    assert index.nodes == len(nodes) - 1


def _check_topic_index(meeting: Meeting, draw: Draw) -> None:
    """Add all, ask, remove and add some again, ask, and remove the rest."""
    index = TopicIndex(meeting.case.dialect, allow_inner_multi=meeting.case.inner)
    topics = dict.fromkeys(meeting.topics)
    matched: dict[int, set[str]] = defaultdict(set)
    for row, number in meeting.expected:
        matched[number].add(meeting.topics[row])
    of_any = set().union(*matched.values())
    assert matcher.expand(meeting.parsed, meeting.topics, meeting.case.dialect) == [
        topic for topic in topics if topic in of_any
    ]
    kept = set(topics)
    for topic in kept:
        assert index.add(topic)
        assert not index.add(topic)
    for _ in range(3):
        assert sorted(index) == sorted(kept)
        assert len(index) == len(kept)
        assert None not in index
        _check_nodes(index)
        for number, (text, policy) in enumerate(meeting.asked):
            assert sorted(index.expand(text, policy=policy)) == sorted(kept & matched[number])
        assert set(index.expand_any(meeting.parsed)) == kept & of_any
        for topic in topics:
            assert (topic in index) is (topic in kept)
            if draw.flag():
                change = index.remove if topic in kept else index.add
                assert change(topic)
                assert not change(topic)
                kept ^= {topic}
    for topic in list(index):
        assert index.remove(topic)
    assert list(index) == []
    assert len(index) == 0
    assert not index._root
    assert not index._unmatchable
