"""What one client is subscribed to, and how its requests change that.

How a request is read depends on its group: names in a literal group, patterns in a wildcard group. Group attributes
arrive on another stream, possibly later, and the relation follows those now in force. So each client is kept in both
readings; `Client` shares one object where they agree, which is nearly always.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import NamedTuple

from streaming.events.model import LITE, Action, Notation, Place, SubscriptionRequest, check_name


class Mode(StrEnum):
    """How a group's entries are read."""

    LITERAL = "literal"
    WILDCARD = "wildcard"


class Ignored(StrEnum):
    """Why a valid entry changed nothing; counted, never silent."""

    STALE_VERSION = "stale-version"
    UNCHANGED = "unchanged"
    NO_SUBSCRIPTION = "no-subscription"
    ASKED_AGAIN = "asked-again"
    SELECTOR_REPLACED = "selector-replaced"
    TOPIC_EXISTS = "topic-exists"
    TOPIC_UNKNOWN = "topic-unknown"
    GROUP_UNKNOWN = "group-unknown"
    GROUP_SUPERSEDED = "group-superseded"


class Block(NamedTuple):
    """Entries of a client's set that one request put there.

    Attributes:
        order: the number of that request on this shard; in an exclusive group the higher one wins.
        partition, position: where it stands in the subscription stream (see `Place`).
        notation: how the entries are written; always `LITE` in the literal reading.
        entries: names or patterns that can touch this shard.
    """

    order: int
    partition: int
    position: int
    notation: Notation
    entries: tuple[str, ...]


class Subscription(NamedTuple):
    """One client's subscription on one shard under one reading.

    Attributes:
        live: in session; False keeps the version of a client that ended, so that older requests stay stale.
        version: the last one applied; None while all requests were unversioned.
        blocks: what it asked for, oldest first.
        everything: receives every topic of the parent (empty set in a wildcard group): since which order; None: no.
        everything_at: the position of the request of that order.
    """

    live: bool = False
    version: int | None = None
    blocks: tuple[Block, ...] = ()
    everything: int | None = None
    everything_at: int = -1

    def outdates(self, version: int | None) -> bool:
        """Whether a request of that version is older than what was applied; without versions none is."""
        return version is not None and self.version is not None and version < self.version

    @property
    def content(self) -> tuple[bool, int | None, set[tuple[Notation, str]], bool]:
        """All of it but the order."""
        return self.live, self.version, _entries(self.blocks), self.everything is not None


ABSENT = Subscription()


class LastRequest(NamedTuple):
    """Where a client's last requests stand in the subscription stream.

    Attributes:
        position: of the last request of any kind.
        literal, wildcard: of the last that began or replaced the session in that reading; -1: none in this partition.
        literal_order, wildcard_order: the number of that one on this shard; 0 where a former release wrote it.
    """

    partition: int
    position: int
    literal: int
    wildcard: int
    literal_order: int = 0
    wildcard_order: int = 0

    def began(self, mode: Mode) -> tuple[int, int]:
        """Where the one of that reading stands, and its number."""
        if mode is Mode.WILDCARD:
            return self.wildcard, self.wildcard_order
        return self.literal, self.literal_order


class Client(NamedTuple):
    """One client in both readings."""

    literal: Subscription = ABSENT
    wildcard: Subscription = ABSENT

    def subscription(self, mode: Mode) -> Subscription:
        """The reading that is in force in a group of that mode."""
        return self.wildcard if mode is Mode.WILDCARD else self.literal


class Interest(NamedTuple):
    """What a client asks for now: the part of its view that the relation depends on.

    Attributes:
        patterns: the entries are patterns; otherwise they are names.
    """

    patterns: bool = False
    blocks: tuple[Block, ...] = ()
    everything: int | None = None

    @property
    def entries(self) -> set[tuple[Notation, str]]:
        """All entries, without their order."""
        return _entries(self.blocks)

    def without(self, other: "Interest", *, ordered: bool) -> "Interest":
        """The part of it that another interest does not literally have.

        Args:
            other: the one to compare with; its entries are read as these.
            ordered: an entry of another order is another entry.
        """
        if other.everything is not None and not ordered:
            return NOTHING
        had = {
            (block.notation, entry, block.order if ordered else 0) for block in other.blocks for entry in block.entries
        }
        blocks = (
            block._replace(
                entries=tuple(e for e in block.entries if (block.notation, e, block.order if ordered else 0) not in had)
            )
            for block in self.blocks
        )
        everything = None if self.everything == other.everything else self.everything
        return Interest(self.patterns, tuple(block for block in blocks if block.entries), everything)


NOTHING = Interest()


def interest(client: Client, mode: Mode) -> Interest:
    """What a client asks for in a group of that mode; `NOTHING` when it is not in session."""
    subscription = client.subscription(mode)
    if not subscription.live or not (subscription.blocks or subscription.everything is not None):
        return NOTHING
    return Interest(mode is Mode.WILDCARD, subscription.blocks, subscription.everything)


class RequestOutcome(NamedTuple):
    """The outcome of a request under one reading.

    Attributes:
        view: the new view; the old one when the request was refused or ignored.
        invalid: entries left out, each with the reason.
        refused: nothing was applied, because no entry is valid.
        ignored: nothing was applied, for this reason.
    """

    subscription: Subscription
    invalid: tuple[str, ...] = ()
    refused: bool = False
    ignored: Ignored | None = None

    @property
    def applied(self) -> bool:
        """Whether the request counts, even if it changed nothing."""
        return not self.refused and self.ignored is None


class RequestRules(NamedTuple):
    """By what a request is read under one reading.

    Attributes:
        mode: only in a wildcard group does an empty set subscribe to everything.
        problem: says why an entry is invalid; None when it is valid.
        relevant: whether an entry can touch the shard whose view this is.
    """

    mode: Mode
    problem: Callable[[str, Notation], str | None]
    relevant: Callable[[str, Notation], bool]


def advance(
    subscription: Subscription, request: SubscriptionRequest, rules: RequestRules, order: int, place: Place
) -> RequestOutcome:
    """Applies one request to one reading.

    Args:
        subscription: of the client so far.
        request: what the client asks for.
        rules: of the reading.
        order: the number of this request on the shard.
        place: where it stands in the stream.

    Returns:
        The new view. A set that is not empty but has no valid entry is refused: it must never widen to everything.
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
    if request.action is Action.PARTIAL_REMOVE:
        ignored = None if subscription.live else Ignored.NO_SUBSCRIPTION
        return RequestOutcome(
            subscription._replace(version=version, blocks=_without(subscription.blocks, notation, valid)),
            invalid,
            False,
            ignored,
        )

    new = Block(
        order, place.partition, place.position, notation, tuple(e for e in valid if rules.relevant(e, notation))
    )
    # Only a request that begins or replaces a session can ask for everything by an empty set.
    if request.action is Action.COMPLETE_ADD or not subscription.live:
        everything = rules.mode is Mode.WILDCARD and not valid
        blocks = _replaced(subscription.blocks, new)
    else:
        everything = subscription.everything is not None and not valid
        blocks = _with(_without(subscription.blocks, notation, valid), new)
    if not everything:
        subscription = subscription._replace(everything=None, everything_at=-1)
    elif subscription.everything is None:
        subscription = subscription._replace(everything=order, everything_at=place.position)
    return RequestOutcome(
        Subscription(True, version, blocks, subscription.everything, subscription.everything_at), invalid
    )


def end(client: Client, request: SubscriptionRequest, as_of: Place, last_request: LastRequest | None) -> Client:
    """The client without what it had asked for up to a place; what it asked for since stays.

    The removal of a client on all of its parents, and of one that did not ask for too long, is decided elsewhere and
    arrives here later; meanwhile the client may have come again. A session that began since then, or a COMPLETE_ADD,
    has nothing of what was before, and what it repeated of that is as new as itself; else what it added since stays.
    """
    here = last_request is not None and last_request.partition == as_of.partition
    asked_again = last_request is not None and here and last_request.position > as_of.position
    if asked_again and request.expired:
        return client

    def ended(mode: Mode) -> Subscription:
        subscription = client.subscription(mode)
        began, order = (-1, 0) if last_request is None else last_request.began(mode)
        if asked_again and began > as_of.position:
            return _renewed(subscription, as_of, began, order)
        if subscription.outdates(request.version) and not asked_again:
            return subscription
        version = subscription.version if request.version is None or asked_again else request.version
        return Subscription(
            subscription.live and asked_again, version, tuple(b for b in subscription.blocks if _is_later(b, as_of))
        )

    literal, wildcard = map(ended, Mode)
    return Client(literal, literal if wildcard == literal else wildcard)


def _entries(blocks: Iterable[Block]) -> set[tuple[Notation, str]]:
    return {(block.notation, entry) for block in blocks for entry in block.entries}


def _is_later(block: Block, place: Place) -> bool:
    return block.partition == place.partition and block.position > place.position


def _renewed(subscription: Subscription, as_of: Place, began: int, order: int) -> Subscription:
    """What a COMPLETE_ADD at `began` kept from before `as_of` is of its order; all of it has one notation."""
    if not order:
        return subscription
    if subscription.everything is not None and subscription.everything_at <= as_of.position:
        subscription = subscription._replace(everything=order, everything_at=began)
    former = [block for block in subscription.blocks if not _is_later(block, as_of)]
    if not former:
        return subscription
    whole = [*former, *(block for block in subscription.blocks if block.order == order)]
    entries = tuple(entry for block in whole for entry in block.entries)
    renewed = Block(order, as_of.partition, began, former[0].notation, entries)
    others = [block for block in subscription.blocks if block not in whole]
    return subscription._replace(blocks=tuple(sorted((*others, renewed), key=lambda block: block.order)))


def _replaced(held: tuple[Block, ...], new: Block) -> tuple[Block, ...]:
    """A set in place of another: entries that stay keep their order, since a client repeats its set now and then."""
    if len(held) == 1 and held[0].notation == new.notation and held[0].entries == new.entries:
        return held  # nearly always
    wanted = dict.fromkeys(new.entries)
    kept = [
        block._replace(entries=tuple(entry for entry in block.entries if entry in wanted))
        for block in held
        if block.notation == new.notation
    ]
    known = {entry for block in kept for entry in block.entries}
    fresh = new._replace(entries=tuple(entry for entry in new.entries if entry not in known))
    return tuple(block for block in (*kept, fresh) if block.entries)


def _with(held: tuple[Block, ...], new: Block) -> tuple[Block, ...]:
    return (*held, new) if new.entries else held


def _without(held: tuple[Block, ...], notation: Notation, entries: Iterable[str]) -> tuple[Block, ...]:
    gone = set(entries)
    if not gone:
        return held
    kept = (
        block._replace(entries=tuple(entry for entry in block.entries if entry not in gone))
        if block.notation == notation
        else block
        for block in held
    )
    return tuple(block for block in kept if block.entries)


def literal_problem(entry: str, notation: Notation = LITE) -> str | None:  # noqa: ARG001 - names have no notation
    """Why a name cannot be subscribed to; None when it can."""
    return check_name("a lite topic name", entry)
