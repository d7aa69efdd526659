"""The heart: how a micro-batch of events changes who receives which topic on one shard.

`expand` is a pure function of the state and the events. It compares the relation before and after the whole batch, so
that each (client, topic) pair is judged once, whatever happened to it in between:

- topics that are new are matched against the patterns (lazy), topics that are gone as well;
- clients whose set changed are expanded over the topics that were there before and still are (eager), in slices over
  several batches where these are very many (`streaming.expansion.slices`);
- what clients may not hold because of their quotas is taken out at the end (`streaming.expansion.quota`).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from streaming.events.events import Source
from streaming.expansion import quota, slices
from streaming.expansion.batch import Batch, Changed, Event
from streaming.expansion.crowd import CrowdUpdates
from streaming.state.shard import Shard
from streaming.state.state import Delta, ShardState
from streaming.subscription.interests import Interests
from streaming.subscription.receivers import ClientKey, Found, Receiver
from streaming.subscription.subscription import Ignored, Interest
from streaming.subscription.terms import Terms, limited
from streaming.updates.update import Cause, Columns, Op, Problem, Update


@dataclass(frozen=True, slots=True)
class Expansion:
    """What a micro-batch does to a shard.

    Attributes:
        delta: complete when all of them are read; to be applied after that.
        updates: found while they are read.
        columns: further updates, to be read when all others are.
        problems: complete when all of them are read.
        ignored: how many entries were ignored for which reason.
    """

    delta: Delta
    updates: Iterable[Update]
    columns: Iterable[Columns]
    problems: list[Problem]
    ignored: Counter[Ignored]


def expand(state: ShardState, events: Iterable[tuple[Source, Event]], shard: Shard) -> Expansion:
    """Computes what a micro-batch changes; the caller applies the delta.

    Args:
        state: the shard before the batch; not changed, but its indexes may get built.
        events: the batch's valid events, groups first, then subscriptions, topics, and the time, in offset order.
        shard: where this is.

    Returns:
        The delta, the updates (at most one a receiver and topic), the problems and the counts of ignored entries.
    """
    batch = Batch(state, shard)
    batch.read(events)
    batch.sliced = slices.due(batch)
    renewed = Interests(batch.shard.inner_multi)
    if batch.delta.added:
        for key, change in batch.changed.items():
            renewed.add(key, change.after)
    crowds = CrowdUpdates(batch, renewed)
    updates = quota.cap(batch, chain(_born_and_gone(batch, renewed), _resubscribed(batch)), crowds)
    columns: Iterator[Columns] = chain(crowds.columns(), slices.carry_on(batch))
    if batch.has_bitmaps:
        one_by_one = chain.from_iterable(map(Columns.one_by_one, columns))
        updates, columns = map(batch.with_bitmap, chain(updates, one_by_one)), iter(())
    return Expansion(batch.delta, updates, columns, batch.problems, batch.ignored)


def _born_and_gone(batch: Batch, renewed: Interests) -> Iterator[Update]:
    """Topics that exist on one side of the batch only, or are others than before: all who receive them there."""
    state = batch.state
    topics = [name for name, topic in batch.topics.items() if topic.exists or name in state.topics]
    for topic, found in zip(topics, state.interests.match_all(topics), strict=True):
        exists, source, cause, _ = batch.topics[topic]
        before = state.receivers(topic, found) if topic in state.topics else {}
        after = _receivers_of_new(batch, topic, found, renewed) if exists else {}
        for receiver, patterns in before.items():
            if receiver not in after:
                yield batch.update(Op.REMOVE, receiver, topic, patterns, cause=cause, source=source)
        for receiver, patterns in after.items():
            if receiver not in before:
                yield batch.update(Op.ADD, receiver, topic, patterns, cause=cause, source=source)


def _receivers_of_new(batch: Batch, topic: str, found: Found, renewed: Interests) -> Found:
    """Who receives a topic that this batch created; `found` are those who asked for it before."""
    if batch.changed:
        found = {receiver: patterns for receiver, patterns in found.items() if receiver.client not in batch.changed}
        found.update(renewed.match(topic))
    return limited(found, topic, batch.topics[topic].facts, (batch.state.interests, renewed), batch.limits)


def _resubscribed(batch: Batch) -> Iterator[Update]:
    """Clients whose interest changed, or whose group's terms did: what that means for the topics that stay."""
    by_group: dict[str, dict[ClientKey, Changed]] = defaultdict(dict)
    for key, change in batch.changed.items():
        if key not in batch.sliced:
            by_group[key.group][key] = change
    for group, changes in by_group.items():
        yield from _Regrouped(batch, group, changes).updates()


class _Regrouped:
    """One group on both sides of a batch."""

    def __init__(self, batch: Batch, group: str, changes: dict[ClientKey, Changed]) -> None:
        self._batch = batch
        self._group = group
        self._changes = changes
        self._former, self._later = batch.state.terms(group), batch.terms(group)
        self._limits_before = _limits(group, self._former)
        self._limits_after = _limits(group, self._later)
        self._exclusive = self._former.exclusive or self._later.exclusive
        self._anew = batch.terms_changed(group)
        # In an exclusive group a topic that one client takes or leaves is another one's loss or gain.
        concerned = list(batch.members(group) if self._exclusive else changes)
        self._was, self._will = Interests(batch.shard.inner_multi), Interests(batch.shard.inner_multi)
        self._pending = [key for key in concerned if key in batch.state.pending]
        for key in concerned:
            self._was.add(key, batch.state.interest(key))
            self._will.add(key, batch.interest(key))

    def updates(self) -> Iterator[Update]:
        """The updates of the topics that exist on both sides."""
        state, removed = self._batch.state, self._batch.delta.removed
        topics: dict[str, None] = {}
        for key, change in self._changes.items():
            for wanted in self._affected(change):
                topics.update(dict.fromkeys(state.topics_of(wanted)))
            if key in state.pending:
                topics.update(state.remaining(key))
        for topic in topics:
            if topic not in removed:
                yield from self._of(topic)

    def _affected(self, change: Changed) -> tuple[Interest, Interest]:
        """What of a client's interest can make a difference."""
        if self._anew:
            return change.before, change.after
        return change.differences(ordered=self._exclusive)

    def _of(self, topic: str) -> Iterator[Update]:
        batch = self._batch
        facts = batch.state.topics[topic]
        wanted, wants = batch.state.as_said(topic, self._was.match(topic), self._pending), self._will.match(topic)
        before = limited(wanted, topic, facts, (self._was,), self._limits_before)
        after = limited(wants, topic, facts, (self._will,), self._limits_after)
        for receiver, patterns in before.items():
            if receiver not in after:
                change = self._change(receiver, after)
                source, cause = change.source, change.cause_remove
                if receiver in wants and after:
                    cause = Cause.EVICTED
                elif receiver in wants:  # it is the selector that does not
                    source, cause = batch.change_of_terms(self._group)
                yield batch.update(Op.REMOVE, receiver, topic, patterns, cause=cause, source=source)
        for receiver, patterns in after.items():
            if receiver not in before:
                change = self._change(receiver, before)
                source, cause, option = change.source, change.cause_add, change.offset_option
                if receiver in wanted and not before:  # it is the selector that did not
                    (source, cause), option = batch.change_of_terms(self._group), None
                elif receiver.client not in self._changes:
                    cause, option = Cause.RELEASED, None
                yield batch.update(Op.ADD, receiver, topic, patterns, cause=cause, source=source, option=option)

    def _change(self, receiver: Receiver, others: Iterable[Receiver]) -> Changed:
        """What made the difference for a receiver: its own change, or that of the one who took or left the topic."""
        for candidate in (receiver, *others):
            if candidate.client in self._changes:
                return self._changes[candidate.client]
        return next(iter(self._changes.values()))


def _limits(group: str, terms: Terms) -> dict[str, Terms]:
    return {} if terms.plain else {group: terms}
