"""The scenario shows what it is meant to show."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import pytest

from streaming import placement, worker
from streaming.demo.follower import DeadLetter, Fold, Update, parse_dead_letter, parse_update
from streaming.demo.scenario import SCENES, Step, relation
from streaming.errors import Rejected
from streaming.events import Stream, parse_group_event, parse_subscription, parse_topic_event
from streaming.expansion import Cause, Op
from streaming.worker import Kind, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from streaming.events import GroupEvent, SubscriptionRequest, TopicEvent

STEPS = [step for scene in SCENES for step in scene.steps]
INPUTS = ("groups", "subscriptions", "topics")
PARSERS: dict[Stream, Callable[[bytes], TopicEvent | SubscriptionRequest | GroupEvent]] = {
    Stream.GROUPS: parse_group_event,
    Stream.SUBSCRIPTIONS: parse_subscription,
    Stream.TOPICS: parse_topic_event,
}


class LocalJob:
    """The work of the job without Spark and Kafka, each record a micro-batch of its own."""

    def __init__(self) -> None:
        self.fold = Fold()
        self._settings = worker.Settings(INPUTS)
        self._states: dict[str, bytes | None] = defaultdict(lambda: None)
        self._offsets = Counter[Stream]()

    def take(self, step: Step) -> Iterator[Update | DeadLetter]:
        """What the job answers to one step."""
        offset = self._offsets[step.stream]
        self._offsets[step.stream] += 1
        for number, entry in enumerate(step.entries):
            row = Row(worker.STREAMS.index(step.stream), 0, offset, number, 0, entry)
            for parent in parents(step.stream, entry):
                yield from self._answer(parent, row)

    def _answer(self, parent: str, row: Row) -> Iterator[Update | DeadLetter]:
        self._states[parent], output = worker.work(parent, 0, [row], self._states[parent], self._settings)
        for kind, key, value in zip(output.kinds, output.keys, output.values, strict=True):
            if kind in {Kind.ADD, Kind.REMOVE, Kind.TOMBSTONE}:
                assert key is not None
                self.fold.apply(key, value)
            if kind in {Kind.ADD, Kind.REMOVE}:
                assert value is not None
                yield parse_update(value, 0)
            elif kind == Kind.DEAD_LETTER:
                assert value is not None
                yield parse_dead_letter(value, 0)
            elif kind == Kind.GROUP_EVENT:
                assert value is not None
                yield from self.take(Step(Stream.GROUPS, "", value, "written back by the job"))


def parents(stream: Stream, entry: bytes) -> list[str]:
    """The parents whose shard sees an entry."""
    try:
        parent = PARSERS[stream](entry).parent
    except Rejected:
        return [placement.HOME]
    homes = [placement.HOME] if stream is Stream.GROUPS else []
    return homes if parent is None else [*homes, parent]


def play(steps: Iterable[Step]) -> tuple[LocalJob, list[Update], list[tuple[Step, DeadLetter]]]:
    """The job, its updates and its dead letters after these steps."""
    job = LocalJob()
    updates: list[Update] = []
    letters: list[tuple[Step, DeadLetter]] = []
    for step in steps:
        for item in job.take(step):
            if isinstance(item, Update):
                updates.append(item)
            else:
                letters.append((step, item))
    return job, updates, letters


@pytest.mark.parametrize("scenes", range(1, len(SCENES) + 1))
def test_the_updates_add_up_to_the_relation_after_each_scene(scenes: int) -> None:
    """What the demo waits for after a scene does come."""
    steps = [step for scene in SCENES[:scenes] for step in scene.steps]
    held, wanted = play(steps)[0].fold.relation, relation(steps)
    assert held - wanted == set()
    assert wanted - held == set()


def test_every_cause_is_shown_in_both_directions_where_there_are_two() -> None:
    _, updates, _ = play(STEPS)
    assert {(update.op, update.cause) for update in updates} == {
        (Op.ADD, Cause.TOPIC_CREATED),
        (Op.REMOVE, Cause.TOPIC_DELETED),
        (Op.ADD, Cause.SUBSCRIBED),
        (Op.REMOVE, Cause.UNSUBSCRIBED),
        (Op.ADD, Cause.GROUP_CHANGED),
        (Op.REMOVE, Cause.GROUP_CHANGED),
    }
    assert {update.lazy for update in updates} == {True, False}


def test_what_is_wrong_becomes_a_dead_letter_and_nothing_else_does() -> None:
    _, _, letters = play(STEPS)
    expected = [(step, step.rejected) for step in STEPS if step.rejected is not None]
    assert [(step, letter.reason) for step, letter in letters] == expected
    assert len(expected) == 2


def test_the_first_scene_is_answered() -> None:
    """The demo waits for the answer to it, however the events are cut into micro-batches."""
    assert relation(SCENES[0].steps)


def test_each_later_scene_changes_the_relation() -> None:
    relations = list(itertools.accumulate(SCENES, lambda steps, scene: [*steps, *scene.steps], initial=list[Step]()))
    after = [relation(steps) for steps in relations]
    assert all(former != later for former, later in itertools.pairwise(after))


def test_some_topics_reach_a_client_by_two_patterns() -> None:
    _, updates, _ = play(STEPS)
    assert any(len(update.patterns) == 2 for update in updates)


@pytest.mark.parametrize("words", ["is heard late", "its other pattern matches the same"])
def test_what_is_said_to_change_nothing_changes_nothing(words: str) -> None:
    job = LocalJob()
    answers = {step.says: list(job.take(step)) for step in STEPS}
    assert [answer for says, answer in answers.items() if words in says] == [[]]


def test_each_step_is_told_in_one_plain_line() -> None:
    for step in STEPS:
        assert step.says.isascii()
        assert step.says.isprintable()
