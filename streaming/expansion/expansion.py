"""The heart: how a micro-batch of events changes who receives which topic on one shard.

`expand` is a pure function of the state and the events. It compares the relation before and after the whole batch, so
that each (client, topic) pair is judged once, whatever happened to it in between:

- topics that are new are matched against the patterns (lazy), topics that are gone as well;
- clients whose set changed are expanded over the topics that were there before and still are (eager), in slices over
  several batches where these are very many (`streaming.expansion.backfill`);
- what clients may not hold because of their quotas is taken out at the end (`streaming.expansion.quota`).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from streaming.events.columns import Event
from streaming.events.model import Source
from streaming.expansion import backfill, quota
from streaming.expansion.batch import Batch, InterestChange
from streaming.expansion.bulk import BulkUpdates
from streaming.state.shard import Shard
from streaming.state.state import Delta, ShardState
from streaming.subscription.client import Ignored, Interest
from streaming.subscription.interests import Interests
from streaming.subscription.policy import GroupPolicy, apply_policies
from streaming.subscription.subscribers import ClientKey, Matches, SubscriberKey
from streaming.updates.model import Cause, Op, Problem, Update, UpdateColumns


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
    columns: Iterable[UpdateColumns]
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
    batch.sliced = backfill.due(batch)
    renewed = Interests(batch.shard.inner_multi)
    if batch.delta.added:
        for key, change in batch.changed.items():
            renewed.add(key, change.after)
    bulks = BulkUpdates(batch, renewed)
    updates = quota.cap(batch, chain(_born_and_gone(batch, renewed), _resubscribed(batch)), bulks)
    columns: Iterator[UpdateColumns] = chain(bulks.columns(), backfill.carry_on(batch))
    if batch.has_bitmaps:
        one_by_one = chain.from_iterable(map(UpdateColumns.one_by_one, columns))
        updates, columns = map(batch.with_bitmap, chain(updates, one_by_one)), iter(())
    return Expansion(batch.delta, updates, columns, batch.problems, batch.ignored)


def _born_and_gone(batch: Batch, renewed: Interests) -> Iterator[Update]:
    """Topics that exist on one side of the batch only, or are others than before: all who receive them there."""
    state = batch.state
    topics = [name for name, topic in batch.topics.items() if topic.exists or name in state.topics]
    for topic, found in zip(topics, state.interests.match_all(topics), strict=True):
        exists, source, cause, _ = batch.topics[topic]
        before = state.subscribers(topic, found) if topic in state.topics else {}
        after = _receivers_of_new(batch, topic, found, renewed) if exists else {}
        for subscriber, patterns in before.items():
            if subscriber not in after:
                yield batch.update(Op.REMOVE, subscriber, topic, patterns, cause=cause, source=source)
        for subscriber, patterns in after.items():
            if subscriber not in before:
                yield batch.update(Op.ADD, subscriber, topic, patterns, cause=cause, source=source)


def _receivers_of_new(batch: Batch, topic: str, found: Matches, renewed: Interests) -> Matches:
    """Who receives a topic that this batch created; `found` are those who asked for it before."""
    if batch.changed:
        found = {
            subscriber: patterns for subscriber, patterns in found.items() if subscriber.client not in batch.changed
        }
        found.update(renewed.match(topic))
    return apply_policies(found, topic, batch.topics[topic].metadata, (batch.state.interests, renewed), batch.limits)


def _resubscribed(batch: Batch) -> Iterator[Update]:
    """Clients whose interest changed, or whose group's terms did: what that means for the topics that stay."""
    by_group: dict[str, dict[ClientKey, InterestChange]] = defaultdict(dict)
    for key, change in batch.changed.items():
        if key not in batch.sliced:
            by_group[key.group][key] = change
    for group, changes in by_group.items():
        yield from _Regrouped(batch, group, changes).updates()


class _Regrouped:
    """One group on both sides of a batch."""

    def __init__(self, batch: Batch, group: str, changes: dict[ClientKey, InterestChange]) -> None:
        self._batch = batch
        self._group = group
        self._changes = changes
        self._former, self._later = batch.state.policy(group), batch.policy(group)
        self._limits_before = _limits(group, self._former)
        self._limits_after = _limits(group, self._later)
        self._exclusive = self._former.exclusive or self._later.exclusive
        self._anew = batch.policy_changed(group)
        # In an exclusive group a topic that one client takes or leaves is another one's loss or gain.
        concerned = list(batch.members(group) if self._exclusive else changes)
        self._was, self._will = Interests(batch.shard.inner_multi), Interests(batch.shard.inner_multi)
        self._pending = [key for key in concerned if key in batch.state.backfills]
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
            if key in state.backfills:
                topics.update(state.remaining(key))
        for topic in topics:
            if topic not in removed:
                yield from self._of(topic)

    def _affected(self, change: InterestChange) -> tuple[Interest, Interest]:
        """What of a client's interest can make a difference."""
        if self._anew:
            return change.before, change.after
        return change.differences(ordered=self._exclusive)

    def _of(self, topic: str) -> Iterator[Update]:
        batch = self._batch
        metadata = batch.state.topics[topic]
        wanted, wants = (
            batch.state.with_backfills(topic, self._was.match(topic), self._pending),
            self._will.match(topic),
        )
        before = apply_policies(wanted, topic, metadata, (self._was,), self._limits_before)
        after = apply_policies(wants, topic, metadata, (self._will,), self._limits_after)
        for subscriber, patterns in before.items():
            if subscriber not in after:
                change = self._change(subscriber, after)
                source, cause = change.source, change.cause_remove
                if subscriber in wants and after:
                    cause = Cause.EVICTED
                elif subscriber in wants:  # it is the selector that does not
                    source, cause = batch.policy_change(self._group)
                yield batch.update(Op.REMOVE, subscriber, topic, patterns, cause=cause, source=source)
        for subscriber, patterns in after.items():
            if subscriber not in before:
                change = self._change(subscriber, before)
                source, cause, option = change.source, change.cause_add, change.offset_option
                if subscriber in wanted and not before:  # it is the selector that did not
                    (source, cause), option = batch.policy_change(self._group), None
                elif subscriber.client not in self._changes:
                    cause, option = Cause.RELEASED, None
                yield batch.update(Op.ADD, subscriber, topic, patterns, cause=cause, source=source, option=option)

    def _change(self, subscriber: SubscriberKey, others: Iterable[SubscriberKey]) -> InterestChange:
        """What made the difference for a receiver: its own change, or that of the one who took or left the topic."""
        for candidate in (subscriber, *others):
            if candidate.client in self._changes:
                return self._changes[candidate.client]
        return next(iter(self._changes.values()))


def _limits(group: str, policy: GroupPolicy) -> dict[str, GroupPolicy]:
    return {} if policy.plain else {group: policy}
