"""The rules: how a micro-batch of events changes the subscribers of the topics of one shard."""

from streaming.expansion.expansion import Expansion, Updates, expand
from streaming.expansion.micro_batch import MicroBatch, apply_events

__all__ = ["Expansion", "MicroBatch", "Updates", "apply_events", "expand"]
