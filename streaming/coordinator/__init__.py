"""State that spans parent topics: group bindings, client leases, alarms.

This state has keys of its own beside the shards, the coordinator's buckets. The coordinator never reaches into a shard:
it writes an ordinary record for each parent concerned back to an input stream, and the record names the event that
caused it. So a replay gives the same result, and a record that is repeated or late does no harm.
"""

from streaming.coordinator.codec import append, replay
from streaming.coordinator.keys import BUCKETS, COORDINATOR, OVERSIZE, UNROUTABLE, bucket_of
from streaming.coordinator.records import alarm, wake
from streaming.coordinator.rules import CoordinatorOutcome, follow
from streaming.coordinator.state import (
    ClientLease,
    CoordinatorDelta,
    CoordinatorState,
    GroupBinding,
    PendingEnd,
    Versions,
)

__all__ = [
    "BUCKETS",
    "COORDINATOR",
    "OVERSIZE",
    "UNROUTABLE",
    "ClientLease",
    "CoordinatorDelta",
    "CoordinatorOutcome",
    "CoordinatorState",
    "GroupBinding",
    "PendingEnd",
    "Versions",
    "alarm",
    "append",
    "bucket_of",
    "follow",
    "replay",
    "wake",
]
