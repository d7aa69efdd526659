"""The eager path: clients with another interest or policy, expanded over the topics that stay."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

from streaming.expansion.announce import Announcer
from streaming.expansion.micro_batch import InterestChange, MicroBatch
from streaming.subscription.client import Interest
from streaming.subscription.interests import Interests
from streaming.subscription.policy import GroupPolicy, apply_policies
from streaming.subscription.subscribers import ClientKey, SubscriberKey
from streaming.updates.model import Cause, Op, Update


def eager_updates(batch: MicroBatch, announcer: Announcer, backfilled: Collection[ClientKey]) -> Iterator[Update]:
    """Yield the updates of changed clients on the topics that exist before and after the micro-batch.

    Args:
        batch: the micro-batch.
        announcer: makes the updates.
        backfilled: clients whose change goes on as a backfill.
    """
    by_group: dict[str, dict[ClientKey, InterestChange]] = defaultdict(dict)
    for key, change in batch.changed.items():
        if key not in backfilled:
            by_group[key.group][key] = change
    for group, changes in by_group.items():
        yield from _GroupComparison(batch, announcer, group, changes).updates()


class _GroupComparison:
    """One group before and after a micro-batch."""

    def __init__(
        self, batch: MicroBatch, announcer: Announcer, group: str, changes: dict[ClientKey, InterestChange]
    ) -> None:
        self._batch = batch
        self._announcer = announcer
        self._group = group
        self._changes = changes
        former, later = batch.state.policy(group), batch.view.policy(group)
        self._policies_before, self._policies_after = _restrictive(group, former), _restrictive(group, later)
        self._exclusive = former.exclusive or later.exclusive
        self._policy_changed = batch.view.policy_changed(group)
        # In an exclusive group a topic that one client takes or leaves is another one's loss or gain. A client that has
        # left may still hold topics, as long as its backfill is under way.
        others = batch.view.clients_of(group) if self._exclusive else ()
        concerned = list(dict.fromkeys((*others, *changes)))
        self._before, self._after = batch.state.new_interests(), batch.state.new_interests()
        self._steps: dict[ClientKey, list[Interests]] = {}
        self._backfills = [key for key in concerned if key in batch.state.backfills]
        for key in concerned:
            self._before.add(key, batch.state.interest(key))
            self._after.add(key, batch.view.interest(key))

    def updates(self) -> Iterator[Update]:
        """Yield the updates of the topics that stay."""
        state, removed = self._batch.state, self._batch.delta.removed
        topics: dict[str, None] = {}
        for key, change in self._changes.items():
            for wanted in self._affected(change):
                topics.update(dict.fromkeys(state.topics_of(wanted)))
            if key in state.backfills:
                topics.update(state.remaining(key))
        for topic in topics:
            if topic not in removed:
                yield from self._compare(topic)

    def _affected(self, change: InterestChange) -> tuple[Interest, Interest]:
        """Return the parts of a client's interests that can make a difference."""
        if self._policy_changed:
            return change.before, change.after
        return change.differences(ordered=self._exclusive)

    def _compare(self, topic: str) -> Iterator[Update]:
        view, metadata = self._batch.view, self._batch.state.topics[topic]
        matched = self._batch.state.with_backfills(topic, self._before.match(topic), self._backfills)
        matches = self._after.match(topic)
        before = apply_policies(matched, topic, metadata, (self._before,), self._policies_before)
        after = apply_policies(matches, topic, metadata, (self._after,), self._policies_after)
        for subscriber, patterns in before.items():
            if subscriber not in after:
                change, _ = self._change(topic, subscriber, after)
                source, cause = change.source, change.cause_remove
                if subscriber in matches and after:
                    cause = Cause.EVICTED
                elif subscriber in matches:  # the selector refuses the topic now
                    source, cause = view.policy_change(self._group)
                yield self._announcer.update(Op.REMOVE, subscriber, topic, patterns, cause=cause, source=source)
        for subscriber, patterns in after.items():
            if subscriber not in before:
                change, is_own = self._change(topic, subscriber, before)
                source, cause, option = change.source, change.cause_add, change.offset_option
                if subscriber in matched and not before:  # the selector refused the topic before
                    (source, cause), option = view.policy_change(self._group), None
                elif not is_own:
                    cause, option = Cause.RELEASED, None
                yield self._announcer.update(
                    Op.ADD, subscriber, topic, patterns, cause=cause, source=source, option=option
                )

    def _change(
        self, topic: str, subscriber: SubscriberKey, others: Iterable[SubscriberKey]
    ) -> tuple[InterestChange, bool]:
        """Return the change behind a difference, and True if it is the subscriber's own.

        In an exclusive group it may be that of a client that took or left the topic, also where the subscriber has
        changed as well.
        """
        changed = [each for each in (subscriber, *others) if each.client in self._changes]
        for each in changed if self._exclusive else changed[:1]:
            change = self._decisive(topic, each)
            if change is not None:
                return change, each.client == subscriber.client
        if changed:
            return self._changes[changed[0].client], changed[0].client == subscriber.client
        return next(iter(self._changes.values())), False

    def _decisive(self, topic: str, subscriber: SubscriberKey) -> InterestChange | None:
        """Return the part of a change by the last request that made a difference to a topic.

        If no request of the micro-batch did, it is the one behind the backfill that the change carries out; None if
        there is none.
        """
        change, backfill = self._changes[subscriber.client], self._batch.state.backfills.get(subscriber.client)
        if not (self._exclusive or change.steps or backfill):
            return change
        found = [index.orders(topic) for index in self._indexes(subscriber.client, change)]
        orders = [(subscriber in each, max(each.values(), default=0) if self._exclusive else 0) for each in found]
        last = max((number for number in range(1, len(orders)) if orders[number] != orders[number - 1]), default=0)
        if last:
            return change.by(change.steps[last - 1]) if change.steps else change
        return None if backfill is None else InterestChange(change.before, change.after, *backfill[3:])

    def _indexes(self, key: ClientKey, change: InterestChange) -> list[Interests]:
        """Return the interests of a client before its requests, and after each of them."""
        if key not in self._steps:
            found = self._steps[key] = []
            after = [step.after for step in change.steps] or [change.after]
            for wanted in (change.before, *after):
                found.append(self._batch.state.new_interests())
                found[-1].add(key, wanted)
        return self._steps[key]


def _restrictive(group: str, policy: GroupPolicy) -> dict[str, GroupPolicy]:
    return {} if policy.plain else {group: policy}
