"""Keys of the coordinator: one for each bucket of groups, clients and alarms."""

import zlib

COORDINATOR = ""
"""Parent topic in the keys of the coordinator; no topic has a blank name."""

BUCKETS = 16
"""Number of keys over which groups, clients and alarms are spread."""

UNROUTABLE = -1
"""Number of the key for records that the JVM cannot route."""

OVERSIZE = -2
"""Number of the key for records whose value is too large.

The payload of such a row is the size of the value in bytes, a line feed, and the beginning of the value.
"""


def bucket_of(name: str) -> int:
    """Return the bucket of a group and its clients, or of a parent's alarms, as `streaming.spark.job` computes it."""
    return zlib.crc32(name.encode()) % BUCKETS
