"""The relation by its definition: slow, obvious, and independent of `streaming.expansion.expansion`."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TypeVar

from streaming.errors import Rejected
from streaming.events.model import GroupEvent, Place, SubscriptionRequest, TopicEvent
from streaming.events.parsing import parse_group_event, parse_subscription, parse_topic_event
from streaming.oracle.definition import Effective, Oracle, Placed

__all__ = ["Effective", "Oracle", "relation", "replay"]

E = TypeVar("E")


def relation(
    topics: Iterable[TopicEvent],
    requests: Iterable[SubscriptionRequest],
    groups: Iterable[GroupEvent],
    *,
    allow_inner_multi: bool = False,
) -> set[Effective]:
    """Who receives which topic once all of these events are read, each stream in its own order.

    They are one micro-batch without a clock, in which no topic exists before the last request: no quota refuses any,
    it only caps. Use `Oracle` where that matters.
    """
    oracle = Oracle(inner_multi=allow_inner_multi)
    oracle.batch(_placed(topics), _placed(requests), _placed(groups))
    return oracle.relation()


def replay(
    topics: Iterable[bytes | None], requests: Iterable[bytes | None], groups: Iterable[bytes | None]
) -> set[Effective]:
    """`relation` of raw entries; those that are not valid are left out."""
    return relation(
        _valid(parse_topic_event, topics), _valid(parse_subscription, requests), _valid(parse_group_event, groups)
    )


def _placed(events: Iterable[E]) -> Placed[E]:
    return ((Place(0, offset, 0), event) for offset, event in enumerate(events))


def _valid(parse: Callable[[bytes | None], E], payloads: Iterable[bytes | None]) -> Iterator[E]:
    for payload in payloads:
        with suppress(Rejected):
            yield parse(payload)
