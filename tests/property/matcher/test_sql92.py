"""SQL92 selectors: chains of operators mean what their definition says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matcher.selectors import sql92

VALUES = st.sampled_from(["", "1", "x", " 2.5", "NaN", "true", "0x1p3", "٤"]) | st.text(max_size=5)
PROPERTIES = st.dictionaries(st.sampled_from(["a", "b"]), VALUES)
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
