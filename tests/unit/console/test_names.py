"""Levels of the tree, read from sorted names."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.console.live import Branch, SortedNames

SEPARATORS = ("__", "/", ".")
names_drawn = st.lists(st.text(st.sampled_from("ab_/.\U0010ffff"), max_size=9), max_size=40)


def filled(names: list[str]) -> SortedNames:
    found = SortedNames()
    for name in names:
        found.add(name)
    return found


def whole(names: SortedNames, prefix: str, separator: str, size: int) -> list[Branch]:
    """Read a level in pages of a size."""
    found: list[Branch] = []
    after = ""
    while True:
        level = names.level(prefix, separator, after, size)
        assert len(level.branches) <= size
        found += level.branches
        if not level.more:
            return found
        after = level.more


@given(names_drawn, st.sampled_from(SEPARATORS), st.integers(1, 5), st.data())
def test_a_level_is_what_its_definition_says(names: list[str], separator: str, size: int, data: st.DataObject) -> None:
    """In pages of any size: each next segment once, with its number of topics, and each topic that ends here."""
    prefixes = ["", *(name[: name.index(separator) + len(separator)] for name in names if separator in name)]
    prefix = data.draw(st.sampled_from(prefixes))
    below = {name for name in names if name.startswith(prefix)}
    branches = Counter(name[len(prefix) :].split(separator)[0] for name in below if separator in name[len(prefix) :])
    wanted = {Branch(name[len(prefix) :], "", name, 1) for name in below if separator not in name[len(prefix) :]}
    wanted |= {Branch(text, prefix + text + separator, "", count) for text, count in branches.items()}
    found = whole(filled(names), prefix, separator, size)
    assert len(found) == len(set(found))
    assert set(found) == wanted


@given(names_drawn, st.text(st.sampled_from("ab_/.\U0010ffff"), max_size=3), st.integers(1, 5))
def test_pages_of_a_beginning_hold_each_name_once(names: list[str], prefix: str, size: int) -> None:
    held, found, after = filled(names), [], ""
    while page := held.page(prefix, after, size):
        found += page
        after = page[-1]
        if not after:  # the empty name cannot be told from the first page
            break
    wanted = sorted({name for name in names if name.startswith(prefix)})
    assert held.count(prefix) == len(wanted)
    assert found == wanted or "" in wanted


@given(names_drawn, st.integers(1, 10))
def test_a_sample_is_in_order_and_from_the_names(names: list[str], size: int) -> None:
    sample = filled(names).sample(size)
    assert sample == sorted(set(sample))
    assert len(sample) == min(size, len(set(names)))
    assert set(sample) <= set(names)


def test_a_name_is_held_once_and_removed_once() -> None:
    names = filled(["a", "a"])
    assert len(names) == 1
    names.remove("a")
    names.remove("a")
    assert len(names) == 0


@pytest.mark.parametrize("count", [200_000])
def test_a_level_of_many_topics_costs_its_branches(count: int) -> None:
    """A hundred branches of two thousand topics each are found with some searches, not with a look at each topic."""
    names = SortedNames()
    names._names.update(f"{number % 100:02}__{number}" for number in range(count))
    looked = 0
    held = names._names

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

    names._names = Counting()
    level = names.level("", "__", "", 500)
    assert len(level.branches) == 100
    assert sum(branch.topics for branch in level.branches) == count
    assert looked <= 3 * 100
