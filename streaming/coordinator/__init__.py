"""State that spans parent topics, in keys of its own: group bindings, client leases, alarms.

The coordinator writes ordinary records to the inputs of shards, which name the event behind them (see "The coordinator"
in `docs/how-it-decides.md`). So a replay gives the same result, and repeated or late records do no harm.
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
