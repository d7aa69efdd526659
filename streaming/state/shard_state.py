"""The state of one shard between micro-batches, with indexes over it."""

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

from streaming.state.delta import Backfill, ShardDelta
from streaming.state.footprint import Footprint
from streaming.state.group import UNKNOWN_GROUP, Group, interest_of, policy_of
from streaming.state.held import HeldCounts
from streaming.state.indexes import Alarms, Deadlines, Members, PatternTargets, RemainingTopics
from streaming.state.notes import NO_NOTES, ClientNotes, Repeated
from streaming.state.policies import Policies, Quotas
from streaming.state.selectors import NO_SELECTORS, GroupSelectors
from streaming.storage.journal import overlay
from streaming.subscription.client import NOTHING, Client, Interest, LastRequest
from streaming.subscription.interests import Interests
from streaming.subscription.policy import GroupPolicy, apply_policies, has_bitmap
from streaming.subscription.subscribers import ClientKey, Matches
from streaming.tuning import DEFAULT_TUNING, Tuning

if TYPE_CHECKING:
    from streaming.events.model import TopicMetadata


class ShardContent:
    """Topics, groups and clients of one shard, without any index.

    Attributes:
        topics: in order of creation.
        notes: about clients that ended, or that a quota refused; the latest ones last.
        repeated: parts of ends that were read and not yet applied, by client and number.
        latest_order: highest number of a request on this shard.
    """

    def __init__(self) -> None:
        self.topics: dict[str, TopicMetadata] = {}
        self.groups: dict[str, Group] = {}
        self.clients: dict[ClientKey, Client] = {}
        self.last_requests: dict[ClientKey, LastRequest] = {}
        self.selectors: dict[str, GroupSelectors] = {}
        self.alarms: dict[int, bool] = {}
        self.backfills: dict[ClientKey, Backfill] = {}
        self.notes: dict[ClientKey, ClientNotes] = {}
        self.repeated: dict[tuple[ClientKey, int], Repeated] = {}
        self.latest_order = 0

    def __bool__(self) -> bool:
        return any(self._content)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ShardState):
            return NotImplemented
        return self._content == other._content and list(self.topics) == list(other.topics)

    __hash__ = None  # type: ignore[assignment]  # mutable

    @property
    def _content(self) -> tuple[dict[Any, Any], ...]:
        settings = self.groups, self.selectors, self.alarms
        return self.topics, *settings, self.clients, self.last_requests, self.backfills, self.notes, self.repeated

    def group(self, name: str) -> Group:
        """Return a group's attributes."""
        return self.groups.get(name, UNKNOWN_GROUP)

    def group_selectors(self, name: str) -> GroupSelectors:
        """Return a group's selectors."""
        return self.selectors.get(name, NO_SELECTORS)

    def policy(self, name: str) -> GroupPolicy:
        """Return the policy of a group."""
        return policy_of(self.group(name), self.group_selectors(name))

    def note(self, key: ClientKey) -> ClientNotes:
        """Return the notes about a client."""
        return self.notes.get(key, NO_NOTES)

    def interest(self, key: ClientKey) -> Interest:
        """Return the interest of a client."""
        client = self.clients.get(key)
        return NOTHING if client is None else interest_of(self.group(key.group), client)


class ShardState(ShardContent):
    """The content of one shard, with indexes built when first needed.

    Attributes:
        inner_multi: `**` may stand inside a pattern.
    """

    def __init__(self, *, inner_multi: bool = False, tuning: Tuning = DEFAULT_TUNING) -> None:
        super().__init__()
        self.inner_multi = inner_multi
        self._tuning = tuning
        self._targets = PatternTargets(inner_multi=inner_multi)
        self._deadlines = Deadlines()
        self._remaining = RemainingTopics(inner_multi=inner_multi)
        self._held = HeldCounts(tuning.columnar_min_topics)
        self._footprint = Footprint()
        self._interests: Interests | None = None
        self._restrictive = Policies(lambda policy: not policy.plain)
        self._with_bitmap = Policies(has_bitmap)
        self._quotas = Quotas()
        self._members = Members()
        self._alarm_times = Alarms()
        self._shares: dict[ClientKey, int | None] = {}

    def without_indexes(self) -> Self:
        """Return the same content, shared with this state, without the indexes that were built over it."""
        plain = type(self)(inner_multi=self.inner_multi, tuning=self._tuning)
        plain.topics, plain.groups, plain.selectors, plain.alarms, *others = self._content
        plain.clients, plain.last_requests, plain.backfills, plain.notes, plain.repeated = others
        plain.latest_order = self.latest_order
        return plain

    def new_interests(self) -> Interests:
        """Return an empty index of interests with the settings of this shard."""
        return Interests(
            self.inner_multi,
            array_min_topics=self._tuning.array_min_topics,
            array_build_topics=self._tuning.array_build_topics,
        )

    @property
    def restrictive_policies(self) -> dict[str, GroupPolicy]:
        """Policies of the groups in which a matching client may not receive a topic."""
        return self._restrictive.of(self._named, self.policy)

    def _named(self) -> dict[str, object]:
        """Return the groups with attributes or selectors."""
        return {**self.groups, **self.selectors}

    @property
    def bitmap_policies(self) -> dict[str, GroupPolicy]:
        """Policies of the groups that take part in the bitmaps of topics."""
        return self._with_bitmap.of(self._named, self.policy)

    @property
    def quotas(self) -> Collection[int]:
        """Quotas in force."""
        return self._quotas.of(self.groups)

    def clients_of(self, group: str) -> Collection[ClientKey]:
        """Return the clients of a group."""
        return self._members.of(group, self.clients)

    def alarms_due(self, now: int) -> list[int]:
        """Return the alarms at or before `now`, in milliseconds since the epoch."""
        return self._alarm_times.due(now, self.alarms)

    @property
    def is_unrestricted(self) -> bool:
        """True if every matching client receives a topic, by all rules but the quotas."""
        return not (self.restrictive_policies or self.backfills)

    def quota_share(self, key: ClientKey, share: Callable[[Group, Interest], int | None]) -> int | None:
        """Return the share of a client's quota on this shard, as `share` computes it once for each client."""
        if key not in self._shares:
            self._shares[key] = share(self.group(key.group), self.interest(key))
        return self._shares[key]

    @property
    def interests(self) -> Interests:
        """Index of the interests of all clients."""
        if self._interests is None:
            self._interests = self.new_interests()
            for key in self.clients:
                self._interests.add(key, self.interest(key))
        return self._interests

    def due(self, now: int) -> list[str]:
        """Return the topics whose deadline is at or before `now`, in milliseconds since the epoch."""
        return self._deadlines.due(now, self.topics)

    def topics_of(self, wanted: Interest) -> Iterable[str]:
        """Return the stored topics that match an interest, each once."""
        if wanted.everything is not None or not self.topics:
            return self.topics  # without topics no index is worth keeping up
        if not wanted.patterns:
            return dict.fromkeys(name for block in wanted.blocks for name in block.entries if name in self.topics)
        return dict.fromkeys(self._targets.expand(wanted, self.topics))

    def subscribers(self, topic: str, matches: Matches | None = None) -> Matches:
        """Return the subscribers of a stored topic by all rules but the quotas.

        Args:
            topic: its name.
            matches: all matching subscribers, where they are known already.
        """
        if matches is None:
            matches = self.interests.match(topic)
        announced = self.with_backfills(topic, matches, self.backfills)
        return apply_policies(announced, topic, self.topics[topic], (self.interests,), self.restrictive_policies)

    def with_backfills(self, topic: str, matches: Matches, keys: Iterable[ClientKey]) -> Matches:
        """Return the matching subscribers as announced so far: by former interests on topics still to be filled.

        Args:
            topic: its name.
            matches: all matching subscribers by the present interests.
            keys: clients with a backfill under way.
        """
        behind = dict.fromkeys(key for key in keys if topic in self.remaining(key))
        found = {row: texts for row, texts in matches.items() if row.client not in behind} if behind else matches
        for key in behind:
            found.update(self._remaining.matches(key, self.backfills[key], topic))
        return found

    def remaining(self, key: ClientKey) -> dict[str, None]:
        """Return the topics that a backfill has still to go through, in order of creation."""
        return self._remaining.of(key, self.backfills[key], self.topics)

    def rows(self, key: ClientKey) -> dict[str, Matches]:
        """Return a client's part in `subscribers` of each topic that it receives, in order of creation."""
        found = dict(self.rows_unordered(key))
        return {topic: found[topic] for topic in self.topics if topic in found}

    def rows_unordered(self, key: ClientKey) -> Iterator[tuple[str, Matches]]:
        """Yield `rows` in any order, without a look at other topics."""
        return _rows(self, key)

    def asked(self, key: ClientKey) -> dict[str, None]:
        """Return the stored topics that match a client's interest, or its former one while a backfill is under way."""
        asked = dict.fromkeys(self.topics_of(self.interest(key)))
        if key in self.backfills:
            asked.update(dict.fromkeys(self.topics_of(self.backfills[key].before)))
        return asked

    def held(self, key: ClientKey) -> int:
        """Return the number of stored topics that a client may hold by all rules but its quota."""
        return self._held.of(key, self)

    def drop_held(self) -> None:
        """Forget the counts of `held`, which nobody keeps up to date any more."""
        self._held.drop()

    def memory_bytes(self, text_bytes: int) -> int:
        """Return the estimated memory of the state with its indexes, in bytes.

        Args:
            text_bytes: size of its journal, which has all names, patterns and properties.
        """
        return self._footprint.memory_bytes(
            text_bytes=text_bytes, topics=len(self.topics), indexes=len(self._targets), clients=len(self.clients)
        )

    def apply(self, delta: ShardDelta) -> None:
        """Make the changes of a micro-batch, in the indexes that exist as well."""
        self._footprint.follow(delta, self.topics, self.clients)
        for topic in delta.removed:
            self._deadlines.remove(topic, self.topics.pop(topic).deadline)
        self.topics.update(delta.added)
        self._deadlines.add(delta.added)
        self._targets.apply(delta)
        affected = self._affected(delta) if self._interests is not None else {}
        self._members.apply(delta.clients)
        self._quotas.apply(delta.groups, self.groups)
        self._alarm_times.apply(delta.alarms)
        overlay(self.groups, delta.groups)
        overlay(self.clients, delta.clients)
        overlay(self.last_requests, delta.last_requests)
        overlay(self.selectors, delta.selectors)
        overlay(self.alarms, delta.alarms)
        overlay(self.backfills, delta.backfills)
        for key in delta.notes:  # the latest ones last
            self.notes.pop(key, None)
        overlay(self.notes, delta.notes)
        overlay(self.repeated, delta.repeated)
        self._remaining.apply(delta.backfills, delta.removed)
        for policies in (self._restrictive, self._with_bitmap):
            policies.apply({**delta.groups, **delta.selectors}, self.policy)
        self._forget_shares(delta)
        self._held.update(delta.held)
        self.latest_order = max(self.latest_order, delta.latest_order or _latest_order(delta)) if self else 0
        for key, before in affected.items():
            after = self.interest(key)
            if after != before:
                self.interests.remove(key, before)
                self.interests.add(key, after)

    def replay(self, delta: ShardDelta) -> None:
        """Make the changes of another worker, whose delta may lack the counts of `held`."""
        if delta.held or not self._held.are_kept:
            self.apply(delta)
            return
        self._held.count(list(delta.removed), -1, self)
        self.apply(delta)
        if delta.groups or delta.selectors or any(self.policy(key.group).exclusive for key in delta.clients):
            self._held.drop()
            return
        self._held.update(dict.fromkeys(delta.clients))
        self._held.count(list(delta.added), 1, self)

    def _affected(self, delta: ShardDelta) -> dict[ClientKey, Interest]:
        """Return the clients whose interest may change, each with its present one."""
        keys = dict.fromkeys(delta.clients)
        if delta.groups:
            keys.update(dict.fromkeys(key for name in delta.groups for key in self.clients_of(name)))
        return {key: self.interest(key) for key in keys}

    def _forget_shares(self, delta: ShardDelta) -> None:
        members = map(self.clients_of, delta.groups if self._shares else ())
        for key in chain(delta.clients, *members):
            self._shares.pop(key, None)


def _rows(state: ShardState, key: ClientKey) -> Iterator[tuple[str, Matches]]:
    """Yield a client's part in the subscribers of each topic that it receives."""
    policy = state.restrictive_policies.get(key.group)
    alone = None
    if policy is None or not policy.exclusive:  # no other client has a say
        alone = state.new_interests()
        alone.add(key, state.interest(key))
    backfills = [key] if key in state.backfills else []
    for topic in state.asked(key):
        if alone is None:
            found = state.subscribers(topic)
        else:
            matches = state.with_backfills(topic, alone.match(topic), backfills)
            found = apply_policies(matches, topic, state.topics[topic], (alone,), state.restrictive_policies)
        own = {row: patterns for row, patterns in found.items() if row.client == key}
        if own:
            yield topic, own


def _latest_order(delta: ShardDelta) -> int:
    """Return the highest number of a request in a change that a former release wrote."""
    subscriptions = list(chain.from_iterable(filter(None, delta.clients.values())))
    orders = [subscription.everything or 0 for subscription in subscriptions]
    orders += [block.order for subscription in subscriptions for block in subscription.blocks]
    for request in filter(None, delta.last_requests.values()):
        orders += [request.literal_order, request.wildcard_order]
    return int(max(orders, default=0))
