"""Indexes in both directions: patterns by topic, and topics by pattern."""

from matcher.index.patterns import PatternIndex
from matcher.index.topics import TopicIndex

__all__ = ["PatternIndex", "TopicIndex"]
