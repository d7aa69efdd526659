"""Selectors: whatever their text and the properties are, an answer or one of the announced errors."""

import math
from typing import Final

from matcher.selectors import BloomFilter, SelectorSyntaxError, TagSelector, java_hash, sql92
from tests.fuzz.draw import Draw

_SQL: Final = (
    *("a", " ", "b", "=", "1", "'x'", "(", ")", " AND ", " or ", " NOT ", " is ", "NULL", " in ", " between "),
    *("TRUE", "false", " contains ", " STARTSWITH ", " endswith ", "''", "'1'", "'it''s'", "0", "7L", "2.5", ".5e1"),
    *("0.0", "01", "1e400", "9223372036854775807", "9223372036854775808", "<>", "<", "<=", ">", ">=", "-", "--", "+"),
    *(",", "'", "\n", "/*", "*/", "*", "é", "@", "$", "_", "."),
)
_VALUES: Final = (
    *("", "1", "x", " ", "-", "+", ".", "5", "e", "E", "NaN", "Infinity", "true", "TRUE", "0x", "p3", "f", "D"),
    *("\u0664", "\U0001d7d8", "\0", "\u2003", "9223372036854775807", "2147483648", "99999999999999999999"),
)
_TAGS: Final = ("a", "|", "||", " ", "b", "*", "Aa", "BB", "\u2003", "\ud800", "\U0001f600")


def selectors(data: bytes) -> None:
    draw = Draw(data)
    (_sql92, _sql92, _tag, _bloom)[draw.number(4)](draw)


def _sql92(draw: Draw) -> None:
    text = draw.text(_SQL)
    properties = {name: draw.text(_VALUES) for name in "ab" if draw.flag()}
    try:
        selector = sql92.compile(text)
    except SelectorSyntaxError as error:
        assert error.text == text
        assert 0 <= error.position <= len(text)
        assert error.reason
        assert error.hint
        assert len(str(error)) < 1_500  # it repeats a part of the text
        return
    answer = _outcome(selector, properties)
    assert selector.agrees([], properties) is (answer is True)
    if len(text) < sql92.MAX_LENGTH - 2:
        assert _outcome(sql92.compile(f"({text})"), properties) == answer
    negated = sql92.compile(f"NOT ({text})") if len(text) < sql92.MAX_LENGTH - 6 and _depth(selector) else None
    if negated is not None and answer != "error":
        assert _outcome(negated, properties) is (None if answer is None else not answer)


def _depth(selector: sql92.Sql92Selector) -> bool:
    """Whether one more part can lie around the selector."""
    return selector._root.depth < sql92.MAX_DEPTH


def _outcome(selector: sql92.Sql92Selector, properties: dict[str, str]) -> bool | str | None:
    try:
        value = selector.evaluate(properties)
    except sql92.SelectorError as error:
        assert str(error)
        return "error"
    assert value is None or isinstance(value, bool)
    return value


def _tag(draw: Draw) -> None:
    text = draw.text(_TAGS)
    wanted = {tag.strip("".join(map(chr, range(33)))) for tag in text.split("||")} - {""}
    try:
        selector = TagSelector(text)
    except SelectorSyntaxError as error:
        assert not wanted
        assert str(error)
        return
    everything = text in ("", "*")
    assert selector.tags == (None if everything else wanted)
    tags = [draw.text(_TAGS) for _ in range(draw.number(4))]
    for tag in tags:
        assert -(1 << 31) <= java_hash(tag) < 1 << 31
        assert selector.matches(tag) is (everything or tag in wanted)
        assert selector.may_match(java_hash(tag)) or not selector.matches(tag)
    assert selector.agrees(tags, {}) is (everything or not wanted.isdisjoint(tags))


def _bloom(draw: Draw) -> None:
    percent, expected = draw.number(120) - 10, draw.number(300) - 1
    try:
        shape = BloomFilter(percent, expected)
    except ValueError:
        assert not 0 < percent < 100 or expected < 1
        return
    assert shape.m % 8 == 0
    assert shape.k == math.ceil(-math.log2(percent / 100))
    bitmap = shape.bitmap()
    texts = [draw.text(_TAGS) for _ in range(draw.number(8))]
    for text in texts:
        positions = shape.positions(text)
        assert len(positions) == shape.k
        assert all(0 <= position < shape.m for position in positions)
        bitmap.add(text)
    copy = shape.bitmap(bytes(bitmap))
    assert all(text in bitmap and text in copy for text in texts)
    asked = draw.text(_TAGS)
    assert (asked in copy) is all(copy._bits[place // 8] >> place % 8 & 1 for place in shape.positions(asked))
