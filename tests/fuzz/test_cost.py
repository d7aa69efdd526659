"""A short search for expensive inputs stays within the budgets, and the search itself finds what is expensive."""

import random

import pytest

from tests.fuzz.cost import Cost, Json, Search, Target, cost_of, mutated, size_of
from tests.fuzz.cost_targets import TARGETS

STEPS = 60


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_short_search_stays_within_the_budget(target: Target) -> None:
    """Calls and bytes are counted, so the answer is the same each time."""
    search = Search(target)
    for _ in range(STEPS):
        search.step()
    assert search.exceeded() == []


def _quadratic(value: Json) -> int:
    items = value if isinstance(value, list) else []
    return sum(str(one) == str(other) for one in items for other in items)


def _linear(value: Json) -> int:
    return len(list(map(str, value if isinstance(value, list) else [])))


@pytest.mark.parametrize(("run", "exceeds"), [(_quadratic, True), (_linear, False)])
def test_the_search_tells_quadratic_from_linear(run: object, *, exceeds: bool) -> None:
    """A few hundred steps are enough to go beyond a budget that any linear code keeps."""
    search = Search(Target("t", ([1, 2],), run, Cost(20, 20), 600))  # type: ignore[arg-type]  # one of the two above
    for _ in range(150):
        search.step()
    assert bool(search.exceeded()) is exceeds


def test_an_input_without_end_is_left() -> None:
    """It counts as too expensive, and the search goes on."""

    def endless(_: Json) -> int:
        while True:
            len("")

    target = Target("t", (), endless, Cost(1, 1))
    assert cost_of(target, []).calls > target.budget.calls


def test_changes_keep_an_input_json() -> None:
    """Thousands of changes of changed values, whose sizes stay computable."""
    draw = random.Random(0)
    value: Json = {"a": ["b", 1, None, {"c": "d"}]}
    for _ in range(2_000):
        changed = mutated(value, draw, value)
        value = changed if size_of(changed) < 500 else value
