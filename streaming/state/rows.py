"""Rows of one client of a shard, found topic by topic."""

from collections.abc import Collection, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from streaming.records.subscribers import ClientKey, Matches
from streaming.state.frames import former_interest
from streaming.state.policy import apply_policies

if TYPE_CHECKING:
    from streaming.state.interests import Interests
    from streaming.state.shard_state import ShardState

_LOOK = 50_000
"""Number of topics to match with the entries of a client before the index of topics is used."""


class ClientRows:
    """A client's part in the subscribers of topics, by all rules but the quotas."""

    def __init__(self, state: "ShardState", key: ClientKey) -> None:
        self._state = state
        self._key = key
        self._alone: Interests | None = None
        policy = state.restrictive_policies.get(key.group)
        if (policy is None or not policy.exclusive) and not state.backfills_of(key.group):  # no other client matters
            self._alone = state.new_interests()
            self._alone.add(key, state.interest(key))

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
        asked.add(key, state.interest(key))
        for number, each in enumerate(state.backfills_of(key.group).values()):
            asked.add(key._replace(client_id=f" {number}"), former_interest(state, key, [each]))
        topics = iter(state.topics)
        for topic in islice(topics, _LOOK):
            if topic in others or asked.match(topic):
                yield topic, self.of(topic)
        rest = state.asked(key) if len(state.topics) > _LOOK else {}
        for topic in topics:
            if topic in others or topic in rest:
                yield topic, self.of(topic)
