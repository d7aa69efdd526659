"""Topics that clients may hold by all rules but their quotas, counted or listed as far as a quota reaches."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain, islice
from math import inf
from typing import Final, Protocol

from streaming.records.model import TopicMetadata
from streaming.records.subscribers import ClientKey, Matches
from streaming.state.interests import Interests
from streaming.state.policy import GroupPolicy

BEYOND: Final = -1
"""Count of a client that may hold more topics than its quota allows."""

_FIRST_TOPICS: Final = 1_024
_CHUNK_TOPICS: Final = 16_384
"""Numbers of topics that are counted at once: first few, because many clients may be at their quota after them."""

_DROPPED_SHARE: Final = 8
"""Clients at their quota are no longer matched if they are at least the n-th part of all."""

_LOOKS: Final = 64
"""Topics to visit, besides eight for each topic with a row, before a client's topics are looked up in an index."""


class Countable(Protocol):
    """The part of a `ShardState` that counting needs."""

    @property
    def topics(self) -> Mapping[str, TopicMetadata]:
        """All topics, in order of creation."""

    @property
    def is_unrestricted(self) -> bool:
        """True if every matching client receives a topic."""

    @property
    def restrictive_policies(self) -> Mapping[str, GroupPolicy]:
        """Policies of the groups in which a matching client may not receive a topic."""

    @property
    def interests(self) -> Interests:
        """Index of the interests of all clients."""

    def new_interests_of(self, keys: Iterable[ClientKey]) -> Interests:
        """Return an index of the interests of some clients."""

    def subscribers(self, topic: str, matches: Matches | None = None) -> Matches:
        """Return the subscribers of a stored topic by all rules but the quotas."""

    def rows(self, key: ClientKey, most: int | None = None) -> dict[str, Matches]:
        """Return the first topics that a client receives."""


class HeldCounts:
    """Counts by client, made for all clients at once, because a micro-batch of new topics concerns many.

    A count is exact up to the client's share of its quota. The state is an argument and not kept: a cycle would outlive
    its use while the garbage collector is disabled.

    Attributes:
        by_client: counts; `BEYOND` for more than the quota, None for a client that is to be counted when needed.
    """

    def __init__(self, columnar_min_topics: float, counts: Mapping[ClientKey, int | None] | None = None) -> None:
        """Begin with no topics, or with `counts` of a snapshot.

        Args:
            columnar_min_topics: number of topics from which on they are matched by column.
            counts: as in `by_client`.
        """
        self._columnar_min_topics = columnar_min_topics
        self.by_client = dict(counts or {})

    def count_all(
        self, state: Countable, keys: Iterable[ClientKey], share_of: Callable[[ClientKey], int | None]
    ) -> None:
        """Count the topics of all clients.

        Args:
            state: the shard.
            keys: its clients in session.
            share_of: returns the number of topics that a client may hold; None for any number.
        """
        names, size, left, interests = list(state.topics), _FIRST_TOPICS, dict.fromkeys(keys), state.interests
        exclusive = {group for group, policy in state.restrictive_policies.items() if policy.exclusive}
        if exclusive:  # a topic has many matching clients, of which one counts
            self.by_client.update(dict.fromkeys(key for key in left if key.group in exclusive))
            left = {key: None for key in left if key.group not in exclusive}
            interests = state.new_interests_of(left)
        while names:
            self._count(names[:size], 1, state, interests)
            names, size = names[size:], min(4 * size, _CHUNK_TOPICS)
            full = [
                key
                for key in left
                if (self.by_client.get(key) or 0) > (inf if (share := share_of(key)) is None else share)
            ]
            if state.is_unrestricted and names and _DROPPED_SHARE * len(full) >= len(left) > 0:
                self.by_client.update(dict.fromkeys(full, BEYOND))
                left = {key: None for key in left if self.by_client.get(key) != BEYOND}
                interests = state.new_interests_of(left)

    def of(self, key: ClientKey, share: int | None, state: Countable) -> float:
        """Return the count of a client; infinity beyond its share of a quota, which is None for no limit."""
        found, limit = self.by_client.get(key, 0), inf if share is None else share
        if found is None or (found == BEYOND and share is None):
            count = len(state.rows(key, None if share is None else share + 1))
            found = self.by_client[key] = BEYOND if count > limit else count
        return inf if found == BEYOND or found > limit else found

    def count(self, topics: Sequence[str], step: int, state: Countable) -> None:
        """Count stored topics in (`step` 1) or out (-1)."""
        self._count(topics, step, state, state.interests)

    def _count(self, topics: Sequence[str], step: int, state: Countable, interests: Interests) -> None:
        counts: Mapping[ClientKey, int]
        if state.is_unrestricted and len(topics) >= self._columnar_min_topics:
            counts = interests.pairs(topics).topics_by_client()
        else:
            found = zip(topics, interests.match_all(topics), strict=True)
            counts = Counter(chain.from_iterable(_clients(state.subscribers(topic, all_)) for topic, all_ in found))
        for client, count in counts.items():
            known = self.by_client.get(client, 0)
            if known == BEYOND:
                self.by_client[client] = BEYOND if step > 0 else None
            elif known is not None:
                self.by_client[client] = known + step * count

    def update(self, counts: Mapping[ClientKey, int | None]) -> None:
        """Replace counts; a client with None is counted when needed."""
        self.by_client.update(counts)
        for client, count in counts.items():
            if count == 0:
                del self.by_client[client]


def _clients(subscribers: Matches) -> set[ClientKey]:
    return {subscriber.client for subscriber in subscribers}


def first_rows(
    topics: Iterable[str],
    rows_of: Callable[[str], Matches],
    asked: Callable[[], Collection[str]],
    most: int | None,
    *,
    in_order: Callable[[Collection[str]], Iterable[str]] | None = None,
) -> dict[str, Matches]:
    """Return the first topics with rows of a client, with these rows.

    A client that is to be counted up to its quota may match very many topics. So topics are visited one by one as long
    as many of them have a row, and only the others are looked up.

    Args:
        topics: all topics.
        rows_of: returns the rows of the client for a topic.
        asked: returns the topics that may have rows.
        most: number of topics to return; None for all.
        in_order: returns stored topics in order of creation, if they are found without a visit of all others.
    """
    found: dict[str, Matches] = {}
    names = iter(topics)
    if most is not None:
        for visited, topic in enumerate(names):
            if rows := rows_of(topic):
                found[topic] = rows
            if len(found) >= most or visited > _LOOKS + 8 * len(found):
                break
        else:
            return found
    if most is None or len(found) < most:
        wanted = asked()
        others = filter(wanted.__contains__, names) if in_order is None else in_order(wanted)
        with_rows = ((topic, rows) for topic in others if topic not in found and (rows := rows_of(topic)))
        found.update(islice(with_rows, None if most is None else most - len(found)))
    return found
