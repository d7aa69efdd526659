"""The scenario shows what it is meant to show."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from streaming.examples.scenario import SCENES, Step, relation
from streaming.records.updates import Cause, Op
from tests.support.simulator import Record, Simulation

if TYPE_CHECKING:
    from collections.abc import Iterable

STEPS = [step for scene in SCENES for step in scene.steps]


def play(steps: Iterable[Step]) -> Simulation:
    """Run the job over these steps, each a micro-batch of its own."""
    job = Simulation()
    for offset, step in enumerate(steps):
        job.run([Record(step.stream, step.value, offset=offset)])
    return job


def changes(step: Step, job: Simulation) -> list[dict[str, Any]]:
    """Return the updates of one more step."""
    known = len(job.updates)
    job.run([Record(step.stream, step.value, offset=STEPS.index(step))])
    return job.updates[known:]


@pytest.mark.parametrize("scenes", range(1, len(SCENES) + 1))
def test_the_updates_add_up_to_the_relation_after_each_scene(scenes: int) -> None:
    """So the demo's wait after each scene ends."""
    steps = [step for scene in SCENES[:scenes] for step in scene.steps]
    held, wanted = play(steps).relation, relation(steps)
    assert held - wanted == set()
    assert wanted - held == set()


def test_every_cause_is_shown_in_each_direction_that_it_has() -> None:
    """Some topics reach a client by two patterns."""
    updates = play(STEPS).updates
    assert any(len(update["patterns"]) == 2 for update in updates)
    assert {(update["op"], update["cause"]) for update in updates} == {
        (Op.ADD, Cause.TOPIC_CREATED),
        (Op.REMOVE, Cause.TOPIC_DELETED),
        (Op.ADD, Cause.SUBSCRIBED),
        (Op.REMOVE, Cause.UNSUBSCRIBED),
        (Op.ADD, Cause.GROUP_CHANGED),
        (Op.REMOVE, Cause.GROUP_CHANGED),
    }


def test_what_is_wrong_becomes_a_dead_letter_and_nothing_else_does() -> None:
    found = [(letter["source"]["offset"], letter["reason"]) for letter in play(STEPS).dead_letters]
    assert found == [(offset, step.rejected) for offset, step in enumerate(STEPS) if step.rejected is not None]
    assert len(found) == 2


def test_each_scene_changes_the_relation() -> None:
    """The demo waits for the answer to the first scene, at any cut of the events into micro-batches."""
    relations = list(itertools.accumulate(SCENES, lambda steps, scene: [*steps, *scene.steps], initial=list[Step]()))
    after = [relation(steps) for steps in relations]
    assert all(former != later for former, later in itertools.pairwise(after))


@pytest.mark.parametrize("words", ["sends version 2 after version 3", "its other pattern matches the same"])
def test_what_is_said_to_change_nothing_changes_nothing(words: str) -> None:
    job = Simulation()
    made = {step.says: changes(step, job) for step in STEPS}
    assert [updates for says, updates in made.items() if words in says] == [[]]


def test_each_step_is_told_in_one_plain_line() -> None:
    for step in STEPS:
        assert step.says.isascii()
        assert step.says.isprintable()
