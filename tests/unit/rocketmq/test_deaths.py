"""Numbers of lite topics that tell of ends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.rocketmq.lite_topics import Tally


@given(st.integers(0, 5), st.integers(0, 3), st.lists(st.integers(0, 4), max_size=8))
def test_a_birth_does_not_hide_an_end(unknown: int, ends: int, births: list[int]) -> None:
    """Births that the broker counts already, and the watcher does not know yet, come and go."""
    tally, known = Tally(), 50
    assert not tally.is_short(known, known + unknown)
    for late in [*births, 0]:
        known += late
        assert not tally.is_short(known - late, known + unknown)
    assert tally.is_short(known, known + unknown - ends) is (ends > 0)


@pytest.mark.parametrize(
    ("first", "found", "during", "after"),
    [
        ([(10, 15, False), (10, 13, True)], 1, (9, 13, True), [(9, 13, False)]),
        ([(10, 10, False), (10, 9, True)], 0, (10, 8, True), [(10, 8, True), (8, 8, False)]),
        ([(10, 10, False), (10, 9, True)], 1, (9, 8, True), [(9, 8, True), (8, 8, False)]),
    ],
    ids=[
        "what a search does not explain is usual from then on",
        "an end during a search is searched for again",
        "an end after a found one is searched for again",
    ],
)
def test_a_search_explains_the_difference(
    first: list[tuple[int, int, bool]], found: int, during: tuple[int, int, bool], after: list[tuple[int, int, bool]]
) -> None:
    """Of known topics and topics that the broker counts; True if some have ended."""
    tally = Tally()
    assert [tally.is_short(known, count) for known, count, _ in first] == [False, True]
    tally.search()
    tally.found(found)
    assert tally.is_short(*during[:2]) is during[2]
    tally.searched()
    assert [tally.is_short(known, count) for known, count, _ in after] == [short for *_, short in after]
