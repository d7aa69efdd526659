"""The lazy path one by one: topics that come or go, matched against the stored patterns."""

from collections.abc import Iterator

from streaming.expansion.announce import Announcer
from streaming.expansion.micro_batch import MicroBatch
from streaming.subscription.interests import Interests
from streaming.subscription.policy import apply_policies
from streaming.subscription.subscribers import Matches
from streaming.updates.model import Cause, Op, Update


def lazy_updates(batch: MicroBatch, announcer: Announcer, renewed: Interests) -> Iterator[Update]:
    """Yield the updates of the topics that were created, deleted, or created again.

    Args:
        batch: the micro-batch.
        announcer: makes the updates.
        renewed: interests after the micro-batch of the clients that changed.
    """
    state = batch.state
    topics = [name for name, topic in batch.topics.single.items() if topic.exists or name in state.topics]
    for topic, matches in zip(topics, state.interests.match_all(topics), strict=True):
        exists, source, _, removal = batch.topics.single[topic]
        before = state.subscribers(topic, matches) if topic in state.topics else {}
        after = _subscribers_after(batch, topic, matches, renewed) if exists else {}
        for subscriber, patterns in before.items():
            if subscriber not in after and removal is not None:
                yield announcer.update(
                    Op.REMOVE, subscriber, topic, patterns, cause=removal.cause, source=removal.source
                )
        for subscriber, patterns in after.items():
            if subscriber not in before:
                yield announcer.update(Op.ADD, subscriber, topic, patterns, cause=Cause.TOPIC_CREATED, source=source)


def _subscribers_after(batch: MicroBatch, topic: str, matches: Matches, renewed: Interests) -> Matches:
    """Return the subscribers of a created topic; `matches` are those by the interests before."""
    if batch.changed:
        matches = {key: patterns for key, patterns in matches.items() if key.client not in batch.changed}
        matches.update(renewed.match(topic))
    metadata = batch.topics.single[topic].metadata
    return apply_policies(matches, topic, metadata, (batch.state.interests, renewed), batch.policies)
