"""Clock records for which a shard waits, made again from its state."""

from streaming import coordinator, state
from streaming.coordinator import COORDINATOR
from streaming.records.writing import KafkaRecord
from streaming.state import ShardState
from streaming.storage.journal import Archive, Journal


def reminders(parent: str, number: int, data: bytes, archive: Archive | None) -> list[KafkaRecord]:
    """Return the records that bring a shard all for which it waits.

    Repeated alarms do no harm, and the coordinator waits for ticks only.
    """
    if parent == COORDINATOR:
        return []
    shard = ShardState()
    journal = Journal.open(data, archive)
    state.replay(shard, journal.changes())
    alarms = [coordinator.alarm(parent, number, time) for time in sorted(shard.alarms)]
    return [*alarms, coordinator.wake(parent, number, 0)] if shard.backfills or journal.has_left_parts else alarms
