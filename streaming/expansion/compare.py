"""The relation before and after a micro-batch, one topic after the other, and the updates that follow.

Topics that come or go are matched against the stored patterns. Clients with another interest or policy are expanded
over the topics that stay.
"""

from collections.abc import Container, Iterable, Iterator
from itertools import islice
from typing import Any, Final

from streaming.expansion.backfill import Covering, GroupBackfills
from streaming.expansion.micro_batch import InterestChange, MicroBatch
from streaming.expansion.timeline import Timeline
from streaming.expansion.view import GroupMoment
from streaming.records.model import Source
from streaming.records.subscribers import ClientKey, Matches, SubscriberKey
from streaming.records.updates import Cause, Op, Update
from streaming.state import Group
from streaming.state.client import NOTHING
from streaming.state.frames import Frame, frame
from streaming.state.interests import Interests
from streaming.state.policy import apply_policies, bitmap

_new = tuple.__new__
"""Constructor of named tuples that takes two thirds of the time, for millions of updates."""


class Announcer:
    """Makes updates; it needs bitmaps if a SQL92 selector is in force."""

    def __init__(self, batch: MicroBatch) -> None:
        self._batch = batch
        self._versions: dict[SubscriberKey, int | None] = {}
        self._groups: dict[str, Group] = {}
        self._bitmaps: dict[str, bytes | None] = {}
        # A group that has neither attributes nor clients here may be bound to another parent, without an event here.
        with_bitmap = batch.view.bitmap_policies() if batch.policies else {}
        self._sql_policies = {name: policy for name, policy in with_bitmap.items() if batch.view.is_present(name)}
        self.needs_bitmaps = bool(self._sql_policies)

    def update(
        self,
        op: Op,
        subscriber: SubscriberKey,
        topic: str,
        patterns: list[str],
        *,
        cause: Cause,
        source: Source,
        option: Any = None,
        group: Group | None = None,
    ) -> Update:
        """Return an update, with sorted patterns: a repeated micro-batch repeats it.

        Without `group` the attributes after the micro-batch decide about a reset.
        """
        if subscriber not in self._versions:
            self._versions[subscriber] = self._batch.view.version(ClientKey(*subscriber[:2]))
        texts = tuple(sorted(set(patterns))) if len(patterns) > 1 else tuple(patterns)
        reset = op is Op.REMOVE and (group or self._group(subscriber.group)).resets_offset(cause)
        version = self._versions[subscriber]
        return _new(Update, (op, subscriber, topic, texts, cause, version, source, option, reset, None))

    def _group(self, name: str) -> Group:
        if name not in self._groups:
            self._groups[name] = self._batch.view.group(name)
        return self._groups[name]

    def with_bitmap(self, update: Update) -> Update:
        """Return an ADD with the Bloom filter of the groups whose SQL92 selectors accept its topic."""
        if update.op is Op.REMOVE:
            return update
        topic = update.lite_topic
        if topic not in self._bitmaps:
            metadata = self._batch.delta.added.get(topic) or self._batch.state.topics[topic]
            self._bitmaps[topic] = bitmap(self._batch.shard.parent, metadata, self._sql_policies)
        return update._replace(bitmap=self._bitmaps[topic])


_CHUNK_TOPICS: Final = 256
"""Number of topics that are matched at once."""

_UNCOVERED: Final[Covering] = (), ()


def eager_updates(
    batch: MicroBatch,
    announcer: Announcer,
    by_column: list[GroupBackfills],
    beyond: "Beyond | None",
) -> Iterator[Update]:
    """Yield the updates of changed groups on the topics that stay.

    Backfills whose step goes by column are added to `by_column`, clients whose change concerns more topics than their
    quota to `beyond`.
    """
    lagging = dict.fromkeys(key.group for key in batch.state.backfills)
    are_many = len(batch.state.topics) > batch.tuning.backfill_topics
    by_group: dict[str, dict[ClientKey, InterestChange]] = {group: {} for group in lagging}
    for key, change in batch.changed.items():
        by_group.setdefault(key.group, {})[key] = change
    for group, changes in by_group.items():
        if beyond is not None and group not in lagging:
            beyond.update(_pop_beyond(batch, announcer, group, changes))
        backfills = GroupBackfills(batch, group, changes, len(lagging)) if are_many or group in lagging else None
        comparison = GroupComparison(batch, announcer, group, changes, backfills, without=beyond or ())
        if backfills is not None and backfills.is_columnar:
            by_column.append(backfills)
        elif backfills is not None:
            yield from comparison.compared(backfills.step())
            backfills.note()
        yield from comparison.others()


def _pop_beyond(
    batch: MicroBatch, announcer: Announcer, group: str, changes: dict[ClientKey, InterestChange]
) -> "Beyond":
    """Remove the changes of clients that concern more topics than they may hold, and return their comparisons."""
    state, view = batch.state, batch.view
    former, later = state.policy(group), view.policy(group)
    if former.exclusive and later.exclusive:
        return {}  # a topic has one receiver before and after
    is_changed = former != later and view.policy_changed(group)
    keys = []
    for key, change in changes.items():
        shares = [share for share in view.quota_shares(key) if share is not None]
        both = (change.before, change.after) if is_changed else change.differences(ordered=False)
        if shares and len(state.topics) > min(shares):
            concerned = sum(len(state.topics_of(wanted)) for wanted in both if wanted != NOTHING)
            if concerned > max(shares):
                keys.append(key)
    if any(policy.exclusive for policy in (*view.policies(group), later)):
        found = dict.fromkeys(keys, GroupComparison(batch, announcer, group, dict(changes), None))
    else:
        found = {key: GroupComparison(batch, announcer, group, {key: changes[key]}, None) for key in keys}
    for key in keys:
        del changes[key]
    return found


class GroupComparison:
    """One group before and after a micro-batch."""

    def __init__(
        self,
        batch: MicroBatch,
        announcer: Announcer,
        group: str,
        changes: dict[ClientKey, InterestChange],
        backfills: GroupBackfills | None,
        *,
        without: Container[ClientKey] = (),
    ) -> None:
        """Compare a group; other comparisons make the updates of the clients in `without`."""
        self._batch = batch
        self._announcer = announcer
        self._group = group
        self._changes = changes
        self._backfills = backfills
        self._without = without
        self._newest: dict[str, list[tuple[Frame, Matches]]] = {}
        self._policies = former, later = batch.state.policy(group), batch.view.policy(group)
        self._policy_steps = batch.view.policy_steps(group)
        formers, pinned = ([], {}) if backfills is None else (backfills.policies, backfills.clients)
        between = (step.policy for step in self._policy_steps if step.policy is not None)
        self._exclusive = any(policy.exclusive for policy in (former, *between, later, *formers))
        self._policy_changed = former != later and batch.view.policy_changed(group)
        # In an exclusive group a client takes a topic from another client, or leaves it to another. A client that has
        # left may still hold topics, as long as a backfill is under way.
        others = batch.view.clients_of(group) if self._exclusive or formers else ()
        self._concerned = dict.fromkeys((*others, *changes, *pinned))
        self._only_events: dict[ClientKey, GroupMoment | None] = {}
        self._timeline: Timeline | None = None
        self._frames: dict[tuple[bool, tuple[ClientKey, ...]], Frame] = {}

    def others(self) -> Iterator[Update]:
        """Yield the updates of the topics that stay, without those of a backfill's step."""
        backfills, state, affected = self._backfills, self._batch.state, dict[str, None]()
        for change in (self._changes if backfills is None else backfills.narrow).values():
            both = change[:2] if self._policy_changed else change.differences(ordered=self._exclusive)
            for wanted in both:
                if wanted != NOTHING and len(affected) < len(state.topics):
                    affected.update(dict.fromkeys(state.topics_of(wanted)))
        if backfills is not None:
            affected.update(backfills.affected(exclusive=self._exclusive))
        removed, done = self._batch.delta.removed, {} if backfills is None else backfills.done
        yield from self.compared(topic for topic in affected if topic not in removed and topic not in done)

    def of(self, key: ClientKey, topics: Iterable[str]) -> list[Update]:
        """Return the updates of a client on stored topics, for which only it and the newest clients are compared."""
        found: list[Update] = []
        for topic in topics:
            if topic not in self._newest:
                self._newest[topic] = self._newest_of(topic)
            before, after = (
                (each, rows if each.is_exclusive else {**rows, **each.match_of([key], topic)})
                for each, rows in self._newest[topic]
            )
            found += (each for each in self._compare(topic, before, after, _UNCOVERED) if each.subscriber.client == key)
        return found

    def _newest_of(self, topic: str) -> list[tuple[Frame, Matches]]:
        """Return the rows, before and after the micro-batch, of clients that are the newest before or after it."""
        frames = [self._frame((), after=later) for later in (False, True)]
        rows = [each.match(topic) if each.is_exclusive else {} for each in frames]
        keys = {row.client: None for found in rows for row in found}
        return [
            (each, found if each.is_exclusive else each.match_of(keys, topic))
            for each, found in zip(frames, rows, strict=True)
        ]

    def compared(self, topics: Iterator[str]) -> Iterator[Update]:
        """Yield the updates of stored topics."""
        while chunk := list(islice(topics, _CHUNK_TOPICS)):
            by_frames = {_UNCOVERED: chunk} if self._backfills is None else self._backfills.by_covering(chunk)
            for both, names in by_frames.items():
                before, after = (self._frame(keys, after=place > 0) for place, keys in enumerate(both))
                visits = before.visits + after.visits
                matches = zip(names, before.match_all(names), after.match_all(names), strict=True)
                if self._backfills is not None:
                    self._backfills.rows += before.visits + after.visits - visits
                for topic, matched, matching in matches:
                    yield from self._compare(topic, (before, matched), (after, matching), both)

    def _frame(self, keys: tuple[ClientKey, ...], *, after: bool) -> Frame:
        """Return the group as the topics see it that some backfills cover, before or after the micro-batch."""
        if (after, keys) not in self._frames:
            self._frames[after, keys] = self._new_frame(keys, after=after)
        return self._frames[after, keys]

    def _new_frame(self, keys: tuple[ClientKey, ...], *, after: bool) -> Frame:
        state, view = self._batch.state, self._batch.view
        if self._backfills is not None:
            backfills = self._backfills.after if after else self._backfills.before
            formers = [backfills[key] for key in keys]
            return frame(view if after else state, self._group, self._concerned, formers, state.new_interests)
        interests = {}
        for key in self._concerned:
            change = self._changes.get(key)
            if change is None:
                interests[key] = (view if after else state).interest(key)
            else:
                interests[key] = change.after if after else change.before
        return Frame(self._group, interests, self._policies[after], state.new_interests)

    def _compare(
        self,
        topic: str,
        former: tuple[Frame, Matches],
        later: tuple[Frame, Matches],
        covering: Covering,
    ) -> Iterator[Update]:
        """Yield the updates of a topic, given its matching subscribers before and after the micro-batch."""
        metadata = self._batch.state.topics[topic]
        (frame_before, matched), (frame_after, matches) = former, later
        before, after = (
            each.subscribers(topic, metadata, found) if each.policies else found for each, found in (former, later)
        )
        for op, lost, left in ((Op.REMOVE, before, after), (Op.ADD, after, before)):
            for subscriber, patterns in lost.items():
                if subscriber not in left and (client := ClientKey(*subscriber[:2])) not in self._without:
                    asked = (
                        subscriber in matched or frame_before.asks(subscriber, topic, matched),
                        subscriber in matches or frame_after.asks(subscriber, topic, matches),
                    )
                    is_released = (
                        op is Op.ADD
                        and all(asked)
                        and frame_before.is_exclusive
                        and not any(frame_after.asks(each, topic, matches) for each in before)
                    )
                    if self._backfills is not None and any(covering):
                        event: GroupMoment | None = self._backfills.event(op, client, covering, asked)
                    else:
                        event = self._only_event(client)
                    if event is None:
                        decision = self._events.decision(op, subscriber, topic)
                    else:
                        decision = event.decision(
                            op,
                            own=event.key == client or (event.key is None and not is_released),
                            asked_before=asked[0],
                            asked_after=asked[1],
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
            self._only_events[key] = self._found_event(key)
        return self._only_events[key]

    def _found_event(self, key: ClientKey) -> GroupMoment | None:
        view, policies = self._batch.view, self._policy_steps
        requests = [
            step for each in (self._concerned if self._exclusive else (key,)) for step in view.request_steps(each)
        ]
        if len({*(step.number for step in policies), *(step.number for step in requests)}) != 1:
            return None
        if requests:
            return requests[0]
        # A group event may move a topic of an exclusive group from one client to another.
        return None if self._exclusive and policies[0].key is None else policies[0]

    @property
    def _events(self) -> Timeline:
        if self._timeline is None:
            self._timeline = Timeline(self._batch, self._group, list(self._concerned))
        return self._timeline


Beyond = dict[ClientKey, GroupComparison]
"""Clients whose change concerns more topics than their quota, each with its own comparison."""


def lazy_updates(batch: MicroBatch, announcer: Announcer, renewed: Interests | None) -> Iterator[Update]:
    """Yield the updates of topics that were created, deleted, or created again.

    `renewed` has the interests of changed clients after the micro-batch.
    """
    state = batch.state
    topics = [name for name, topic in batch.topics.single.items() if topic.exists or name in state.topics]
    interests = state.interests
    for topic, matches in zip(topics, interests.match_all(topics), strict=True):
        exists, source, _, removal = batch.topics.single[topic]
        before = state.subscribers(topic, matches) if topic in state.topics else {}
        after = _subscribers_after(batch, topic, matches, (interests, renewed)) if exists else {}
        for subscriber, patterns in before.items():
            if subscriber not in after and removal is not None:
                yield announcer.update(
                    Op.REMOVE, subscriber, topic, patterns, cause=removal.cause, source=removal.source
                )
        for subscriber, patterns in after.items():
            if subscriber not in before:
                yield announcer.update(Op.ADD, subscriber, topic, patterns, cause=Cause.TOPIC_CREATED, source=source)


def _subscribers_after(
    batch: MicroBatch, topic: str, matches: Matches, interests: tuple[Interests, Interests | None]
) -> Matches:
    """Return the subscribers of a created topic, given those by the stored interests."""
    stored, renewed = interests
    if renewed is not None:
        matches = {key: patterns for key, patterns in matches.items() if key.client not in batch.changed}
        matches.update(renewed.match(topic))
    if not batch.policies:
        return matches
    metadata = batch.topics.single[topic].metadata
    both = (stored,) if renewed is None else (stored, renewed)
    return apply_policies(matches, topic, metadata, both, batch.policies)
