"""What clients ask for: their entries, and how one request changes them in one reading."""

from collections.abc import Mapping
from typing import NamedTuple

import matcher
from matcher.dialects.mqtt import SharedSubscription, shared
from streaming.events.model import Action, Notation, SelectorSpec, SubscriptionRequest, check_name

Client = tuple[str, str]
"""A group and a client id."""


class Entry(NamedTuple):
    """One entry of a client's set: a pattern in its notation, or a plain name, which has none."""

    text: str
    notation: Notation | None = None

    @property
    def pattern(self) -> str:
        """What topics are held against: of `$share/NAME/FILTER` the filter."""
        share = self._share()
        return self.text if share is None else share.filter

    @property
    def part(self) -> str:
        """The part of the rows that this entry gives."""
        share = self._share()
        if share is not None:
            return f"share:{share.group}"
        if self.notation is not None and self.notation.per_subscription:
            return f"{self.notation.dialect}:{self.notation.policy or ''}:{self.text}"
        return ""

    def is_valid(self, *, inner_multi: bool) -> bool:
        """Whether it may enter a set."""
        if check_name("entry", self.text) is not None:
            return False
        if self.notation is None:
            return True
        dialect, policy, _ = self.notation
        inner_multi = inner_multi and dialect == "lite"
        return matcher.is_valid(self.pattern, dialect, policy=policy, allow_inner_multi=inner_multi)

    def matches(self, topic: str, *, inner_multi: bool) -> bool:
        """Whether the topic is one that it asks for."""
        if self == EVERYTHING:
            return True
        if self.notation is None:
            return topic == self.text
        dialect, policy, _ = self.notation
        inner_multi = inner_multi and dialect == "lite"
        return matcher.matches(self.pattern, topic, dialect, policy=policy, allow_inner_multi=inner_multi)

    def _share(self) -> SharedSubscription | None:
        return shared(self.text) if self.notation is not None and self.notation.dialect == "mqtt" else None


EVERYTHING = Entry("")
"""What the empty set of a wildcard group asks for; no entry of a request is blank."""


class Set(NamedTuple):
    """What one client asks for on one parent: its entries, each with the number of the request that brought it."""

    live: bool = False
    orders: Mapping[Entry, int] = {}
    version: int | None = None


class View(NamedTuple):
    """What all clients of a shard ask for, and the selectors of their groups, in one reading of the requests."""

    sets: Mapping[Client, Set] = {}
    selections: Mapping[str, SelectorSpec] = {}

    def orders(self, client: Client) -> Mapping[Entry, int]:
        """The entries of a client; none of one that is not in session."""
        return self.sets.get(client, Set()).orders

    def after(self, request: SubscriptionRequest, number: int, *, wildcard: bool, inner_multi: bool) -> "View":
        """The view after a request; this view itself where the request is stale or nothing in it is valid."""
        client = request.group, request.client_id
        former = self.sets.get(client, Set())
        if request.version is not None and former.version is not None and request.version < former.version:
            return self
        named = {Entry(text, request.notation if wildcard else None) for text in request.entries}
        valid = {entry for entry in named if entry.is_valid(inner_multi=inner_multi)}
        ends = request.action is Action.COMPLETE_REMOVE
        if named and not valid and not ends:
            return self

        live, orders = _changed(former, request.action, valid, number, wildcard=wildcard)
        version = former.version if request.version is None else request.version
        selections = self.selections
        if request.selector is not None and not ends:
            selections = {**selections, request.group: request.selector}
        return View({**self.sets, client: Set(live, orders, version)}, selections)


def _changed(
    former: Set, action: Action, valid: set[Entry], number: int, *, wildcard: bool
) -> tuple[bool, Mapping[Entry, int]]:
    """Whether the client is in session after a request, and its entries."""
    if action is Action.COMPLETE_REMOVE:
        return False, {}
    if action is Action.PARTIAL_REMOVE:
        return former.live, {entry: order for entry, order in former.orders.items() if entry not in valid}
    if not valid and wildcard and (action is Action.COMPLETE_ADD or not former.live):
        valid = {EVERYTHING}
    if action is Action.COMPLETE_ADD:
        return True, {entry: former.orders.get(entry, number) for entry in valid}
    if not valid:
        return True, former.orders
    kept = {entry: order for entry, order in former.orders.items() if entry != EVERYTHING}
    return True, {**kept, **dict.fromkeys(valid, number)}
