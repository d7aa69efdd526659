"""Levels of the tree, read from sorted names."""

from collections import Counter

from hypothesis import example, given
from hypothesis import strategies as st
from sortedcontainers import SortedList

from streaming.console import live
from streaming.console.live import Branch

SEPARATORS = ("__", "/", ".")
names_drawn = st.lists(st.text(st.sampled_from("ab_/.\U0010ffff"), max_size=9), max_size=40)


def sorted_names(names: list[str]) -> SortedList:
    return SortedList(set(names))


def whole(names: SortedList, prefix: str, separator: str, size: int) -> list[Branch]:
    """Read a level in pages of a size."""
    found: list[Branch] = []
    after = ""
    while True:
        branches, after = live.level(names, prefix, separator, after, size)
        assert len(branches) <= size
        found += branches
        if not after:
            return found


@given(names_drawn, st.sampled_from(SEPARATORS), st.integers(1, 5), st.data())
def test_a_level_is_what_its_definition_says(names: list[str], separator: str, size: int, data: st.DataObject) -> None:
    """In pages of any size: each next segment once, with its number of topics, and each topic that ends here."""
    prefixes = ["", *(name[: name.index(separator) + len(separator)] for name in names if separator in name)]
    prefix = data.draw(st.sampled_from(prefixes))
    below = {name for name in names if name.startswith(prefix)}
    branches = Counter(name[len(prefix) :].split(separator)[0] for name in below if separator in name[len(prefix) :])
    wanted = {Branch(name[len(prefix) :], "", name, 1) for name in below if separator not in name[len(prefix) :]}
    wanted |= {Branch(text, prefix + text + separator, "", count) for text, count in branches.items()}
    found = whole(sorted_names(names), prefix, separator, size)
    assert len(found) == len(set(found))
    assert set(found) == wanted


@given(names_drawn, st.text(st.sampled_from("ab_/.\U0010ffff"), max_size=3), st.integers(1, 5))
@example(["\U0010ffff\U0010ffff"], "\U0010ffff", 1)
def test_pages_of_a_beginning_hold_each_name_once(names: list[str], prefix: str, size: int) -> None:
    held, found, after = sorted_names(names), list[str](), ""
    while page := live.page(held, prefix, after, size):
        found += page
        after = page[-1]
        if not after:  # the empty name cannot be told from the first page
            break
    wanted = sorted({name for name in names if name.startswith(prefix)})
    assert live.count(held, prefix) == len(wanted)
    assert found == wanted or "" in wanted


@given(names_drawn, st.integers(1, 10))
def test_a_sample_is_in_order_and_from_the_names(names: list[str], size: int) -> None:
    sample = live.sample(sorted_names(names), size)
    assert sample == sorted(set(sample))
    assert len(sample) == min(size, len(set(names)))
    assert set(sample) <= set(names)


def test_a_level_of_many_topics_costs_its_branches() -> None:
    """A hundred branches of two thousand topics each are found with some searches, not with a look at each topic."""
    held = SortedList(f"{number % 100:02}__{number}" for number in range(200_000))
    looked = 0

    class Counting:
        def __getattr__(self, name: str) -> object:
            nonlocal looked
            looked += 1
            return getattr(held, name)

        def __getitem__(self, at: int) -> object:
            nonlocal looked
            looked += 1
            return held[at]

        def __len__(self) -> int:
            return len(held)

    found = live.level(Counting(), "", "__", "", 500)
    assert len(found.branches) == 100
    assert sum(branch.topics for branch in found.branches) == len(held)
    assert looked <= 3 * 100
