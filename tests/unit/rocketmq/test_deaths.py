"""Numbers of lite topics that tell of ends."""

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


def test_what_a_search_does_not_explain_is_usual_from_then_on() -> None:
    tally = Tally()
    assert not tally.is_short(10, 15)
    assert tally.is_short(10, 13)
    tally.search()
    tally.found(1)
    assert tally.is_short(9, 13)
    tally.searched()
    assert not tally.is_short(9, 13)


def test_an_end_during_a_search_is_searched_for_again() -> None:
    tally = Tally()
    assert not tally.is_short(10, 10)
    assert tally.is_short(10, 9)
    tally.search()
    assert tally.is_short(10, 8)
    tally.searched()
    assert tally.is_short(10, 8)
    assert not tally.is_short(8, 8)
