"""The state of one shard, and its codec."""
