"""Backfills: changes of a group that concern many topics, carried out over several micro-batches.

The state has the result of a change at once. A backfill keeps the former interests of clients, or the former policy of
the group, in force for the topics still to come, of which a micro-batch visits at most `Tuning.backfill_topics`. The
shard writes a record that wakes it for the next step. A further wide change joins the backfills under way, and begins
another one only if they do not cover enough topics.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count, islice
from math import inf

from streaming.expansion.micro_batch import InterestChange, MicroBatch
from streaming.expansion.view import GroupMoment
from streaming.records.columns import Pairs, SourceColumns
from streaming.records.subscribers import ClientKey
from streaming.records.updates import Cause, Op, UpdateColumns
from streaming.state import Backfill, ShardState
from streaming.state.client import NOTHING, Interest
from streaming.state.delta import Former, PolicyEvent
from streaming.state.frames import former_interest, former_policy, pinned
from streaming.state.policy import GroupPolicy
from streaming.state.topic_table import StoredTopics, TopicSpan

Covering = tuple[tuple[ClientKey, ...], tuple[ClientKey, ...]]
"""The backfills that cover a topic before and after a micro-batch."""

_ROWS_PER_TOPIC = 10
"""Subscribers for each topic of a step, on average; topics with more make the step shorter."""


class GroupBackfills:
    """Backfills of one group before and after a micro-batch, if any is under way or there are many topics.

    `before` has the backfills of the state, oldest first; of those in force afterwards, the first one takes a step.
    `groups` groups share the topics of a step, and `rows` counts the subscribers that were compared.
    """

    def __init__(self, batch: MicroBatch, group: str, changes: dict[ClientKey, InterestChange], groups: int) -> None:
        self.batch = batch
        self.group = group
        self._changes = changes
        self.before = batch.state.backfills_of(group)
        self.after = dict(self.before)
        self.done: dict[str, None] = {}
        self.rows = 0
        self._begun: ClientKey | None = None
        self._policy_is_wide = False
        self._wide: dict[ClientKey, None] = {}
        self._most: float = max(1, batch.tuning.backfill_topics // max(1, groups))
        self._requested = [key for key in batch.delta.clients if key.group == group]
        self._find_wide()
        if self._has_quotas():
            self._most, self.after, self._policy_is_wide, self._wide = inf, {}, False, {}
        elif self._policy_is_wide or self._wide:
            self._join()

    @property
    def policies(self) -> list[GroupPolicy]:
        """Former policies in force for some topics."""
        return [each.policy for each in (*self.before.values(), *self.after.values()) if each.policy is not None]

    @property
    def clients(self) -> dict[ClientKey, None]:
        """Clients with a former interest, or with a request."""
        found = pinned(self.group, (*self.before.values(), *self.after.values()))
        return {**found, **dict.fromkeys(self._requested)} if found or self.policies else found

    @property
    def narrow(self) -> dict[ClientKey, InterestChange]:
        """Changes to carry out at once."""
        return {} if self._policy_is_wide else {key: c for key, c in self._changes.items() if key not in self._wide}

    def by_covering(self, topics: Iterable[str]) -> dict[Covering, list[str]]:
        """Return stored topics by the backfills that cover them before the micro-batch, and after it."""
        found: dict[Covering, list[str]] = {}
        current = next(iter(self.after), None)
        remaining = {key: self._topics(key) for key in (*self.before, *self.after)}
        for topic in topics:
            before = tuple(key for key in self.before if topic in remaining[key])
            after = tuple(
                key for key in self.after if topic in remaining[key] and not (key == current and topic in self.done)
            )
            found.setdefault((before, after), []).append(topic)
        return found

    def step(self) -> Iterator[str]:
        """Yield the topics of the step of the oldest backfill; of all backfills if a quota applies."""
        keys = list(self.after)[:1] or list(self.before)
        for topic in chain.from_iterable(map(self._topics, keys)):
            if len(self.done) >= self._most or self.rows >= _ROWS_PER_TOPIC * self._most:
                return
            if topic not in self.batch.delta.removed and topic not in self.done:
                self.done[topic] = None
                yield topic

    @property
    def is_columnar(self) -> bool:
        """True if the step needs no other clients than those whose former interests the only backfill has."""
        state, view, group = self.batch.state, self.batch.view, self.group
        if len(self.after) != 1 or not self.before.keys() <= self.after.keys() or self.policies:
            return False
        (backfill,) = self.after.values()
        keys = pinned(group, [backfill])
        return (
            self._most >= self.batch.tuning.columnar_min_topics
            and state.policy(group) == view.policy(group)
            and view.policy(group).plain
            and self._changes.keys() <= keys.keys()
            and not any(len(view.request_steps(key)) > 1 or view.quota_shares(key) != (None, None) for key in keys)
        )

    def affected(self, *, exclusive: bool) -> dict[str, None]:
        """Return the stored topics to compare at once, without those of narrow changes."""
        found: dict[str, None] = {}
        if (self._policy_is_wide or self._wide) and self._begun is None:
            found.update(dict.fromkeys(self._uncovered()))
        if not self._policy_is_wide:
            for key, wanted in self._former_differences(exclusive=exclusive):
                if key not in self._wide and wanted != NOTHING:
                    found.update(dict.fromkeys(self.batch.state.topics_of(wanted)))
        return found

    def note(self) -> None:
        """Put the remaining topics of each backfill into the delta."""
        removed, changes = self.batch.delta.removed, self.batch.delta.backfills
        changes.update(dict.fromkeys(key for key in self.before if key not in self.after))
        current = next(iter(self.after), None)
        for key, each in self.after.items():
            topics, done = self._topics(key), self.done if key == current else {}
            first = next((topic for topic in topics if topic not in removed and topic not in done), None)
            if first is not None:
                last = next(topic for topic in reversed(topics) if topic not in removed)
                renewed = each._replace(first=first, last=last)
                if renewed != self.before.get(key):
                    changes[key] = renewed
            elif key in self.before:
                changes[key] = None

    def event(self, op: Op, key: ClientKey, covering: Covering, asked: tuple[bool, bool]) -> GroupMoment:
        """Return the event behind an update of a topic that a backfill covers.

        It is the last request of the client if its entries decide, else the last event of the group. `asked`: the
        client has a matching entry before and after the micro-batch.
        """
        passed = [self.after.get(each, self.before[each]) for each in covering[0] if each not in covering[1]]
        own = [self._of_former(key, each.clients[key.client_id]) for each in passed if key.client_id in each.clients]
        own = own or list(self.batch.view.request_steps(key))
        others = [
            self._of_former(other, former)
            for each in passed
            for client_id, former in each.clients.items()
            if (other := ClientKey(self.group, client_id)) != key
        ]
        others += [step for other in self._changes if other != key for step in self.batch.view.request_steps(other)]
        policies = [self._of_event(each.event) for each in passed if each.event is not None]
        policies += self.batch.view.policy_steps(self.group)
        is_own = own and (asked[0] is not asked[1] or (op is Op.ADD and (not policies or policies[-1].key == key)))
        if not is_own and not policies and others:  # a request of another client causes no SUBSCRIBED of this one
            return others[-1]._replace(cause_add=Cause.RELEASED, cause_remove=Cause.EVICTED)
        return (own if is_own else policies or own)[-1]

    def _of_former(self, key: ClientKey, former: Former) -> GroupMoment:
        is_request = former.cause in (Cause.UNSUBSCRIBED, Cause.LEASE_EXPIRED)  # else an event of the group
        cause = Cause.SUBSCRIBED if is_request else former.cause
        return GroupMoment(former.source, key, cause, former.cause, former.offset_option)

    def _of_event(self, event: PolicyEvent) -> GroupMoment:
        return GroupMoment(event.source, None if event.client_id is None else ClientKey(self.group, event.client_id))

    def _topics(self, key: ClientKey) -> StoredTopics | TopicSpan:
        return self.batch.state.topics if key == self._begun else self.batch.state.remaining(key)

    def _has_quotas(self) -> bool:
        """Return True if a quota can take topics away from a client whose topics may change."""
        view, group = self.batch.view, self.group
        keys = {**self._wide, **pinned(group, self.before.values())}
        if self._policy_is_wide or view.regroups(group) or (keys and self._is_exclusive):
            keys.update(dict.fromkeys(view.clients_of(group)))
        is_concerned = self.before or self._policy_is_wide or self._wide
        topics = len(self.batch.state.topics) + len(self.batch.delta.added)
        return bool(is_concerned) and any(
            share is not None and share < topics for key in keys for share in view.quota_shares(key)
        )

    @property
    def _is_exclusive(self) -> bool:
        policies = self.batch.state.policy(self.group), self.batch.view.policy(self.group), *self.policies
        return any(each.exclusive for each in policies)

    def _find_wide(self) -> None:
        state, view = self.batch.state, self.batch.view
        former, later = state.policy(self.group), view.policy(self.group)
        if former.terms != later.terms:
            both = (wanted for change in self._changes.values() for wanted in (change.before, change.after))
            self._policy_is_wide = bool(self.before) or self._are_many(map(state.topics_of, both))
        exclusive = self._is_exclusive
        if self._policy_is_wide:
            self._wide = dict.fromkeys(self._requested)
        elif former.terms == later.terms:
            for key, change in self._changes.items():
                if self._are_many(map(state.topics_of, change.differences(ordered=exclusive))):
                    self._wide[key] = None
        for key, wanted in self._former_differences(exclusive=exclusive):
            if key not in self._wide and self._are_many([state.topics_of(wanted)]):
                self._wide[key] = None

    def _join(self) -> None:
        """Let the backfills carry out the wide changes, and begin one if they cover too few topics."""
        if self._are_many([self._uncovered()]):
            names = (ClientKey(self.group, " " * number) for number in count())
            self._begun = next(key for key in names if key not in self.before)
            self.after[self._begun] = Backfill({}, "", "")
        self.after = {key: self._joined(each) for key, each in self.after.items()}

    def _former_differences(self, *, exclusive: bool) -> Iterator[tuple[ClientKey, Interest]]:
        """Yield what requests change under former policies, under which entries may have another meaning."""
        state, view = self.batch.state, self.batch.view
        for each in self.before.values():
            if each.policy is not None:
                for key in self._requested:
                    before, after = former_interest(state, key, [each]), former_interest(view, key, [each])
                    if before != after:
                        yield key, after.without(before, ordered=exclusive)
                        yield key, before.without(after, ordered=exclusive)

    def _joined(self, backfill: Backfill) -> Backfill:
        """Return a backfill that carries out the changes of this micro-batch as well."""
        state, view, group, clients = self.batch.state, self.batch.view, self.group, dict(backfill.clients)
        policy, event = backfill.policy, backfill.event
        if self._policy_is_wide:
            policy = former_policy(state, group, [backfill])
            step = view.policy_steps(group)[-1]
            event = PolicyEvent(step.source, step.key and step.key.client_id)
        for key in self._wide:
            before = former_interest(state, key, [backfill])
            change = self._changes.get(key)
            if change is not None:
                clients[key.client_id] = Former(before, change.source, change.cause_remove, change.offset_option)
            elif event is not None:
                clients[key.client_id] = Former(before, event.source, Cause.GROUP_CHANGED)
        return backfill._replace(clients=clients, policy=policy, event=event)

    def _uncovered(self) -> Iterator[str]:
        """Yield the stored topics that no backfill covers."""
        removed = self.batch.delta.removed
        remaining = list(map(self._topics, self.before))
        return (
            topic
            for topic in self.batch.state.topics
            if topic not in removed and not any(topic in topics for topics in remaining)
        )

    def _are_many(self, several: Iterable[Iterable[str]]) -> bool:
        """Return True if some topics are more than a step."""
        most, found = self.batch.tuning.backfill_topics, dict[str, None]()
        for topics in several:
            found.update(dict.fromkeys(islice(topics, most + 1)))
            if len(found) > most:
                return True
        return False


def step_columns(backfills: GroupBackfills) -> Iterator[UpdateColumns]:
    """Yield the updates of the step of the only backfill of a group by column (see `GroupBackfills.is_columnar`)."""
    (backfill,) = backfills.after.values()
    state, view, group = backfills.batch.state, backfills.batch.view, backfills.group
    most = max(1, _ROWS_PER_TOPIC * backfills.batch.tuning.backfill_topics // max(1, len(backfill.clients)))
    topics = list(islice(backfills.step(), most))
    for key in pinned(group, [backfill]):
        former = backfill.clients[key.client_id]
        before = former_interest(state, key, list(backfills.before.values()))
        lost, gained = exchanged(state, key, before, view.interest(key), topics)
        sources, version = SourceColumns.same(former.source, len(topics)), view.version(key)
        resets = view.group(group).resets_offset(former.cause)
        for op, cause, pairs, option, reset in (
            (Op.REMOVE, former.cause, lost, None, resets),
            (Op.ADD, Cause.SUBSCRIBED, gained, former.offset_option, False),
        ):
            versions = [version] * len(pairs.subscriber_table)
            yield UpdateColumns(op, cause, topics, sources, pairs, versions, option, reset)
    backfills.note()


def exchanged(
    state: ShardState, key: ClientKey, before: Interest, after: Interest, topics: Sequence[str]
) -> tuple[Pairs, Pairs]:
    """Return the pairs of some topics that a client loses and gains by another interest."""
    former, later = state.new_interests(), state.new_interests()
    former.add(key, before)
    later.add(key, after)
    lost, gained = former.pairs(topics), later.pairs(topics)
    return lost.without(gained), gained.without(lost)
