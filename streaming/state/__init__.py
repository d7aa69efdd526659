"""The state of one shard, and its codec."""

from streaming.state.codec import append, replay
from streaming.state.delta import Backfill, ShardDelta
from streaming.state.group import UNKNOWN_GROUP, Group, GroupSelectors, Shard
from streaming.state.shard_state import ShardState
from streaming.state.snapshot import has_new_topics, restore, settle, snapshot_content

__all__ = [
    "UNKNOWN_GROUP",
    "Backfill",
    "Group",
    "GroupSelectors",
    "Shard",
    "ShardDelta",
    "ShardState",
    "append",
    "has_new_topics",
    "replay",
    "restore",
    "settle",
    "snapshot_content",
]
