"""Groups as some topics still see them: the topics that a backfill has not reached follow the former group.

Several backfills of a group may cover a topic. The oldest one decides, because its former group is the one that the
topic's subscribers still follow.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count, islice
from typing import TypeVar

from streaming.records.model import TopicMetadata
from streaming.records.subscribers import ClientKey, Matches, SubscriberKey
from streaming.state.client import NOTHING, Interest
from streaming.state.counts import first_rows
from streaming.state.delta import Backfill
from streaming.state.group import Roster, interest
from streaming.state.interests import DistinctEntries, Interests
from streaming.state.policy import GroupPolicy, accepts, apply_policies, is_restrictive

I = TypeVar("I", Interests, DistinctEntries)  # noqa: E741 - an index


class Frame:
    """Interests of clients of a group, and its policy, as some topics see them.

    Attributes:
        group: the group.
        keys: the clients.
        policies: the policy by group; empty if it restricts no client.
        is_exclusive: True if a topic goes to the newest client only.
        visits: number of entries that were looked at so far.
    """

    def __init__(
        self,
        group: str,
        interests: Mapping[ClientKey, Interest],
        policy: GroupPolicy,
        new_interests: Callable[[], Interests],
    ) -> None:
        self.group = group
        self.keys = dict.fromkeys(interests)
        self.policies = {group: policy} if is_restrictive(policy) else {}
        self.visits = 0
        self._interests = interests
        self._new_interests = new_interests
        self._own: dict[ClientKey, Interests] = {}
        self.is_exclusive = policy.exclusive

    @cached_property
    def _index(self) -> Interests:
        return self._filled(self._new_interests())

    @cached_property
    def _entries(self) -> tuple[DistinctEntries, list[tuple[float, str]]]:
        """The different entries, and order and id of the newest client of each."""
        entries = self._filled(DistinctEntries(self._new_interests().inner_multi))
        return entries, [max((order, row.client_id) for row, order in each) for each in entries.holders]

    def _filled(self, index: I) -> I:
        for key, wanted in self._interests.items():
            if wanted != NOTHING:
                index.add(key, wanted)
        return index

    def match_all(self, topics: Sequence[str]) -> list[Matches]:
        """Return the matching subscribers of topics; in an exclusive group only those of the newest client."""
        if self.is_exclusive:
            return list(map(self.match, topics))
        found = self._index.match_all(topics)
        self.visits += sum(map(len, found))
        return found

    def match_of(self, keys: Iterable[ClientKey], topic: str) -> Matches:
        """Return the matching subscribers of a topic that are of some clients, whether or not they are the newest."""
        return {row: texts for key in keys for row, texts in self._match_own(key, topic).items()}

    def subscribers(self, topic: str, metadata: TopicMetadata, matches: Matches | None = None) -> Matches:
        """Return the subscribers of a topic among the clients; `matches` are those of `match_all`."""
        found = self.match(topic) if matches is None else matches
        if not self.policies or not self.is_exclusive:
            return apply_policies(found, topic, metadata, (), self.policies)
        selector = self.policies[self.group].selector
        return found if not found or selector is None or accepts(selector, metadata) else {}

    def asks(self, subscriber: SubscriberKey, topic: str, matches: Matches) -> bool:
        """Return True if a subscriber has a matching entry; `matches` are those of `match_all`."""
        if subscriber in matches:
            return True
        return self.is_exclusive and subscriber in self._match_own(subscriber.client, topic)

    def match(self, topic: str) -> Matches:
        """Return the matching subscribers of a topic; in an exclusive group only those of the newest client."""
        if not self.is_exclusive:
            return self.match_all([topic])[0]
        entries, newest = self._entries
        numbers = entries.match(topic)
        self.visits += len(numbers)
        if not numbers:
            return {}
        _, client_id = max(newest[number] for number in numbers)
        return self._match_own(ClientKey(self.group, client_id), topic)

    def _match_own(self, key: ClientKey, topic: str) -> Matches:
        if key not in self._own:
            self._own[key] = self._new_interests()
            self._own[key].add(key, self._interests.get(key, NOTHING))
        return self._own[key].match(topic)


def frame(
    roster: Roster,
    group: str,
    keys: Iterable[ClientKey],
    backfills: Sequence[Backfill],
    new_interests: Callable[[], Interests],
) -> Frame:
    """Return a group as the topics see it that some backfills cover.

    Args:
        roster: groups and clients by all events.
        group: the group.
        keys: the clients.
        backfills: the oldest first.
        new_interests: returns an empty index.
    """
    policy = former_policy(roster, group, backfills)
    interests = {key: former_interest(roster, key, backfills, policy) for key in keys}
    return Frame(group, interests, policy, new_interests)


def covered_frame(
    roster: Roster,
    group: str,
    clients: Collection[ClientKey],
    backfills: Sequence[Backfill],
    new_interests: Callable[[], Interests],
) -> Frame:
    """Return the clients of a group that differ on the topics that some backfills cover; `clients` are all of them."""
    policy, former = roster.policy(group), former_policy(roster, group, backfills)
    differs = not (policy.plain and former.plain and policy[:2] == former[:2])
    keys = dict.fromkeys((*(clients if differs else ()), *pinned(group, backfills)))
    return frame(roster, group, keys, backfills, new_interests)


def former_policy(roster: Roster, group: str, backfills: Iterable[Backfill]) -> GroupPolicy:
    """Return the policy of a group for the topics that some backfills cover."""
    return next((each.policy for each in backfills if each.policy is not None), None) or roster.policy(group)


def former_interest(
    roster: Roster, key: ClientKey, backfills: Sequence[Backfill], policy: GroupPolicy | None = None
) -> Interest:
    """Return the interest of a client on the topics that some backfills cover; `policy` is that of `former_policy`."""
    for each in backfills:
        if key.client_id in each.clients:
            return each.clients[key.client_id].interest
    if policy is None:
        policy = former_policy(roster, key.group, backfills)
    return NOTHING if policy.elsewhere else interest(roster.client(key), policy.mode)


def pinned(group: str, backfills: Iterable[Backfill]) -> dict[ClientKey, None]:
    """Return the clients whose former interests are in some backfills of a group."""
    return {ClientKey(group, client_id): None for each in backfills for client_id in each.clients}


class Accepted:
    """Topics that the selector of a group accepts, in order; each is looked at once, and as late as possible.

    Args:
        topics: all topics, with their metadata.
        policy: the policy of the group.
    """

    def __init__(self, topics: Mapping[str, TopicMetadata], policy: GroupPolicy) -> None:
        selector = policy.selector
        self._left = (each for each, metadata in topics.items() if selector is None or accepts(selector, metadata))
        self._found: list[str] = []

    def __iter__(self) -> Iterator[str]:
        for at in count():
            if at == len(self._found):
                topic = next(self._left, None)
                if topic is None:
                    return
                self._found.append(topic)
            yield self._found[at]


class GroupRows:
    """Rows of clients of a group on topics: found for one client, or after many questions for all of them.

    The state is an argument and not kept: a cycle would outlive its use while the garbage collector is disabled.

    Attributes:
        keys: the clients; all of the group if they depend on each other.
        frames: the group, by the backfills that cover a topic.
    """

    def __init__(self, keys: Collection[ClientKey], topics: int) -> None:
        self.keys = keys
        self.frames: dict[tuple[ClientKey, ...], Frame] = {}
        self._visits_left = topics
        self._by_client: dict[ClientKey, dict[str, Matches]] | None = None

    def first(
        self,
        key: ClientKey,
        topics: Iterable[str],
        rows_of: Callable[[str], Matches],
        asked: Callable[[], Collection[str]],
        most: int | None,
        *,
        in_order: Callable[[Collection[str]], Iterable[str]] | None = None,
    ) -> dict[str, Matches]:
        """Return the first topics with rows of a client, as `first_rows`; `rows_of` returns those of all clients."""
        if self._visits_left > 0:
            return first_rows(topics, lambda topic: self.of(key, rows_of(topic)), asked, most, in_order=in_order)
        if self._by_client is None:
            self._by_client = defaultdict(dict)
            for topic in topics:
                for row, patterns in rows_of(topic).items():
                    self._by_client[row.client].setdefault(topic, {})[row] = patterns
        return dict(islice(self._by_client.get(key, {}).items(), most))

    def of(self, key: ClientKey, rows: Matches) -> Matches:
        """Return those rows of a topic that are of a client."""
        self._visits_left -= 1
        return {row: patterns for row, patterns in rows.items() if row.client == key}
