"""Note of a checkpoint: the limits of input records that its job applies, and those that it applied before."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import orjson

from streaming.kafka.facts import offsets_of
from streaming.worker.bounds import Bounds

LIMITS: Final = "limits.json"
"""File of a checkpoint with the limits, the latest ones last."""


class Limits(NamedTuple):
    """Settings that decide whether an input record is applied or becomes a dead letter.

    Attributes:
        cap_requests: no request is refused because of a quota.
        since: first offset by Kafka topic and partition to which they apply; 0 for a partition that is not in it.
    """

    bounds: Bounds
    cap_requests: bool
    since: Mapping[str, Mapping[int, int]] = {}

    def apply_to(self, topic: str, partition: int, offset: int) -> bool:
        """Return True if the record was read under these limits or later ones."""
        return offset >= self.since.get(topic, {}).get(partition, 0)


def parse(content: bytes) -> tuple[Limits, ...]:
    """Return the limits in a note, latest ones last; raise `ValueError`."""
    try:
        return tuple(
            Limits(
                Bounds(**{name: int(value) for name, value in each["bounds"].items() if name in Bounds._fields}),
                bool(each["cap_requests"]),
                offsets_of(each["since"]),
            )
            for each in orjson.loads(content)
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"it lacks a field, or a field has another type ({error})") from None


def dump(limits: Iterable[Limits]) -> bytes:
    """Return the content of a note."""
    return orjson.dumps(
        [{"bounds": each.bounds._asdict(), "cap_requests": each.cap_requests, "since": each.since} for each in limits],
        option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS,
    )
