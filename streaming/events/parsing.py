"""Parsers of input records: from JSON bytes to a valid event, or to the reason for a dead letter."""

from collections.abc import Callable, Mapping
from typing import Any

from streaming.events.clock_records import parse_clock, read_clock
from streaming.events.group_events import parse_group_event, read_group_event
from streaming.events.model import SingleEvent, Stream
from streaming.events.subscription_requests import parse_subscription, read_subscription
from streaming.events.topic_events import (
    parse_lmq_name,
    parse_plain_topic_events,
    parse_topic_event,
    read_topic_event,
)

__all__ = [
    "PARSERS",
    "READERS",
    "parse_clock",
    "parse_group_event",
    "parse_lmq_name",
    "parse_plain_topic_events",
    "parse_subscription",
    "parse_topic_event",
]

PARSERS: Mapping[Stream, Callable[[bytes | None], SingleEvent]] = {
    Stream.GROUPS: parse_group_event,
    Stream.SUBSCRIPTIONS: parse_subscription,
    Stream.TOPICS: parse_topic_event,
    Stream.CLOCK: parse_clock,
}
"""Parser of each input stream; all raise `Rejected`."""

READERS: Mapping[Stream, Callable[[dict[str, Any]], SingleEvent]] = {
    Stream.GROUPS: read_group_event,
    Stream.SUBSCRIPTIONS: read_subscription,
    Stream.TOPICS: read_topic_event,
    Stream.CLOCK: read_clock,
}
"""Reader of the fields of each input stream's records; all raise `Rejected`."""
