"""Subscriptions of clients, the requests that change them, and the interests that follow.

The mode of its group decides how a client's entries are read: as names in a literal group, as patterns in a wildcard
group. Group attributes arrive on another stream, possibly later, and the relation follows the attributes in force. So a
client has one subscription under each mode. `Client` shares one object if the two are equal, which is nearly always.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple, Self

from streaming.records.model import LITE, Action, End, Notation, Place, SubscriptionRequest, check_name
from streaming.state.blocks import Block, Blocks, replaced, settled, without_and_with


class Mode(StrEnum):
    """Mode of a group: its entries are names (literal) or patterns (wildcard)."""

    LITERAL = "literal"
    WILDCARD = "wildcard"


class Ignored(StrEnum):
    """Reason for a valid event without any effect; counted, never silent."""

    STALE_VERSION = "stale-version"
    UNCHANGED = "unchanged"
    NO_SUBSCRIPTION = "no-subscription"
    ASKED_AGAIN = "asked-again"
    SELECTOR_REPLACED = "selector-replaced"
    TOPIC_EXISTS = "topic-exists"
    TOPIC_UNKNOWN = "topic-unknown"
    GROUP_UNKNOWN = "group-unknown"
    GROUP_SUPERSEDED = "group-superseded"


class Subscription(NamedTuple):
    """Subscription of one client on one shard, under one mode.

    Attributes:
        live: True while the client is in session; a session that has ended keeps its version: older requests stay
            stale.
        version: version of the last request applied; None while all requests were unversioned.
        blocks: entries by request, oldest request first.
        everything: order of the request by which the client receives every topic of the parent (an empty set in a
            wildcard group); None without such a request.
        everything_at: position of that request; -1 without one.
    """

    live: bool = False
    version: int | None = None
    blocks: Sequence[Block] = ()
    everything: float | None = None
    everything_at: int = -1

    def outdates(self, version: int | None) -> bool:
        """Return True if a request of this version is stale; a request without a version never is."""
        return version is not None and self.version is not None and version < self.version

    @property
    def content(self) -> tuple[bool, int | None, set[tuple[Notation, str]], bool]:
        """All but the order and the positions, to compare subscriptions by."""
        return self.live, self.version, _entries(self.blocks), self.everything is not None

    @property
    def settled(self) -> Self:
        """The subscription as a state keeps it."""
        return self._replace(blocks=settled(self.blocks)) if isinstance(self.blocks, Blocks) else self

    @property
    def editable(self) -> Self:
        """The subscription, prepared for further requests of one micro-batch."""
        return self if isinstance(self.blocks, Blocks) else self._replace(blocks=Blocks(tuple(self.blocks)))


ABSENT = Subscription()


class LastRequest(NamedTuple):
    """Positions of a client's last requests in the subscription stream.

    Attributes:
        partition: partition of all these requests.
        position: position of the last request of any kind.
        literal, wildcard: position of the last request that began or replaced the session under this mode; -1 if none
            is in this partition.
        literal_order, wildcard_order: number of that request on this shard; 0 in state that a former release wrote.
    """

    partition: int
    position: int
    literal: int
    wildcard: int
    literal_order: float = 0
    wildcard_order: float = 0

    def began(self, mode: Mode) -> tuple[int, float]:
        """Return position and number of the request that last began or replaced the session under this mode."""
        if mode is Mode.WILDCARD:
            return self.wildcard, self.wildcard_order
        return self.literal, self.literal_order


class Client(NamedTuple):
    """Subscriptions of one client, one under each mode."""

    literal: Subscription = ABSENT
    wildcard: Subscription = ABSENT

    @classmethod
    def of(cls, literal: Subscription, wildcard: Subscription) -> Self:
        """Return a client that keeps equal subscriptions once."""
        return cls(literal, literal if wildcard == literal else wildcard)

    def subscription(self, mode: Mode) -> Subscription:
        """Return the subscription under this mode."""
        return self.wildcard if mode is Mode.WILDCARD else self.literal

    @property
    def settled(self) -> Self:
        """The client as a state keeps it."""
        literal = self.literal.settled
        return type(self)(literal, literal if self.wildcard is self.literal else self.wildcard.settled)

    @property
    def editable(self) -> Self:
        """The client, prepared for further requests of one micro-batch."""
        literal = self.literal.editable
        return type(self)(literal, literal if self.wildcard is self.literal else self.wildcard.editable)


def is_absent(_: object, client: Client) -> bool:
    """Return True if a client is in no session, and has nothing but versions."""
    if client.literal.live or client.wildcard.live:
        return False  # nearly always
    return all(each == Subscription(version=each.version) for each in client)


class Interest(NamedTuple):
    """Interest of a client: the part of its subscription that the relation depends on.

    Attributes:
        patterns: True if the entries are patterns; otherwise they are names.
        blocks: entries by request, oldest request first.
        everything: order of the request by which the client receives every topic; None if it does not.
    """

    patterns: bool = False
    blocks: Sequence[Block] = ()
    everything: float | None = None

    @property
    def entries(self) -> set[tuple[Notation, str]]:
        """All entries with their notation, without their order."""
        return _entries(self.blocks)

    def without(self, other: "Interest", *, ordered: bool) -> "Interest":
        """Return this interest without the entries of another.

        Entries are compared as text: one stays even if a pattern of the other interest covers it. Nothing stays if the
        other interest is in everything, and order does not count.

        Args:
            other: interest under the same mode.
            ordered: treat the same entry with another order as another entry.
        """
        if other.everything is not None and not ordered:
            return NOTHING
        everything = None if self.everything == other.everything else self.everything
        fresh = self.blocks.fresh(other.blocks) if isinstance(self.blocks, Blocks) and not ordered else None
        if fresh is not None:
            return Interest(self.patterns, fresh, everything)
        excluded = {
            (block.notation, entry, block.order if ordered else 0) for block in other.blocks for entry in block.entries
        }
        blocks = (
            block._replace(
                entries=tuple(
                    e for e in block.entries if (block.notation, e, block.order if ordered else 0) not in excluded
                )
            )
            for block in self.blocks
        )
        return Interest(self.patterns, tuple(block for block in blocks if block.entries), everything)


NOTHING = Interest()


def _entries(blocks: Iterable[Block]) -> set[tuple[Notation, str]]:
    return {(block.notation, entry) for block in blocks for entry in block.entries}


class RequestOutcome(NamedTuple):
    """Outcome of one request under one mode.

    Attributes:
        subscription: subscription after the request; unchanged if the request was refused or ignored as stale.
        invalid: reasons why entries were left out, one reason an entry.
        refused: True if nothing was applied because no entry is valid.
        ignored: reason why the request changed no entry; None if it was applied or refused.
    """

    subscription: Subscription
    invalid: tuple[str, ...] = ()
    refused: bool = False
    ignored: Ignored | None = None

    @property
    def applied(self) -> bool:
        """True if the request counts, even if it changed nothing."""
        return not self.refused and self.ignored is None


class RequestRules(NamedTuple):
    """Rules for applying requests on one shard under one mode.

    Attributes:
        mode: mode of the group; an empty set subscribes to everything in a wildcard group only.
        problem: returns the reason why an entry is invalid; None if it is valid.
        relevant: returns True if an entry can touch the shard; None if all entries can.
    """

    mode: Mode
    problem: Callable[[str, Notation], str | None]
    relevant: Callable[[str, Notation], bool] | None


def advance(
    subscription: Subscription, request: SubscriptionRequest, rules: RequestRules, order: float, place: Place
) -> RequestOutcome:
    """Apply one request to a client's subscription under one mode.

    A request whose entries are all invalid is refused: treated as an empty set, it would widen to everything.

    Args:
        subscription: subscription before the request.
        request: the request.
        rules: rules of the shard under the mode.
        order: number of this request on the shard.
        place: place of the request in its stream.
    """
    if subscription.outdates(request.version):
        return RequestOutcome(subscription, ignored=Ignored.STALE_VERSION)
    version = subscription.version if request.version is None else request.version
    if request.action is Action.COMPLETE_REMOVE:
        return RequestOutcome(
            Subscription(version=version), ignored=None if subscription.live else Ignored.NO_SUBSCRIPTION
        )

    notation = request.notation if rules.mode is Mode.WILDCARD else LITE
    problems = {entry: rules.problem(entry, notation) for entry in request.entries}
    invalid = tuple(reason for reason in problems.values() if reason is not None)
    valid = [entry for entry, reason in problems.items() if reason is None]
    if invalid and not valid:
        return RequestOutcome(subscription, invalid, refused=True)
    kept = valid if rules.relevant is None else (entry for entry in valid if rules.relevant(entry, notation))
    new = Block(order, place.partition, place.position, notation, tuple(kept))
    if request.action is Action.PARTIAL_REMOVE:
        ignored = None if subscription.live else Ignored.NO_SUBSCRIPTION
        left = without_and_with(subscription.blocks, notation, valid, new._replace(entries=()))
        return RequestOutcome(subscription._replace(version=version, blocks=left), invalid, False, ignored)

    # Only a request that begins or replaces a session can ask for everything by an empty set.
    if request.action is Action.COMPLETE_ADD or not subscription.live:
        everything = rules.mode is Mode.WILDCARD and not valid
        blocks = replaced(subscription.blocks, new)
    else:
        everything = subscription.everything is not None and not valid
        blocks = without_and_with(subscription.blocks, notation, valid, new)
    if not everything:
        subscription = subscription._replace(everything=None, everything_at=-1)
    elif subscription.everything is None:
        subscription = subscription._replace(everything=order, everything_at=place.position)
    return RequestOutcome(
        Subscription(True, version, blocks, subscription.everything, subscription.everything_at), invalid
    )


def ended(subscription: Subscription, end: End, later: Collection[SubscriptionRequest] = ()) -> Subscription | None:
    """Return a client's subscription under one mode after the coordinator ended it; None if the end is stale.

    Args:
        subscription: subscription so far.
        end: the end under this mode.
        later: the client's requests since then, which `subscription` has in it.
    """
    known = end.known if later else subscription.version
    if known is None and subscription.version not in {request.version for request in later}:
        known = subscription.version  # from a former release, whose coordinator kept no versions
    if known is not None and (subscription.version is None or subscription.version < known):
        known = subscription.version  # the coordinator counts the version of a request that a quota refused
    if end.forgets:
        return Subscription()
    if end._replace(known=known).is_stale:
        return None
    return Subscription(version=known if end.version is None else end.version)


def ended_by_former_release(
    subscription: Subscription, request: SubscriptionRequest, as_of: Place, last: LastRequest | None, mode: Mode
) -> Subscription:
    """Return a client's subscription after an end that a former release wrote.

    It does not repeat the client's later requests, so entries that were added since then stay.
    """
    asked_again = last is not None and last.partition == as_of.partition and last.position > as_of.position
    if last is not None and asked_again and (request.expired or last.began(mode)[0] > as_of.position):
        return subscription
    if not asked_again and subscription.outdates(request.version):
        return subscription
    version = subscription.version if request.version is None or asked_again else request.version
    blocks = tuple(b for b in subscription.blocks if b.partition == as_of.partition and b.position > as_of.position)
    return Subscription(subscription.live and asked_again, version, blocks)


def literal_problem(entry: str, notation: Notation = LITE) -> str | None:  # noqa: ARG001 - names have no notation
    """Return the reason why a name is invalid as an entry in a literal group; None if it is valid."""
    return check_name("a lite topic name", entry)
