"""Clock records for which a shard waits, made anew from its state."""

from streaming import coordinator, state
from streaming.coordinator import COORDINATOR
from streaming.state import ShardState
from streaming.storage.journal import Archive, Journal
from streaming.updates.records import KafkaRecord


def reminders(parent: str, number: int, data: bytes, archive: Archive | None) -> list[KafkaRecord]:
    """Return the records that bring a shard everything for which it waits; an alarm that comes twice does no harm.

    Args:
        parent: the parent topic; the coordinator waits for nothing but ticks.
        number: the shard of the parent.
        data: its state bytes.
        archive: place of the parts of its state.
    """
    if parent == COORDINATOR:
        return []
    shard = ShardState()
    journal = Journal.open(data, archive)
    state.replay(shard, journal.changes())
    alarms = [coordinator.alarm(parent, number, time) for time in sorted(shard.alarms)]
    return [*alarms, coordinator.wake(parent, number, 0)] if shard.backfills or journal.has_left_parts else alarms
