"""A record for Kafka."""

from typing import NamedTuple


class KafkaRecord(NamedTuple):
    """Key and value for Kafka; a value of None makes compaction delete the key."""

    key: bytes
    value: bytes | None
