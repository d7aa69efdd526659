"""Indexes for whole batches, in flat numpy arrays; numpy must be installed."""

from matcher.batch.patterns import FlatPatterns
from matcher.batch.topics import FlatTopics

__all__ = ["FlatPatterns", "FlatTopics"]
