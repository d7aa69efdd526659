"""Rows of MQTT shares under the keys of an earlier release, which left the filter out."""

from collections.abc import Iterator

from matcher.dialects.mqtt import shared
from streaming.expansion.compare import Announcer
from streaming.expansion.micro_batch import apply_events
from streaming.records.model import Source
from streaming.records.subscribers import SHARE, SubscriberKey
from streaming.records.updates import Cause, Op, Update
from streaming.state import Shard, ShardState
from streaming.state.holdings import holdings
from streaming.state.interests import MQTT
from streaming.tuning import Tuning

FORMAT_WITH_FILTERS = 6
"""First state format whose shares have their filters in the keys of their rows."""


def has_shares(state: ShardState) -> bool:
    """Return True if a client or a backfill of a shard has an MQTT shared subscription."""
    blocks = [block for client in state.clients.present.values() for block in client.wildcard.blocks]
    formers = [former for backfill in state.backfills.values() for former in backfill.clients.values()]
    blocks += [block for former in formers for block in former.interest.blocks]
    return any(block.notation.dialect == MQTT and any(map(shared, block.entries)) for block in blocks)


def renamed_rows(state: ShardState, shard: Shard, source: Source, tuning: Tuning) -> Iterator[list[Update]]:
    """Yield ADDs of the rows of shares, and REMOVEs of their former rows.

    An earlier release wrote rows by name alone. The ADDs of a topic come first, so that a consumer never sees it
    without the share.
    """
    announcer = Announcer(apply_events(state, (), shard, tuning))
    updates: list[Update] = []
    for topic, found in holdings(state, shard):
        former = dict[SubscriberKey, list[str]]()
        for subscriber, patterns in found.items():
            if subscriber.part.startswith(SHARE):
                name, _, _ = subscriber.part.partition("/")
                former.setdefault(subscriber._replace(part=name), []).extend(patterns)
                update = announcer.update(Op.ADD, subscriber, topic, patterns, cause=Cause.REPAIRED, source=source)
                updates.append(announcer.with_bitmap(update) if announcer.needs_bitmaps else update)
        updates += (
            announcer.update(Op.REMOVE, subscriber, topic, patterns, cause=Cause.REPAIRED, source=source)
            for subscriber, patterns in former.items()
        )
        if len(updates) >= tuning.updates_per_chunk:
            yield updates
            updates = []
    if updates:
        yield updates
