"""The relation by its definition, from whole histories: slow, obvious, and independent of `streaming.expansion`.

Topic events, subscription requests and group events are replayed one by one in the order of their streams, under the
attributes that are in force at the end; then each pattern of each client is tried on each topic.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple, TypeVar

import matcher
from streaming.errors import Rejected
from streaming.events import (
    WILDCARD,
    Action,
    GroupEvent,
    SubscriptionRequest,
    TopicEvent,
    check_name,
    parse_group_event,
    parse_subscription,
    parse_topic_event,
)

E = TypeVar("E")


class Effective(NamedTuple):
    """One element of the relation: the client of a group receives the lite topic of a parent."""

    parent: str
    group: str
    client_id: str
    lite_topic: str
    part: str = ""


class _Set:
    """One client's subscription on one parent."""

    def __init__(self) -> None:
        self.live = False
        self.everything = False
        self.entries: set[str] = set()
        self.version: int | None = None


def relation(
    topics: Iterable[TopicEvent],
    requests: Iterable[SubscriptionRequest],
    groups: Iterable[GroupEvent],
    *,
    allow_inner_multi: bool = False,
) -> set[Effective]:
    """Who receives which topic once all of these events are read; each stream is in its own order."""
    existing: dict[str, set[str]] = defaultdict(set)
    for event in topics:
        (existing[event.parent].add if event.created else existing[event.parent].discard)(event.lite_topic)

    wildcard = _wildcard_groups(groups)
    sets: dict[tuple[str, str, str], _Set] = defaultdict(_Set)
    for request in requests:
        patterns = (request.parent, request.group) in wildcard
        _apply(sets[request.parent, request.group, request.client_id], request, patterns, allow_inner_multi)

    found: set[Effective] = set()
    for (parent, group, client_id), subscribed in sets.items():
        if not subscribed.live:
            continue
        for topic in existing[parent]:
            if subscribed.everything:
                receives = True
            elif (parent, group) in wildcard:
                receives = any(
                    matcher.matches(entry, topic, allow_inner_multi=allow_inner_multi) for entry in subscribed.entries
                )
            else:
                receives = topic in subscribed.entries
            if receives:
                found.add(Effective(parent, group, client_id, topic))
    return found


def replay(
    topics: Iterable[bytes | None], requests: Iterable[bytes | None], groups: Iterable[bytes | None]
) -> set[Effective]:
    """`relation` of raw entries; those that are not valid are left out."""
    return relation(
        _valid(parse_topic_event, topics), _valid(parse_subscription, requests), _valid(parse_group_event, groups)
    )


def _valid(parse: Callable[[bytes | None], E], payloads: Iterable[bytes | None]) -> Iterator[E]:
    for payload in payloads:
        with suppress(Rejected):
            yield parse(payload)


def _wildcard_groups(groups: Iterable[GroupEvent]) -> set[tuple[str, str]]:
    """The (parent, group) pairs whose entries are patterns: a group is bound to one parent, the last one named."""
    bound: dict[str, GroupEvent] = {}
    for event in groups:
        if event.superseded_by is None:
            bound[event.group] = event
    return {
        (event.parent, name)
        for name, event in bound.items()
        if event.parent is not None and WILDCARD in event.attributes
    }


def _apply(subscribed: _Set, request: SubscriptionRequest, patterns: bool, allow_inner_multi: bool) -> None:  # noqa: FBT001 - private
    if None not in (request.version, subscribed.version) and request.version < subscribed.version:  # type: ignore[operator]
        return
    valid = {
        entry
        for entry in request.entries
        if check_name("entry", entry) is None
        and (not patterns or matcher.is_valid(entry, allow_inner_multi=allow_inner_multi))
    }
    refused = bool(request.entries) and not valid
    if refused and request.action is not Action.COMPLETE_REMOVE:
        return
    if request.version is not None:
        subscribed.version = request.version
    if request.action is Action.COMPLETE_REMOVE:
        subscribed.live, subscribed.everything, subscribed.entries = False, False, set()
    elif request.action is Action.PARTIAL_REMOVE:
        subscribed.entries -= valid
    elif request.action is Action.COMPLETE_ADD or not subscribed.live:
        subscribed.live, subscribed.everything, subscribed.entries = True, patterns and not valid, valid
    elif valid:
        subscribed.everything = False
        subscribed.entries |= valid
