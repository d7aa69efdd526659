"""Admission of requests: one that would exceed the quota of its client is refused whole, or applied and capped."""

from streaming.events.model import Action, SubscriptionRequest
from streaming.expansion.view import ShardView
from streaming.state.group import interest_of
from streaming.subscription.client import Client, Interest, Subscription
from streaming.subscription.policy import GroupPolicy
from streaming.subscription.requests import RequestOutcome
from streaming.subscription.subscribers import ClientKey


def is_refused(
    view: ShardView, key: ClientKey, request: SubscriptionRequest, outcome: RequestOutcome, former: Subscription
) -> bool:
    """Tell whether a request must be refused for its client's quota; the arguments are those of `excess`."""
    return view.shard.refuses_requests and excess(view, key, request, outcome, former) is not None


def excess(
    view: ShardView, key: ClientKey, request: SubscriptionRequest, outcome: RequestOutcome, former: Subscription
) -> str | None:
    """Return the reason why a request exceeds its client's quota; None if it does not.

    A request is judged by its net change over the stored topics, so a client may always repeat its set or shrink it.

    Args:
        view: the shard.
        key: the client.
        request: its request.
        outcome: of the request, under the mode of the group.
        former: subscription before the request, under that mode.
    """
    if not outcome.applied or request.action not in (Action.COMPLETE_ADD, Action.PARTIAL_ADD):
        return None
    wanted = interest_of(view.group(key.group), Client(outcome.subscription, outcome.subscription))
    policy = view.policy(key.group)
    if request.selector is not None:
        policy = policy._replace(selector=request.selector)
    if policy.elsewhere:
        return None
    share = view.shard.share(policy.quota)
    topics = view.state.topics
    if share is None or wanted.everything is not None or len(topics) <= share:
        return None
    current, present = interest_of(view.group(key.group), Client(former, former)), view.policy(key.group)
    comparable = (
        current.everything is None and wanted.patterns == current.patterns and policy.selector == present.selector
    )
    if comparable and not any(view.state.topics_of(wanted.without(current, ordered=False))):
        return None  # nearly always: no stored topic is added
    after = _count(view, key, wanted, policy)
    if after <= share or after <= _count(view, key, current, present):
        return None
    number, shards = view.shard.number, view.shard.count
    where = f" on shard {number} of {shards}, whose share of {policy.quota} is {share}" if shards > 1 else ""
    effect = "" if view.shard.refuses_requests else "it receives the first ones, and others when room frees; "
    return (
        f"client {key.client_id!r} of group {key.group!r} would hold {after} topics, more than {share}{where}; "
        f"{effect}ask for less, or raise lite.sub.client.quota of the group"
    )


def _count(view: ShardView, key: ClientKey, wanted: Interest, policy: GroupPolicy) -> int:
    """Return the number of stored topics that count against the quota."""
    return 0 if wanted.everything is not None else view.counts.count(key, wanted, policy)
