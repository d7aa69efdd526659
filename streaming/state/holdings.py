"""Topics that clients hold: of the topics that a client may hold by all rules but its quota, the first ones.

Topics are counted in order of creation. So the topics of a client are a function of the present state.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice, takewhile
from typing import Final

from streaming.records.subscribers import ClientKey, Matches
from streaming.state.counts import first_rows
from streaming.state.group import Shard
from streaming.state.shard_state import ShardState

_WORK: Final = 500_000
"""Maximum number of topics, and of subscribers of topics, to visit for one answer; about 2 s."""


class TooWide(Exception):
    """An answer would visit more topics than allowed."""


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


def within(topics: Iterable[str], share: int | None) -> dict[str, None]:
    """Return the topics that fit into a share of a quota, given in order of creation; None is no limit."""
    return dict.fromkeys(islice(topics, share))


def holdings(state: ShardState, shard: Shard) -> Iterator[tuple[str, Matches]]:
    """Yield each topic of a shard with its subscribers as announced so far, quotas considered."""
    held: Counter[ClientKey] = Counter()
    for topic in state.topics:
        found = state.subscribers(topic)
        refused = set()
        for client in {subscriber.client for subscriber in found}:
            share = state.quota_share(client, shard.client_share)
            if share is not None:
                held[client] += 1
                if held[client] > share:
                    refused.add(client)
        if refused:
            found = {subscriber: texts for subscriber, texts in found.items() if subscriber.client not in refused}
        yield topic, found


def is_beyond(state: ShardState, key: ClientKey, share: int | None, topic: str, effort: Effort) -> bool:
    """Return True if a client with a row for a topic does not hold it, because it holds enough older topics.

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
    may_be_former, own = bool(state.backfills_of(key.group)), state.new_interests_of([key])
    is_plain = key.group not in state.restrictive_policies and not state.backfills

    def rows_of(name: str) -> Matches:
        effort.spend(1)
        matches = own.match(name)
        if is_plain or not (matches or may_be_former):
            return matches
        found = state.subscribers(name)
        effort.spend(1 + len(found))
        return {row: patterns for row, patterns in found.items() if row.client == key}

    older = takewhile(topic.__ne__, state.topics)
    return len(first_rows(older, rows_of, lambda: state.asked(key), share)) >= share
