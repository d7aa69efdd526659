"""Parsers of input records: from JSON bytes to a valid event, or to the reason for a dead letter."""

from collections.abc import Callable, Mapping

from streaming.events.clock_records import parse_clock
from streaming.events.group_events import parse_group_event
from streaming.events.model import SingleEvent, Stream
from streaming.events.subscription_requests import parse_subscription
from streaming.events.topic_events import parse_lmq_name, parse_plain_topic_events, parse_topic_event

__all__ = [
    "PARSERS",
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
