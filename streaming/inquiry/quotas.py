"""Topics beyond the quota of a client, found with a short look where one is enough."""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from streaming.state import ShardState
from streaming.subscription.subscribers import ClientKey

_LOOK: Final = 50_000
"""Number of topics that are matched with the entries of the client, before the index of the shard's topics is asked."""

_WORK: Final = 500_000
"""Number of topics, and of subscribers of topics, that one answer looks at; some 2 s."""


class TooWide(Exception):
    """An answer would look at more than it may."""


class Effort:
    """Work that is left for an answer."""

    def __init__(self) -> None:
        self._left = _WORK

    def spend(self, work: int) -> None:
        """Count some work.

        Raises:
            TooWide: more was spent than there was.
        """
        self._left -= work
        if self._left < 0:
            raise TooWide(
                "whether the quota takes the topic away is too much for one answer: too many topics are older"
            )


def is_beyond(state: ShardState, key: ClientKey, share: int | None, topic: str, effort: Effort) -> bool:
    """Return True if a client with a row for a topic does not hold it, since it holds as many older ones as it may.

    Args:
        state: of the shard.
        key: the client.
        share: number of topics that the client may hold on the shard; None for any number.
        topic: a topic for which it has a row by all other rules.
        effort: work that is left.

    Raises:
        TooWide: there is too little left.
    """
    if share is None or len(state.topics) <= share:
        return False
    held = 0
    for other in islice(_first_held(state, key, effort), _LOOK):
        if other == topic:
            return held >= share
        held += other is not None
        if held >= share:
            return True
    asked = state.asked(key)
    if len(asked) <= share:
        return False
    older = (other for other in state.topics if other in asked and _has_row(state, key, other, effort))
    return topic not in islice(older, share)


def _first_held(state: ShardState, key: ClientKey, effort: Effort) -> Iterator[str | None]:
    """Yield the topics of the shard in order of creation, None for those for which the client has no row."""
    own = state.new_interests()
    own.add(key, state.interest(key))
    is_plain = key.group not in state.restrictive_policies and not state.backfills
    if key in state.backfills:
        return
    for topic in state.topics:
        effort.spend(1)
        has_row = bool(own.match(topic)) and (is_plain or _has_row(state, key, topic, effort))
        yield topic if has_row else None


def _has_row(state: ShardState, key: ClientKey, topic: str, effort: Effort) -> bool:
    found = state.subscribers(topic)
    effort.spend(1 + len(found))
    return any(row.client == key for row in found)
