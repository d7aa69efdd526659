"""Requests: the effect of one request, or of the end of a client, on its subscriptions."""

from collections.abc import Callable, Collection
from typing import NamedTuple

from streaming.events.model import LITE, Action, End, Notation, Place, SubscriptionRequest, check_name
from streaming.subscription.blocks import Block, replaced, without_and_with
from streaming.subscription.client import Ignored, LastRequest, Mode, Subscription


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
    new = Block(
        order, place.partition, place.position, notation, tuple(e for e in valid if rules.relevant(e, notation))
    )
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
