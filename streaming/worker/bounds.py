"""Bounds of input records. Records that exceed them become dead letters."""

from collections.abc import Sequence
from typing import NamedTuple

import orjson

from streaming.config import Settings
from streaming.errors import Rejected
from streaming.kafka.options import java_options
from streaming.records.json_fields import json_object
from streaming.records.model import (
    MAX_AHEAD_MS,
    GroupEvent,
    Reason,
    SingleEvent,
    Stream,
    SubscriptionRequest,
    Tick,
    TopicEvent,
    Wake,
)

_JSON_BYTES = 6
"""Maximum number of bytes of a character in JSON."""


REPETITION_BYTES = 48_576
"""Size in bytes of a record of the job without the request that it repeats: key, names and signature."""

DEFAULT_REQUEST_BYTES = 1_048_576 - REPETITION_BYTES
"""Maximum size in bytes of a request with Kafka's default `max.request.size`."""


class Bounds(NamedTuple):
    """Bounds of one job.

    Attributes:
        name_bytes: of a name or pattern, in bytes of JSON.
        ahead_ms: time in milliseconds by which a tick or wake may be ahead of its record's timestamp.
        request_bytes: of one request, because the job may have to repeat it in its own record.
    """

    value_bytes: int
    requests: int
    entries: int
    name_bytes: int
    ahead_ms: int
    request_bytes: int = DEFAULT_REQUEST_BYTES

    def check_size(self, stream: Stream, size: int) -> None:
        """Check the size of a value of others before parsing; raise `Rejected`."""
        if size > self.value_bytes:
            message = f"the value has {size:,} bytes; at most {self.value_bytes:,} are allowed (max_value_bytes)"
            raise Rejected(Reason.VALUE_TOO_LARGE, message)
        if size > self.request_bytes and stream is Stream.SUBSCRIPTIONS:
            raise Rejected(
                Reason.VALUE_TOO_LARGE,
                f"the request has {size:,} bytes; at most {self.request_bytes:,} are allowed, so that the job can "
                "repeat it in its own record. Send it in several requests, with PARTIAL_ADD",
            )

    def check(self, event: SingleEvent, timestamp: int) -> None:
        """Check an event against its record's time in ms; raise `Rejected`."""
        if isinstance(event, TopicEvent):  # the most frequent event
            if max(len(event.parent), len(event.lite_topic)) * _JSON_BYTES > self.name_bytes:
                self._check_names(parentTopic=event.parent, liteTopic=event.lite_topic)
        elif isinstance(event, Tick | Wake):
            self._check_time(event.time - timestamp)
        elif isinstance(event, GroupEvent):
            self._check_names(group=event.group, parent=event.parent or "")
        elif isinstance(event, SubscriptionRequest):
            self._check_names(clientId=event.client_id, group=event.group, topic=event.parent)
            if len(event.entries) > self.entries:
                raise Rejected(
                    Reason.OUT_OF_RANGE,
                    f"liteTopicSet has {len(event.entries):,} entries; at most {self.entries:,} are allowed "
                    "(max_entries). Send them in several requests, with PARTIAL_ADD",
                )
            if event.entries and not self.allow(event.entries):
                raise Rejected(
                    Reason.NAME_TOO_LONG,
                    f"an entry of liteTopicSet is longer than {self.name_bytes:,} bytes (max_name_bytes)",
                )

    def allow(self, names: Sequence[str]) -> bool:
        """Return True if all of some names or patterns, at least one, are short enough."""
        return len(max(names, key=len)) * _JSON_BYTES <= self.name_bytes or not any(map(self._is_too_long, names))

    def explain_set(self, payload: bytes | None) -> Rejected | None:
        """Return why to reject a record for its requests, or None; raise `Rejected`."""
        requests = json_object(payload).get("subscriptionSet")
        if not (isinstance(requests, list) and len(requests) > self.requests):
            return None
        return Rejected(
            Reason.OUT_OF_RANGE,
            f"subscriptionSet has {len(requests):,} requests; at most {self.requests:,} are allowed (max_requests). "
            "Send them in several records",
        )

    def _check_time(self, ahead_ms: int) -> None:
        """Reject a time later than its record's timestamp, because all leases and TTLs up to that time would expire.

        An alarm is always for later, and ends nothing.
        """
        if ahead_ms > self.ahead_ms:
            raise Rejected(
                Reason.AHEAD_OF_TIME,
                f"the time is {ahead_ms:,} ms later than its record's timestamp; at most {self.ahead_ms:,} ms are "
                "accepted. Synchronize the clocks of brokers and driver, and let no other program write to this topic",
            )

    def _check_names(self, **names: str) -> None:
        for field, name in names.items():
            if self._is_too_long(name):
                raise Rejected(
                    Reason.NAME_TOO_LONG, f"{field} is longer than {self.name_bytes:,} bytes (max_name_bytes)"
                )

    def _is_too_long(self, name: str) -> bool:
        return len(name) * _JSON_BYTES > self.name_bytes and len(orjson.dumps(name)) - 2 > self.name_bytes


def bounds_of(settings: Settings) -> Bounds:
    """Return the bounds on the content of records."""
    record_bytes = java_options(settings).get("max.request.size")
    return Bounds(
        settings.max_value_bytes,
        settings.max_requests,
        settings.max_entries,
        settings.max_name_bytes,
        MAX_AHEAD_MS,
        DEFAULT_REQUEST_BYTES if record_bytes is None else int(record_bytes) - REPETITION_BYTES,
    )
