"""The relation that the state of a shard amounts to."""

from streaming.state import ShardDelta, ShardState
from streaming.state.holdings import holdings

__all__ = ["complete", "holdings"]


def complete(state: ShardState) -> None:
    """Take the changes that several micro-batches carry out as carried out."""
    if state.backfills:
        state.apply(ShardDelta(backfills=dict.fromkeys(state.backfills)))
