"""Entry sets of clients, and the effect of one request on them under one mode."""

from collections.abc import Mapping
from typing import NamedTuple

import matcher
from matcher.dialects.mqtt import SharedSubscription, shared
from streaming.records.model import Action, Notation, SelectorSpec, SubscriptionRequest, check_name

Client = tuple[str, str]
"""A group and a client id."""


class Entry(NamedTuple):
    """One entry of a client's set: a pattern with its notation, or a plain name without one."""

    text: str
    notation: Notation | None = None

    @property
    def pattern(self) -> str:
        """Text to match topics against; the filter alone in `$share/NAME/FILTER`."""
        share = self._share()
        return self.text if share is None else share.filter

    @property
    def part(self) -> str:
        """Part of the rows given by this entry."""
        share = self._share()
        if share is not None:
            return f"share:{share.group}/{share.filter}"
        if self.notation is not None and self.notation.per_subscription:
            return f"{self.notation.dialect}:{self.notation.policy or ''}:{self.text}"
        return ""

    def is_valid(self, *, inner_multi: bool) -> bool:
        """Return True if the entry may join a set."""
        if check_name("entry", self.text) is not None:
            return False
        if self.notation is None:
            return True
        dialect, policy, _ = self.notation
        inner_multi = inner_multi and dialect == "lite"
        return matcher.is_valid(self.text, dialect, policy=policy, allow_inner_multi=inner_multi)

    def matches(self, topic: str, *, inner_multi: bool) -> bool:
        """Return True if the entry asks for a topic."""
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
"""Entry in place of an empty set in a wildcard group; no entry of a request is blank."""


class EntrySet(NamedTuple):
    """Subscription of one client on one parent: its entries, each with the number of the request that brought it."""

    live: bool = False
    orders: Mapping[Entry, int] = {}
    version: int | None = None


class SubscriptionSets(NamedTuple):
    """Entry sets of all clients of a shard, and the selectors of their groups, under one mode."""

    sets: Mapping[Client, EntrySet] = {}
    selectors: Mapping[str, SelectorSpec] = {}

    def orders(self, client: Client) -> Mapping[Entry, int]:
        """Return the entries of a client with their orders; a client out of session has none."""
        return self.sets.get(client, EntrySet()).orders

    def is_stale(self, request: SubscriptionRequest) -> bool:
        """Return True if a client has sent a newer version than the request has."""
        newest = self.sets.get((request.group, request.client_id), EntrySet()).version
        return request.version is not None and newest is not None and request.version < newest

    def without(self, client: Client) -> "SubscriptionSets":
        """Return the sets of the other clients."""
        return self._replace(sets={each: found for each, found in self.sets.items() if each != client})

    def after(
        self, request: SubscriptionRequest, number: int, *, wildcard: bool, inner_multi: bool
    ) -> "SubscriptionSets":
        """Return the sets after a request; these same sets if the request is stale or has no valid entry."""
        client = request.group, request.client_id
        former = self.sets.get(client, EntrySet())
        if self.is_stale(request):
            return self
        entries = {Entry(text, request.notation if wildcard else None) for text in request.entries}
        valid = {entry for entry in entries if entry.is_valid(inner_multi=inner_multi)}
        ends = request.action is Action.COMPLETE_REMOVE
        if entries and not valid and not ends:
            return self

        live, orders = _apply_action(former, request.action, valid, number, wildcard=wildcard)
        version = former.version if request.version is None else request.version
        selectors = self.selectors
        if request.selector is not None and not ends:
            selectors = {**selectors, request.group: request.selector}
        return SubscriptionSets({**self.sets, client: EntrySet(live, orders, version)}, selectors)


def _apply_action(
    former: EntrySet, action: Action, valid: set[Entry], number: int, *, wildcard: bool
) -> tuple[bool, Mapping[Entry, int]]:
    """Return the session state of a client after a request, and its entries."""
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
