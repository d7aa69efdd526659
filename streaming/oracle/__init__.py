"""The relation by its definition: slow, obvious, and independent of `streaming.expansion.expansion`."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TypeVar

from streaming.errors import Rejected
from streaming.oracle.definition import Effective, Oracle, Placed
from streaming.records.model import GroupEvent, Place, SubscriptionRequest, TopicEvent
from streaming.records.parsing import parse_group_event, parse_subscription, parse_topic_event

__all__ = ["Effective", "Oracle", "relation", "replay"]

E = TypeVar("E")


def relation(
    topics: Iterable[TopicEvent],
    requests: Iterable[SubscriptionRequest],
    groups: Iterable[GroupEvent],
    *,
    allow_inner_multi: bool = False,
) -> set[Effective]:
    """Return the relation after all of these events, each stream in its own order.

    The events form one micro-batch without a clock. No topic exists before the last request, so a quota only caps and
    never refuses a request. Use `Oracle` if quotas or time matter.
    """
    oracle = Oracle(inner_multi=allow_inner_multi)
    oracle.batch(_placed(topics), _placed(requests), _placed(groups))
    return oracle.relation()


def replay(
    topics: Iterable[bytes | None], requests: Iterable[bytes | None], groups: Iterable[bytes | None]
) -> set[Effective]:
    """Return the relation after raw entries; invalid entries are left out."""
    return relation(
        _valid(parse_topic_event, topics), _valid(parse_subscription, requests), _valid(parse_group_event, groups)
    )


def _placed(events: Iterable[E]) -> Placed[E]:
    """Give each event the place of its turn."""
    return ((Place(0, offset, 0), event) for offset, event in enumerate(events))


def _valid(parse: Callable[[bytes | None], E], payloads: Iterable[bytes | None]) -> Iterator[E]:
    """Yield the valid entries, parsed."""
    for payload in payloads:
        with suppress(Rejected):
            yield parse(payload)
