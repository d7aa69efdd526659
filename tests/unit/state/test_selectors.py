"""Selectors of a group: which requests can still be taken back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.records.model import Place, SelectorSpec
from streaming.state.client import Mode
from streaming.state.group import MAX_UNSETTLED, NO_SELECTORS, Selection

BOTH = tuple(Mode)
settings_of_groups = st.lists(
    st.tuples(
        st.sampled_from([SelectorSpec("TAG", text) for text in "xyz"]),
        st.sampled_from([BOTH, (Mode.LITERAL,), (Mode.WILDCARD,)]),
        st.booleans(),
        st.sets(st.sampled_from(Mode)),
    ),
    max_size=MAX_UNSETTLED,
)


def selection(position: int, text: str, modes: tuple[Mode, ...] = BOTH) -> Selection:
    """A request that sets a TAG selector."""
    return Selection(0, Place(0, position, 0).position, SelectorSpec("TAG", text), modes)


@pytest.mark.rule("revoked-selector")
@given(settings_of_groups)
def test_what_is_left_is_what_the_other_requests_set(
    requests: list[tuple[SelectorSpec, tuple[Mode, ...], bool, set[Mode]]],
) -> None:
    """Whichever of the requests with a version turn out to be stale, and under which modes."""
    selectors, wanted = NO_SELECTORS, dict[Mode, SelectorSpec]()
    for position, (selector, modes, has_version, stale) in enumerate(requests):
        selectors = selectors.after(
            Selection(0, Place(0, position, 0).position, selector, modes), can_be_stale=has_version
        )
        wanted |= {mode: selector for mode in modes if not (has_version and mode in stale)}
    for position, (_, _, has_version, stale) in enumerate(requests):
        if has_version:
            selectors = selectors.without(Place(0, position, 0), stale)
    assert selectors.in_force == tuple(map(wanted.get, Mode))


def test_of_requests_that_repeat_what_is_settled_only_the_last_is_kept() -> None:
    """Clients repeat their requests now and then. If the last one cannot become stale, its place is enough."""
    settled = NO_SELECTORS.after(selection(0, "x"), can_be_stale=False)
    again = settled.after(selection(1, "x"), can_be_stale=True).after(selection(2, "x"), can_be_stale=True)
    assert again == settled._replace(unsettled=(selection(2, "x"),))
    assert again.after(selection(3, "x"), can_be_stale=False) == settled._replace(settled_at=selection(3, "x").position)
    assert settled.in_force == (SelectorSpec("TAG", "x"),) * 2


def test_a_selector_that_counts_after_all_stays_before_a_later_repetition() -> None:
    selectors = NO_SELECTORS.after(selection(0, "x"), can_be_stale=False).after(selection(2, "x"), can_be_stale=False)
    assert selectors.with_earlier(selection(1, "y")).in_force == (SelectorSpec("TAG", "x"),) * 2
    assert selectors.with_earlier(selection(3, "y")).in_force == (SelectorSpec("TAG", "y"),) * 2


@pytest.mark.parametrize("stale_first", [True, False])
def test_a_repetition_that_becomes_stale_hides_no_selector_that_counts_after_all(*, stale_first: bool) -> None:
    again = selection(2, "x")
    selectors = NO_SELECTORS.after(selection(0, "x"), can_be_stale=False).after(again, can_be_stale=True)
    counted = selectors.with_earlier(selection(1, "y"))
    assert counted.in_force == (SelectorSpec("TAG", "x"),) * 2
    place = Place(0, 2, 0)
    if stale_first:
        counted = selectors.without(place, again.modes).with_earlier(selection(1, "y"))
    else:
        counted = counted.without(place, again.modes)
    assert counted.in_force == (SelectorSpec("TAG", "y"),) * 2


@pytest.mark.rule("revoked-selector")
def test_the_oldest_of_many_requests_are_settled() -> None:
    selectors = NO_SELECTORS
    for position in range(MAX_UNSETTLED + 1):
        selectors = selectors.after(selection(position, "xy"[position % 2]), can_be_stale=True)
    assert len(selectors.unsettled) < MAX_UNSETTLED + 1
    assert selectors.in_force == (SelectorSpec("TAG", "x"),) * 2
    for position in range(MAX_UNSETTLED + 1):
        selectors = selectors.without(Place(0, position, 0), BOTH)
    assert selectors.in_force == (SelectorSpec("TAG", "x"),) * 2


@pytest.mark.rule("restored-selector")
def test_a_request_that_counts_after_all_takes_its_turn() -> None:
    """It was stale when it was read: what was set since then stays, and what was set before does not."""
    first, late, last = (selection(position, text) for position, text in enumerate("xyz"))
    selectors = NO_SELECTORS.after(first, can_be_stale=True).with_earlier(late)
    assert selectors.in_force == (SelectorSpec("TAG", "y"),) * 2
    assert selectors.with_earlier(late) == selectors
    settled = NO_SELECTORS.after(last, can_be_stale=False)
    assert settled.with_earlier(late) == settled
    assert selectors.after(last, can_be_stale=True).with_earlier(late).in_force == (SelectorSpec("TAG", "z"),) * 2
