"""Two indexes: the patterns that match a topic, and the topics that a pattern matches."""

from matcher.index.patterns import PatternIndex
from matcher.index.topics import TopicIndex

__all__ = ["PatternIndex", "TopicIndex"]
