"""Rows of one client of a shard, found topic by topic."""

from collections.abc import Collection, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from streaming.records.subscribers import ClientKey, Matches
from streaming.state.client import Interest
from streaming.state.policy import GroupPolicy, apply_policies

if TYPE_CHECKING:
    from streaming.records.model import TopicMetadata
    from streaming.state.interests import Interests

_LOOK = 50_000
"""Number of topics to match with the entries of a client before the index of topics is used."""


class Subscribed(Protocol):
    """The part of a `ShardState` that rows need."""

    topics: "dict[str, TopicMetadata]"

    @property
    def restrictive_policies(self) -> dict[str, GroupPolicy]:
        """Policies of the groups in which a matching client may not receive a topic."""

    def new_interests(self) -> "Interests":
        """Return an empty index of interests."""

    def wanted(self, key: ClientKey) -> list[Interest]:
        """Return the interest of a client, and the former ones in force for some topics."""

    def asked(self, key: ClientKey) -> dict[str, None]:
        """Return the stored topics that match one of them."""

    def subscribers(self, topic: str, matches: Matches | None = None) -> Matches:
        """Return the subscribers of a stored topic by all rules but the quotas."""


class ClientRows:
    """A client's part in the subscribers of topics, by all rules but the quotas."""

    def __init__(self, state: Subscribed, key: ClientKey) -> None:
        self._state = state
        self._key = key
        self._alone: Interests | None = None
        policy, (wanted, *former) = state.restrictive_policies.get(key.group), state.wanted(key)
        if (policy is None or not policy.exclusive) and not former:  # no other client matters
            self._alone = state.new_interests()
            self._alone.add(key, wanted)

    def of(self, topic: str) -> Matches:
        """Return the client's part in the subscribers of a topic."""
        state, alone = self._state, self._alone
        if alone is not None:
            metadata = state.topics[topic]
            return apply_policies(alone.match(topic), topic, metadata, (alone,), state.restrictive_policies)
        return {row: patterns for row, patterns in state.subscribers(topic).items() if row.client == self._key}

    def of_oldest(self, others: Collection[str]) -> Iterator[tuple[str, Matches]]:
        """Yield each topic that the client asks for, or that is one of `others`, in order of creation.

        The first topics are found without the others, because a quota seldom needs more of them.
        """
        state, key, asked = self._state, self._key, self._state.new_interests()
        for number, wanted in enumerate(state.wanted(key)):
            asked.add(key._replace(client_id=str(number)), wanted)
        topics = iter(state.topics)
        for topic in islice(topics, _LOOK):
            if topic in others or asked.match(topic):
                yield topic, self.of(topic)
        rest = state.asked(key) if len(state.topics) > _LOOK else {}
        for topic in topics:
            if topic in others or topic in rest:
                yield topic, self.of(topic)
