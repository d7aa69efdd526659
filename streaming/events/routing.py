"""Routing of topics and subscription entries to the shards of a parent.

The shard of a topic is the CRC-32 of its first `route_depth` segments, modulo the parent's number of shards; depth 0
hashes the whole name. `streaming.spark.job` computes the same in the JVM. A subscription request reaches every shard
of its parent, because its version, and its replacement of the former set, concern them all. Each shard keeps only the
entries that can match a topic of its own.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from matcher import InvalidPattern
from matcher.dialects import get_dialect
from streaming.events.model import LITE, Notation

SEPARATOR = "__"
_WILDCARDS = frozenset({"*", "**"})


@dataclass(frozen=True, slots=True)
class Routing:
    """Distribution of topics over shards; part of a checkpoint's identity.

    Attributes:
        shards: number of shards by parent; others have one.
        depth: number of leading segments that decide; 0 for all of them.
    """

    shards: Mapping[str, int] = field(default_factory=dict)
    depth: int = 1

    def shard_count(self, parent: str) -> int:
        """Return the number of shards of a parent."""
        return self.shards.get(parent, 1)

    def shard_of(self, parent: str, lite_topic: str) -> int:
        """Return the number of the shard to which a topic belongs."""
        count = self.shard_count(parent)
        return 0 if count == 1 else self.number_of(lite_topic) % count

    def number_of(self, lite_topic: str) -> int:
        """Return the hash of a topic, from 0 to 2^32 - 1; its remainder by the number of shards is the shard."""
        return zlib.crc32(self.prefix_of(lite_topic).encode())

    def prefix_of(self, lite_topic: str) -> str:
        """Return the part of a topic's name that decides its shard."""
        return SEPARATOR.join(self._routed_segments(lite_topic))

    def may_touch(self, parent: str, entry: str, shard: int, notation: Notation = LITE) -> bool:
        """Return True if an entry, taken as a name or as a pattern, can match a topic of a shard."""
        return (
            self.shard_count(parent) == 1
            or self.shard_of(parent, entry) == shard
            or self.may_touch_all(entry, notation)
        )

    def may_touch_all(self, entry: str, notation: Notation = LITE) -> bool:
        """Return True if an entry can match topics of every shard, and not only a topic of its own name."""
        if notation.dialect == LITE.dialect:
            return not _WILDCARDS.isdisjoint(self._routed_segments(entry))
        return not _is_literal(entry, notation.dialect, notation.policy)

    def _routed_segments(self, text: str) -> list[str]:
        segments = text.split(SEPARATOR)
        return segments[: self.depth] if self.depth else segments


def _is_literal(entry: str, dialect: str, policy: str | None) -> bool:
    """Return True if a pattern matches one topic only, itself. Separators of dialects differ from that of routing."""
    try:
        return get_dialect(dialect).parse(entry, policy=policy).literal == entry
    except InvalidPattern:
        return False
