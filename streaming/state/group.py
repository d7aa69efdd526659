"""Groups and clients of a shard at one moment, the policies of groups, and the place and settings of the shard."""

from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass, field
from sys import getsizeof
from typing import Generic, NamedTuple, Protocol, TypeVar

from matcher import InvalidPattern, get_dialect, validate
from matcher.cache import BoundedCache
from streaming.records.model import (
    DEFAULT_QUOTA,
    MODEL,
    QUOTA,
    RESET_EXCLUSIVE,
    RESET_UNSUBSCRIBE,
    WILDCARD,
    Notation,
    Place,
    SelectorSpec,
    check_name,
)
from streaming.records.routing import Routing
from streaming.records.subscribers import ClientKey
from streaming.records.updates import Cause
from streaming.state.client import NOTHING, Client, Interest, Mode, RequestRules, literal_problem
from streaming.state.client_table import SettledClients, version_of
from streaming.state.interests import pattern_of
from streaming.state.policy import GroupPolicy

K = TypeVar("K")
V = TypeVar("V")
K_contra = TypeVar("K_contra", contravariant=True)
V_co = TypeVar("V_co", covariant=True)

_PATTERN_CACHE_BYTES = 32 * 1024 * 1024
"""Memory of the patterns whose validity a process caches."""

MAX_UNSETTLED = 16
"""Maximum number of requests of a group whose selectors can still be taken back; older selectors stay."""


class Selection(NamedTuple):
    """A request that set the selector of its group.

    Attributes:
        partition, position: place of the request.
        selector: of the request.
        modes: in which it counts.
    """

    partition: int
    position: int
    selector: SelectorSpec
    modes: tuple[Mode, ...]


class GroupSelectors(NamedTuple):
    """Selectors of a group under both modes, because a request may be valid in one mode only.

    The end of a client on all parents comes late, and its version can make a request stale that was already applied. So
    the selectors of requests with versions are kept apart for a while. If the client's versions were forgotten, a
    formerly stale request counts.

    Attributes:
        literal, wildcard: settled selectors.
        unsettled: the latest requests with another selector, oldest first; or the last request that repeats the
            settled ones, if it can become stale.
        settled_at: position of the last request that is settled; -1 if none is known.
    """

    literal: SelectorSpec | None = None
    wildcard: SelectorSpec | None = None
    unsettled: tuple[Selection, ...] = ()
    settled_at: int = -1

    def in_mode(self, mode: Mode) -> SelectorSpec | None:
        """Return the selector in force in a group of that mode."""
        for selection in reversed(self.unsettled):
            if mode in selection.modes:
                return selection.selector
        return self.wildcard if mode is Mode.WILDCARD else self.literal

    @property
    def in_force(self) -> tuple[SelectorSpec | None, ...]:
        """The selector in force under each mode."""
        return tuple(map(self.in_mode, Mode))

    def after(self, selection: Selection, *, can_be_stale: bool) -> "GroupSelectors":
        """Return the selectors after a request that sets one.

        Args:
            selection: the request.
            can_be_stale: it has a version, so an end that comes later can make it stale.
        """
        is_final = not can_be_stale and len(selection.modes) == len(Mode)
        if self.is_settled and self.has_settled(selection):  # nearly always: clients repeat their requests
            if is_final:
                return self._replace(unsettled=(), settled_at=max(self.settled_at, selection.position))
            return self._replace(unsettled=(selection,))
        return _settled(self._replace(unsettled=(*self.unsettled, selection)), 0 if is_final else MAX_UNSETTLED)

    def with_earlier(self, selection: Selection) -> "GroupSelectors":
        """Return the selectors with a request that counts after all, although later ones were read before."""
        if selection.position <= self.settled_at:
            return self
        known = {each[:2]: each for each in (*self.unsettled, selection)}
        if len(known) == len(self.unsettled):  # it counted under one mode
            modes = next(each.modes for each in self.unsettled if each[:2] == selection[:2])
            known[selection[:2]] = selection._replace(modes=tuple(dict.fromkeys((*modes, *selection.modes))))
        ordered = sorted(known.values(), key=lambda each: each.position)
        return _settled(self._replace(unsettled=tuple(ordered)), MAX_UNSETTLED)

    @property
    def is_settled(self) -> bool:
        """True if the unsettled requests only repeat what is settled."""
        return all(map(self.has_settled, self.unsettled))

    def has_settled(self, selection: Selection) -> bool:
        """Return True if a request sets what is settled under its modes."""
        settled = {Mode.LITERAL: self.literal, Mode.WILDCARD: self.wildcard}
        return all(settled[mode] == selection.selector for mode in selection.modes)

    def without(self, place: Place, modes: Collection[Mode]) -> "GroupSelectors":
        """Return the selectors as if the request at a place had set none under these modes."""
        at = place.partition, place.position
        left = (
            each if each[:2] != at else each._replace(modes=tuple(other for other in each.modes if other not in modes))
            for each in self.unsettled
        )
        return self._replace(unsettled=tuple(each for each in left if each.modes))


NO_SELECTORS = GroupSelectors()


def _settled(selectors: GroupSelectors, keeps: int) -> GroupSelectors:
    """Settle the oldest requests, until few are left and the oldest of them sets another selector."""
    while selectors.unsettled:
        oldest, *rest = selectors.unsettled
        settled = selectors._replace(unsettled=())
        if len(selectors.unsettled) <= keeps and not settled.has_settled(oldest):
            break
        selectors = settled._replace(
            **dict.fromkeys(oldest.modes, oldest.selector), unsettled=tuple(rest), settled_at=oldest.position
        )
    return selectors


class Group(NamedTuple):
    """Attributes in force, with the place of the event that set them.

    Attributes:
        attributes: by name, as in the group event.
        partition, offset: place of that event.
        bound_to: another parent that the group is bound to, and that has its attributes.
    """

    attributes: dict[str, str]
    partition: int
    offset: int
    bound_to: str | None = None

    @property
    def mode(self) -> Mode:
        """Meaning of the entries of its clients."""
        return Mode.WILDCARD if WILDCARD in self.attributes else Mode.LITERAL

    @property
    def is_exclusive(self) -> bool:
        """True if a topic goes to one of its clients only."""
        return self.attributes.get(MODEL, "").lower() == "exclusive"

    @property
    def quota(self) -> int:
        """Number of topics that a client may hold; negative for any number."""
        return int(self.attributes.get(QUOTA, DEFAULT_QUOTA))

    def resets_offset(self, cause: Cause) -> bool:
        """Return True if a client that loses a topic for this cause starts from the beginning."""
        if cause is Cause.EVICTED:
            return self._is_true(RESET_EXCLUSIVE)
        return cause in (Cause.UNSUBSCRIBED, Cause.LEASE_EXPIRED) and self._is_true(RESET_UNSUBSCRIBE)

    def _is_true(self, attribute: str) -> bool:
        return self.attributes.get(attribute, "").lower() == "true"


UNKNOWN_GROUP = Group({}, -1, -1)
"""A group without a known event: it has the defaults."""


UNKNOWN_CLIENT = Client()
"""A client without requests."""


class Lookup(Protocol[K_contra, V_co]):
    """The part of a mapping that a roster needs."""

    def get(self, key: K_contra, /) -> V_co | None:
        """Return the value of a key; None for none."""


class Roster:
    """Groups and clients of a shard at one moment.

    Attributes:
        groups: attributes by name; None for a group without.
        selectors: selectors by group.
        clients: subscriptions by client.
        settled: clients in tables, if there are any.
        changed: clients that differ from these.
    """

    settled: SettledClients | None = None
    changed: Container[ClientKey] = ()

    def __init__(
        self,
        groups: Lookup[str, Group | None],
        selectors: Lookup[str, GroupSelectors],
        clients: Lookup[ClientKey, Client],
    ) -> None:
        self.groups = groups
        self.selectors = selectors
        self.clients = clients

    def group(self, name: str) -> Group:
        """Return a group's attributes."""
        return self.groups.get(name) or UNKNOWN_GROUP

    def mode(self, name: str) -> Mode:
        """Return the mode of a group."""
        return self.group(name).mode

    def group_selectors(self, name: str) -> GroupSelectors:
        """Return a group's selectors."""
        return self.selectors.get(name) or NO_SELECTORS

    def policy(self, name: str) -> GroupPolicy:
        """Return the policy of a group."""
        group, selectors = self.group(name), self.group_selectors(name)
        mode = group.mode
        return GroupPolicy(mode, group.bound_to is not None, group.is_exclusive, selectors.in_mode(mode), group.quota)

    def client(self, key: ClientKey) -> Client:
        """Return a client's subscriptions."""
        return self.clients.get(key) or UNKNOWN_CLIENT

    def interest(self, key: ClientKey) -> Interest:
        """Return the interest of a client."""
        return interest_of(self.group(key.group), self.client(key))

    def version(self, key: ClientKey) -> int | None:
        """Return the version of a client's last applied request."""
        mode = self.mode(key.group)
        if self.settled is not None and key not in self.changed:
            value = self.settled.clients.packed(key)
            if value is not None:  # decoding a client takes as long as it has entries
                return version_of(value, mode)
        client = self.client(key)
        return (client.wildcard if mode is Mode.WILDCARD else client.literal).version


class Layered(NamedTuple, Generic[K, V]):
    """Changes over stored values."""

    changes: Mapping[K, V]
    stored: Mapping[K, V]

    def get(self, key: K, /) -> V | None:
        """Return the changed value of a key, or else the stored value."""
        return self.changes[key] if key in self.changes else self.stored.get(key)


def interest(client: Client, mode: Mode) -> Interest:
    """Return the interest of a client in a group of this mode; `NOTHING` while it is not in session."""
    subscription = client.wildcard if mode is Mode.WILDCARD else client.literal
    if not subscription.live or not (subscription.blocks or subscription.everything is not None):
        return NOTHING
    return Interest(mode is Mode.WILDCARD, subscription.blocks, subscription.everything)


def read_alike(one: Group, other: Group | None) -> bool:
    """Return True if the clients of a group have the same interests under both attributes."""
    later = other or UNKNOWN_GROUP
    return (one.mode, one.bound_to is None) == (later.mode, later.bound_to is None)


def interest_of(group: Group, client: Client) -> Interest:
    """Return the interest of a client of the group on this parent."""
    return NOTHING if group.bound_to is not None else interest(client, group.mode)


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard of a parent topic.

    Attributes:
        parent: the parent topic.
        number: from 0 on.
        routing: how the lite topics of the parent are spread over its shards.
        inner_multi: `**` is allowed inside a pattern.
        cap_requests: requests beyond a quota are applied, and capped, on parents with one shard as well.
    """

    parent: str
    number: int = 0
    routing: Routing = field(default_factory=Routing)
    inner_multi: bool = False
    cap_requests: bool = False

    @property
    def is_first(self) -> bool:
        """True for one shard of each parent: the reporter of events seen by all shards."""
        return self.number == 0

    @property
    def count(self) -> int:
        """Number of shards of the parent."""
        return self.routing.shards.get(self.parent, 1)

    @property
    def refuses_requests(self) -> bool:
        """True if a request beyond the quota of its client is refused.

        No shard of several has all topics of the parent, so shards could decide differently.
        """
        return self.count == 1 and not self.cap_requests

    def rules(self, mode: Mode) -> RequestRules:
        """Return the rules for requests in a group of that mode."""
        problem = self._pattern_problem if mode is Mode.WILDCARD else literal_problem
        return RequestRules(mode, problem, self._relevant if self.count > 1 else None)

    def rules_by_mode(self) -> dict[Mode, RequestRules]:
        """Return the rules for requests under each mode."""
        return {mode: self.rules(mode) for mode in Mode}

    def share(self, quota: int) -> int | None:
        """Return this shard's share of a quota; None for no limit.

        The shares add up to the quota, so that a client never holds more on all shards together.
        """
        if quota < 0:
            return None
        whole, rest = divmod(quota, self.count)
        return whole + (self.number < rest)

    def client_share(self, group: Group, wanted: Interest) -> int | None:
        """Return the share of a client's quota here; None for no limit.

        A client that receives everything has no quota: the broker keeps no list for it.
        """
        return None if wanted.everything is not None or wanted == NOTHING else self.share(group.quota)

    def _pattern_problem(self, entry: str, notation: Notation) -> str | None:
        return _PATTERN_PROBLEMS[entry, notation, self.inner_multi]

    def _relevant(self, entry: str, notation: Notation) -> bool:
        return self.routing.may_touch(self.parent, pattern_of(entry, notation), self.number, notation)


def _pattern_problem(asked: tuple[str, Notation, bool]) -> str | None:
    """Return the reason why a pattern, with its notation and `inner_multi`, is invalid; None for a valid one."""
    entry, notation, inner_multi = asked
    problem = check_name("a pattern", entry)
    if problem is not None:
        return problem
    try:
        validate(
            entry,
            dialect=notation.dialect,
            policy=notation.policy,
            allow_inner_multi=inner_multi and get_dialect(notation.dialect).has_inner_multi,
        )
    except InvalidPattern as error:
        return str(error)
    return None


_PATTERN_PROBLEMS = BoundedCache(
    _pattern_problem, lambda asked, problem: getsizeof(asked[0]) + getsizeof(problem), _PATTERN_CACHE_BYTES
)
