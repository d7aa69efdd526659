"""State that spans parent topics: group bindings, client leases, alarms.

This state has its own keys, the coordinator's buckets. The coordinator never changes a shard directly: for each parent
concerned it writes an ordinary record back to an input stream, and the record names the event that caused it. So a
replay gives the same result, and repeated or late records do no harm.
"""

from streaming.coordinator.records import alarm, wake
from streaming.coordinator.rules import follow
from streaming.coordinator.state import CoordinatorDelta, CoordinatorState, append, replay
from streaming.records.routing import BUCKETS, COORDINATOR, OVERSIZE, UNROUTABLE, bucket_of

__all__ = [
    "BUCKETS",
    "COORDINATOR",
    "OVERSIZE",
    "UNROUTABLE",
    "CoordinatorDelta",
    "CoordinatorState",
    "alarm",
    "append",
    "bucket_of",
    "follow",
    "replay",
    "wake",
]
