"""Which shard of a parent a topic lives in, and which shards a pattern can touch.

The shard of a topic is the CRC-32 of its first `route_depth` segments, modulo the parent's number of shards; depth 0
hashes the whole name. `streaming.spark.job` computes the same in the JVM. A subscription request reaches every shard
of its parent, because its version and its replacement of the former set concern them all; each keeps only what can
touch it.
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
    """How topics are spread; part of a checkpoint's identity.

    Attributes:
        shards: number of shards of the parents that have more than one.
        depth: how many leading segments decide; 0 is all of them.
    """

    shards: Mapping[str, int] = field(default_factory=dict)
    depth: int = 1

    def shard_count(self, parent: str) -> int:
        """The number of shards of a parent."""
        return self.shards.get(parent, 1)

    def shard_of(self, parent: str, lite_topic: str) -> int:
        """The one shard in which a topic lives."""
        count = self.shard_count(parent)
        return 0 if count == 1 else self.number_of(lite_topic) % count

    def number_of(self, lite_topic: str) -> int:
        """The number, from 0 to 2^32 - 1, whose remainder by the number of shards is a topic's shard."""
        return zlib.crc32(self.prefix_of(lite_topic).encode())

    def prefix_of(self, lite_topic: str) -> str:
        """What of a topic's name decides its shard."""
        return SEPARATOR.join(self._routed_segments(lite_topic))

    def may_touch(self, parent: str, entry: str, shard: int, notation: Notation = LITE) -> bool:
        """Whether an entry, read as a name or as a pattern, can concern a topic of that shard."""
        return (
            self.shard_count(parent) == 1
            or self.shard_of(parent, entry) == shard
            or self.may_touch_all(entry, notation)
        )

    def may_touch_all(self, entry: str, notation: Notation = LITE) -> bool:
        """Whether that holds for every shard, and not only for the one in which a topic of the same name lives."""
        if notation.dialect == LITE.dialect:
            return not _WILDCARDS.isdisjoint(self._routed_segments(entry))
        return not _is_literal(entry, notation.dialect, notation.policy)

    def _routed_segments(self, text: str) -> list[str]:
        segments = text.split(SEPARATOR)
        return segments[: self.depth] if self.depth else segments


def _is_literal(entry: str, dialect: str, policy: str | None) -> bool:
    """Whether a pattern of a dialect that has other separators than routing matches one topic only: itself."""
    try:
        return get_dialect(dialect).parse(entry, policy=policy).literal == entry
    except InvalidPattern:
        return False
