"""The relation that the state of a shard amounts to."""

from collections import Counter
from collections.abc import Iterator

from streaming.state.shard import Shard
from streaming.state.shard_state import ShardState
from streaming.subscription.subscribers import ClientKey, Matches


def holdings(state: ShardState, shard: Shard) -> Iterator[tuple[str, Matches]]:
    """Yield each topic of a shard with its subscribers, quotas considered, as announced so far.

    Of the topics that a client may hold by all other rules, it holds the first ones in order of creation.
    """
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
