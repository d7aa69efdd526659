"""SQL92 selectors: whatever is put together of their words gives a value or one of the two announced errors."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matcher.selectors import sql92

WORDS = st.sampled_from(
    [
        *("a", "b", "''", "'x'", "'1'", "'it''s'", "0", "1", "7L", "2.5", ".5e1", "0.0", "01", "1e400"),
        *("=", "<>", "<", "<=", ">", ">=", "-", "--", "+", "(", ")", ",", "'", "\n", "/*", "*/", "é", "@"),
        *("AND", "or", "NOT", "is", "NULL", "in", "between", "TRUE", "false", "contains", "STARTSWITH", "endswith"),
    ]
)
TEXTS = st.lists(WORDS, max_size=14).map(" ".join) | st.lists(WORDS, max_size=14).map("".join) | st.text(max_size=20)
VALUES = st.sampled_from(["", "1", "x", " 2.5", "NaN", "true", "0x1p3", "٤"]) | st.text(max_size=5)
PROPERTIES = st.dictionaries(st.sampled_from(["a", "b"]), VALUES)


@given(TEXTS, PROPERTIES)
@settings(max_examples=300)
def test_any_text_compiles_or_raises_an_announced_error(text: str, properties: dict[str, str]) -> None:
    """There are three values and two errors, and the position of one lies in the text."""
    try:
        selector = sql92.compile(text)
    except sql92.SelectorSyntaxError as error:
        assert 0 <= error.position <= len(text)  # noqa: PT017 - an error is one of the right outcomes
        return
    try:
        value = selector.evaluate(properties)
    except sql92.SelectorError:
        assert not selector.agrees([], properties)
    else:
        assert value in (True, False, None)
        assert selector.agrees([], properties) is (value is True)


OPERANDS = st.sampled_from(["TRUE", "FALSE", "NULL", "a = 1", "b = 2", "1 = 'x'"])


@pytest.mark.rule("sql-junctions")
@given(st.lists(OPERANDS, min_size=1, max_size=5), st.sampled_from(["AND", "OR"]), PROPERTIES)
def test_a_chain_is_its_pairs_from_the_left(operands: list[str], word: str, properties: dict[str, str]) -> None:
    """A chain of one operator gives what parentheses around each pair, from the left, give."""

    def outcome(text: str) -> bool | str | None:
        try:
            return sql92.compile(text).evaluate(properties)
        except sql92.SelectorError:
            return "error"

    nested = operands[0]
    for operand in operands[1:]:
        nested = f"({nested}) {word} ({operand})"
    assert outcome(f" {word} ".join(operands)) == outcome(nested)
