"""Requests: the effect of one request, or of the end of a client, on its subscriptions."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from streaming.events.model import LITE, Action, Notation, Place, SubscriptionRequest, check_name
from streaming.subscription.client import Block, Client, Ignored, LastRequest, Mode, Subscription


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
        relevant: returns True if an entry can touch the shard.
    """

    mode: Mode
    problem: Callable[[str, Notation], str | None]
    relevant: Callable[[str, Notation], bool]


def advance(
    subscription: Subscription, request: SubscriptionRequest, rules: RequestRules, order: int, place: Place
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
    if request.action is Action.PARTIAL_REMOVE:
        ignored = None if subscription.live else Ignored.NO_SUBSCRIPTION
        return RequestOutcome(
            subscription._replace(version=version, blocks=_minus_entries(subscription.blocks, notation, valid)),
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
        blocks = _replace_entries(subscription.blocks, new)
    else:
        everything = subscription.everything is not None and not valid
        blocks = _plus_block(_minus_entries(subscription.blocks, notation, valid), new)
    if not everything:
        subscription = subscription._replace(everything=None, everything_at=-1)
    elif subscription.everything is None:
        subscription = subscription._replace(everything=order, everything_at=place.position)
    return RequestOutcome(
        Subscription(True, version, blocks, subscription.everything, subscription.everything_at), invalid
    )


def end(client: Client, request: SubscriptionRequest, as_of: Place, last_request: LastRequest | None) -> Client:
    """End a client as of a place in the subscription stream; return the client with its later entries only.

    The coordinator ends a client on every parent when it leaves, or when its lease expires. That decision arrives here
    later, and meanwhile the client may have sent requests again:

    - A session that began after `as_of`, or a COMPLETE_ADD after it, stays whole. Entries that it repeated from before
      `as_of` become as new as that request.
    - Otherwise entries added after `as_of` stay, and older ones go.
    - The end of a lease (`request.expired`) has no effect on a client that has sent a request after `as_of`.
    """
    same_partition = last_request is not None and last_request.partition == as_of.partition
    asked_again = last_request is not None and same_partition and last_request.position > as_of.position
    if asked_again and request.expired:
        return client

    def subscription_after(mode: Mode) -> Subscription:
        subscription = client.subscription(mode)
        began, order = (-1, 0) if last_request is None else last_request.began(mode)
        if asked_again and began > as_of.position:
            return _with_order_of_session(subscription, as_of, began, order)
        if subscription.outdates(request.version) and not asked_again:
            return subscription
        version = subscription.version if request.version is None or asked_again else request.version
        return Subscription(
            subscription.live and asked_again, version, tuple(b for b in subscription.blocks if _is_later(b, as_of))
        )

    literal, wildcard = map(subscription_after, Mode)
    return Client(literal, literal if wildcard == literal else wildcard)


def _is_later(block: Block, place: Place) -> bool:
    return block.partition == place.partition and block.position > place.position


def _with_order_of_session(subscription: Subscription, as_of: Place, began: int, order: int) -> Subscription:
    """Give entries from before `as_of` the order and position of the COMPLETE_ADD at `began`, which kept them.

    All these entries have one notation, because a COMPLETE_ADD replaces every other one. Without an order (0: a former
    release wrote the state) nothing changes.
    """
    if not order:
        return subscription
    if subscription.everything is not None and subscription.everything_at <= as_of.position:
        subscription = subscription._replace(everything=order, everything_at=began)
    older = [block for block in subscription.blocks if not _is_later(block, as_of)]
    if not older:
        return subscription
    kept = [*older, *(block for block in subscription.blocks if block.order == order)]
    entries = tuple(entry for block in kept for entry in block.entries)
    renewed = Block(order, as_of.partition, began, older[0].notation, entries)
    others = [block for block in subscription.blocks if block not in kept]
    return subscription._replace(blocks=tuple(sorted((*others, renewed), key=lambda block: block.order)))


def _replace_entries(held: tuple[Block, ...], new: Block) -> tuple[Block, ...]:
    """Replace a set by another; entries in both keep their order, because clients repeat their set now and then."""
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


def _plus_block(held: tuple[Block, ...], new: Block) -> tuple[Block, ...]:
    return (*held, new) if new.entries else held


def _minus_entries(held: tuple[Block, ...], notation: Notation, entries: Iterable[str]) -> tuple[Block, ...]:
    removed = set(entries)
    if not removed:
        return held
    kept = (
        block._replace(entries=tuple(entry for entry in block.entries if entry not in removed))
        if block.notation == notation
        else block
        for block in held
    )
    return tuple(block for block in kept if block.entries)


def literal_problem(entry: str, notation: Notation = LITE) -> str | None:  # noqa: ARG001 - names have no notation
    """Return the reason why a name is invalid as an entry in a literal group; None if it is valid."""
    return check_name("a lite topic name", entry)
