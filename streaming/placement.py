"""Which parent each group is bound to, so that an event that names no parent reaches the right one.

Empty attributes delete a group's attributes but no longer say on which parent; and a group that moves must be told to
the parent it leaves. Both are answered by an ordinary event, written back to the group stream, that names the parent.
"""

import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson

from streaming import codec
from streaming.events import GroupEvent, Source
from streaming.records import Record
from streaming.subscription import Ignored

HOME = ""
"""The parent under which placements are kept; no topic has a blank parent."""

BUCKETS = 16
"""Over how many keys the groups are spread."""

UNREADABLE = -1
"""The number of the key that gets what the JVM cannot place."""


class Placement(NamedTuple):
    """The changes of one bucket and the events to write back."""

    parents: dict[str, str]
    events: list[Record]
    ignored: Counter[Ignored]


@dataclass(slots=True)
class Bucket:
    """The parents of some groups."""

    parents: dict[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.parents)


def place(bucket: Bucket, events: Iterable[tuple[Source, GroupEvent]]) -> Placement:
    """Follows the groups of one bucket through a micro-batch.

    Returns:
        The bucket's new content, and an event for each parent that a group left.
    """
    parents = dict(bucket.parents)
    written: list[Record] = []
    ignored: Counter[Ignored] = Counter()
    for source, event in events:
        if event.superseded_by is not None:
            continue  # the echo of what this function wrote
        former = parents.get(event.group)
        if event.attributes and event.parent is not None:
            parents[event.group] = event.parent
        elif former is not None and event.parent in (None, former):
            del parents[event.group]
        elif event.parent is None:
            ignored[Ignored.GROUP_UNKNOWN] += 1
        if former not in (None, event.parent, parents.get(event.group)):
            written.append(_leave(event.group, former, source))
    return Placement(parents, written, ignored)


def bucket_of(group: str) -> int:
    """The bucket that keeps a group's parent; `streaming.job` computes the same in the JVM."""
    return zlib.crc32(group.encode()) % BUCKETS


def encode(bucket: Bucket) -> bytes:
    """The bucket as bytes."""
    return codec.begin(bucket.parents)


def decode(data: bytes) -> Bucket:
    """The bucket from bytes.

    Raises:
        StateError: the bytes cannot be read.
    """
    (parents,) = codec.read(data)
    return Bucket(parents)


def _leave(group: str, parent: str, source: Source) -> Record:
    event = {
        "group": group,
        "attributes": {},
        "parentTopic": parent,
        "supersededBy": [source.partition, source.offset, source.timestamp],
    }
    return Record(group.encode(), orjson.dumps(event))
