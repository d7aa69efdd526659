"""The eager path: clients with another interest or policy, expanded over the topics that stay."""

from collections import defaultdict
from collections.abc import Collection, Iterator

from streaming.expansion.announce import Announcer
from streaming.expansion.micro_batch import InterestChange, MicroBatch
from streaming.expansion.timeline import GroupMoment, Timeline, of_policy, of_request
from streaming.subscription.client import Interest
from streaming.subscription.policy import GroupPolicy, apply_policies
from streaming.subscription.subscribers import ClientKey
from streaming.updates.model import Op, Update


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
        policies = (former, *(step.policy for step in batch.view.policy_steps(group)), later)
        self._exclusive = any(policy.exclusive for policy in policies)
        self._policy_changed = batch.view.policy_changed(group)
        # In an exclusive group a topic that one client takes or leaves is another one's loss or gain. A client that has
        # left may still hold topics, as long as its backfill is under way.
        others = batch.view.clients_of(group) if self._exclusive else ()
        concerned = list(dict.fromkeys((*others, *changes)))
        self._before, self._after = batch.state.new_interests(), batch.state.new_interests()
        self._concerned = concerned
        self._only_events: dict[ClientKey, GroupMoment | None] = {}
        self._timeline: Timeline | None = None
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
        metadata = self._batch.state.topics[topic]
        matched = self._batch.state.with_backfills(topic, self._before.match(topic), self._backfills)
        matches = self._after.match(topic)
        before = apply_policies(matched, topic, metadata, (self._before,), self._policies_before)
        after = apply_policies(matches, topic, metadata, (self._after,), self._policies_after)
        for op, lost, left in ((Op.REMOVE, before, after), (Op.ADD, after, before)):
            for subscriber, patterns in lost.items():
                if subscriber not in left:
                    event = self._only_event(subscriber.client)
                    if event is None:
                        decision = self._events.decision(op, subscriber, topic)
                    else:
                        decision = event.decision(
                            op,
                            own=event.key in (None, subscriber.client),
                            asked_before=subscriber in matched,
                            asked_after=subscriber in matches,
                            received=bool(left),
                        )
                    source, cause, option, group = decision
                    yield self._announcer.update(
                        op, subscriber, topic, patterns, cause=cause, source=source, option=option, group=group
                    )

    def _only_event(self, key: ClientKey) -> GroupMoment | None:
        """Return the event that decides about a client's topics, if there is only one that can."""
        if self._exclusive:
            key = next(iter(self._changes))  # the events of all clients count
        if key not in self._only_events:
            self._only_events[key] = None if self._backfills else self._found_event(key)
        return self._only_events[key]

    def _found_event(self, key: ClientKey) -> GroupMoment | None:
        view = self._batch.view
        policies = view.policy_steps(self._group)
        requests = [
            step for each in (self._changes if self._exclusive else (key,)) for step in view.request_steps(each)
        ]
        if len({*(step.number for step in policies), *(step.number for step in requests)}) != 1:
            return None
        if requests:
            return of_request(requests[0])
        # What a group event takes from one client of an exclusive group may go to another one.
        return None if self._exclusive and policies[0].key is None else of_policy(policies[0])

    @property
    def _events(self) -> Timeline:
        if self._timeline is None:
            self._timeline = Timeline(self._batch, self._group, self._concerned)
        return self._timeline


def _restrictive(group: str, policy: GroupPolicy) -> dict[str, GroupPolicy]:
    return {} if policy.plain else {group: policy}
