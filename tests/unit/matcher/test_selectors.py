"""Selectors: what the recorded vectors cannot say."""

from importlib.metadata import EntryPoints
from typing import Any

import pytest

from matcher import selectors
from matcher.selectors import Bitmap, BloomFilter, SelectorSyntaxError, TagSelector, UnknownSelector, sql92
from matcher.selectors.sql92 import values

WRONG_SQL = [
    # text, position, part of the reason
    ("", 0, "not complete"),
    ("a = ", 4, "not complete"),
    ("a = 1 garbage", 6, "'garbage' is not allowed here"),
    ("a = 1 and )", 10, "')' is not allowed here"),
    ("a = 'x", 4, "does not start a known token"),
    ("a in (1)", 6, "is not allowed here"),
    ("'a' in ('a')", 0, "only a property"),
    ("1", 0, "a condition is needed"),
    ("a = 1 and -2", 10, "a condition is needed"),
    ("a = NULL", 4, "NULL equals nothing"),
    ("TRUE = 1", 7, "truth value"),
    ("a > 'x'", 4, "only numbers"),
    ("(a = 1) > 0", 3, "neither less nor greater"),
    ("a between 10 and 0", 10, "above the upper"),
    ("a = 9223372036854775808", 4, "64 bits"),
    ("a = 0.0", 4, "neither zero"),
    ("not " * 500 + "(" * 500 + "a = 1" + " = TRUE" * 500 + ")" * 500, None, "200 nested parts"),
    ("a" * 40_000, 32_768, "longer than"),
]
LONG_SQL = [
    ("(" * 5_000 + "a = 1" + ")" * 5_000, True),
    (" or ".join(["a = 2"] * 2_000 + ["a = 1"]), True),
    ("not " * 5_000 + "(a = 1)", True),
    ("a = " + "-" * 30_000 + "1", True),
    ("a in (" + ",".join(["'x'"] * 5_000) + ")", False),
]
NUMBERS = [
    # the text of a property, whether it is above 3 and above 3.0; None where it cannot be read
    ("4", True, True),
    ("+4", True, True),
    ("٤", True, None),
    ("\U0001d7dc", None, None),  # a digit beyond the 16 bits of a Java character
    (" 4", None, True),
    ("4.0", None, True),
    ("4f", None, True),
    ("0x1p2", None, True),
    ("-0x1p2", None, False),
    ("0x1p99999", None, True),
    ("1e999", None, True),
    ("NaN", None, True),
    ("-Infinity", None, False),
    ("nan", None, None),
    ("1_0", None, None),
    ("2147483648", None, True),
    ("9" * 5_000, None, True),
    ("", None, None),
    ("-", None, None),
]


@pytest.mark.rule("sql-never-true")
@pytest.mark.parametrize(("text", "position", "reason"), WRONG_SQL, ids=lambda value: str(value)[:30])
def test_wrong_sql_is_explained(text: str, position: int | None, reason: str) -> None:
    with pytest.raises(SelectorSyntaxError) as caught:
        sql92.compile(text)
    assert reason in caught.value.reason
    assert caught.value.hint
    assert position is None or caught.value.position == position
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(("text", "expected"), LONG_SQL, ids=lambda value: str(value)[:20])
def test_long_sql_is_read_and_evaluated(text: str, *, expected: bool) -> None:
    assert sql92.compile(text, max_nodes=None).evaluate({"a": "1"}) is expected


def test_unknown_kinds_do_not_read_the_installed_packages_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sends requests chooses the kinds, and the metadata of all packages are files."""
    reads: list[str] = []

    def reading(*, group: str) -> EntryPoints:
        reads.append(group)
        return EntryPoints()

    monkeypatch.setattr(selectors, "entry_points", reading)
    selectors._offered.cache_clear()
    for number in range(5):
        with pytest.raises(UnknownSelector):
            selectors.compile(f"KIND{number}", "a")
    selectors._offered.cache_clear()
    assert len(reads) == 1


@pytest.mark.rule("sql-nodes")
@pytest.mark.parametrize(
    ("comparison", "nodes"),
    [("a = 1", 3), ("a <> 1", 4), ("a", 2), ("a in ('x', 'y')", 2), ("a contains 'x'", 2), ("a between 1 and 2", 4)],
)
def test_the_number_of_nodes_is_bounded(comparison: str, nodes: int) -> None:
    fitting = (sql92.MAX_NODES - 1) // nodes
    assert sql92.compile(" or ".join([comparison] * fitting)).evaluate({}) is not True
    text = " or ".join([comparison] * (fitting + 1))
    reason = f"{nodes * (fitting + 1) + 1:,} .* more than {sql92.MAX_NODES:,}"
    with pytest.raises(SelectorSyntaxError, match=reason) as caught:
        selectors.compile("SQL92", text)
    assert text.rindex(comparison) <= caught.value.position < len(text)
    assert selectors.compile("SQL92", text, stored=True).agrees([], {}) is False
    assert sql92.compile(text, max_nodes=None).evaluate({}) is not True


class CountingProperties(dict[str, str]):
    """Properties that count how often they are read."""

    reads = 0

    def get(self, key: str, default: object = None) -> Any:
        self.reads += 1
        return super().get(key, default)


@pytest.mark.rule("sql-nodes")
@pytest.mark.parametrize("depth", [8, 16])
def test_each_node_is_evaluated_once_at_most(depth: int) -> None:
    """A BETWEEN of a BETWEEN: the value between two bounds is not evaluated for each of them."""
    text = "a"
    for _ in range(depth):
        text = f"-({text} between b and c)"
    properties = CountingProperties(a="1", b="1", c="2")
    assert sql92.compile(f"{text} is null").evaluate(properties) is True
    assert properties.reads <= 1 + 2 * depth


def test_a_long_property_is_converted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of comparisons with numbers of thousands of digits read each number once."""
    conversions: list[str] = []
    original = values._DOUBLE

    class Counting:
        def fullmatch(self, text: str) -> Any:
            conversions.append(text)
            return original.fullmatch(text)

    monkeypatch.setattr(values, "_DOUBLE", Counting())
    properties = {"a": "1" * 30_000, "b": "2" * 30_000}
    assert sql92.compile(" or ".join(["a > b"] * 150)).evaluate(properties) is False
    assert len(conversions) == 2


@pytest.mark.rule("sql-literals")
@pytest.mark.parametrize(("text", "above_int", "above_double"), NUMBERS, ids=lambda value: str(value)[:12])
def test_numbers_are_read_as_java_reads_them(text: str, *, above_int: bool | None, above_double: bool | None) -> None:
    """The literal says how the property is read; what cannot be read is an error that says so."""
    for selector, expected in (("a > 3", above_int), ("a > 3.0", above_double)):
        compiled = sql92.compile(selector)
        if expected is None:
            with pytest.raises(sql92.SelectorError, match="cannot be compared"):
                compiled.evaluate({"a": text})
        else:
            assert compiled.evaluate({"a": text}) is expected


@pytest.mark.parametrize(("text", "expected"), [("1 <> not not NULL", True), ("not not not NULL = 1", None)])
def test_a_negated_null_is_no_literal(text: str, *, expected: bool | None) -> None:
    """RocketMQ accepts the negation of NULL in places where it refuses NULL."""
    assert sql92.compile(text).evaluate({}) is expected


def test_minus_zero_is_below_zero() -> None:
    compiled = sql92.compile("a < b")
    assert compiled.evaluate({"a": "-0.0", "b": "0.0"}) is True
    assert compiled.evaluate({"a": "Infinity", "b": "NaN"}) is True
    assert compiled.evaluate({"a": "0", "b": "-0.0"}) is False


@pytest.mark.rule("sql-missing")
def test_only_true_agrees() -> None:
    selector = selectors.compile("SQL92", "a > 3")
    assert selector.agrees([], {"a": "4"})
    assert not any(selector.agrees([], properties) for properties in ({"a": "3"}, {}, {"a": "x"}))


@pytest.mark.rule("tag")
@pytest.mark.parametrize(
    ("text", "matching", "other"),
    [
        ("TagA", ["TagA"], ["TagB", "", None, "taga"]),
        (" TagA ||TagB||", ["TagA", "TagB"], ["TagC", " TagA "]),
        ("*", ["TagA", "", None], []),
        ("", ["TagA", None], []),
        ("*||TagA", ["*", "TagA"], ["TagB"]),
    ],
)
def test_tags(text: str, matching: list[str | None], other: list[str | None]) -> None:
    selector = TagSelector(text)
    assert all(map(selector.matches, matching))
    assert not any(map(selector.matches, other))


@pytest.mark.rule("tag")
def test_a_colliding_hash_is_not_enough() -> None:
    """The first stage lets `BB` pass for `Aa`, the second does not."""
    selector = TagSelector("Aa")
    assert selector.may_match(selectors.java_hash("BB"))
    assert not selector.may_match(selectors.java_hash("BC"))
    assert not selector.matches("BB")


@pytest.mark.parametrize("blank", [" ", "||", " || "])
def test_one_of_several_tags_is_enough(blank: str) -> None:
    """A topic with tags is wanted for any of them, one without only by `*`. A text that names no tag is an error."""
    with pytest.raises(SelectorSyntaxError, match="no tag is named"):
        TagSelector(blank)
    assert TagSelector("a || b").agrees(["x", "b"], {})
    assert not TagSelector("a || b").agrees(["x"], {})
    assert not TagSelector("a || b").agrees([], {})
    assert TagSelector("*").agrees([], {})


@pytest.mark.rule("bloom-filter")
def test_a_bitmap_holds_what_was_added() -> None:
    """Nothing that was added is missed, little else passes, and the bytes are the bitmap."""
    shape = BloomFilter()
    bitmap = shape.bitmap()
    added = [f"GID_{number}#topic" for number in range(32)]
    assert not any(text in bitmap for text in added)
    for text in added:
        bitmap.add(text)
    copy = shape.bitmap(bytes(bitmap))
    assert len(bytes(bitmap)) == 14
    assert all(text in copy for text in added)
    assert sum(f"other_{number}#topic" in copy for number in range(1_000)) < 400
    assert shape.positions("GID#\ud800") == shape.positions("GID#?"), "as Java writes a lone surrogate"


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="1 to 99"):
        BloomFilter(100)
    with pytest.raises(ValueError, match="at least 1"):
        BloomFilter(20, 0)
    with pytest.raises(ValueError, match="112 bits"):
        Bitmap(BloomFilter(), b"\0")


@pytest.mark.rule("selector-kinds")
@pytest.mark.usefixtures("min_length")
def test_a_kind_of_ones_own_comes_by_entry_point() -> None:
    selector = selectors.compile("MIN_LENGTH", "3")
    assert selector.agrees([], {"name": "abc"})
    assert not selector.agrees([], {"name": "ab"})
    with pytest.raises(ValueError, match="invalid literal"):
        selectors.compile("MIN_LENGTH", "three")


@pytest.mark.rule("selector-kinds")
@pytest.mark.usefixtures("min_length")
def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownSelector, match="use one of TAG, SQL92, MIN_LENGTH"):
        selectors.compile("XPATH", "//a")
    with pytest.raises(UnknownSelector, match=r"named 'X{80}\.\.\.'; use"):
        selectors.compile("X" * 1_000_000, "//a")
    assert isinstance(selectors.compile("TAG", "a"), TagSelector)


@pytest.mark.parametrize(("text", "tag"), [("\u3000a", "\u3000a"), ("a\xa0", "a\xa0"), ("\0a", "a"), (" a\t|| ", "a")])
def test_blanks_around_a_tag_are_those_of_java(text: str, tag: str) -> None:
    """`FilterAPI.buildSubscriptionData` drops them with `String.trim`."""
    assert TagSelector(text).tags == frozenset({tag})
