"""Admission of requests: one that would exceed the quota of its client is refused whole, or applied and capped."""

from typing import NamedTuple

from streaming.events.model import Action, SubscriptionRequest
from streaming.expansion.view import ShardView
from streaming.state.group import interest_of
from streaming.subscription.client import Client, Interest, Subscription
from streaming.subscription.policy import GroupPolicy
from streaming.subscription.requests import RequestOutcome
from streaming.subscription.subscribers import ClientKey


class Admission(NamedTuple):
    """Judgement of a request by the quota of its client.

    Attributes:
        excess: reason why the request exceeds the quota; None if it does not.
        is_contested: the client would hold more than the quota, although the request may only keep what it has.
    """

    excess: str | None = None
    is_contested: bool = False


_CLEAR = Admission()


def admission(
    view: ShardView,
    key: ClientKey,
    request: SubscriptionRequest,
    outcome: RequestOutcome,
    former: Subscription,
    *,
    present: GroupPolicy | None = None,
) -> Admission:
    """Judge a request by the quota of its client.

    A request is judged by its net change over the stored topics, so a client may always repeat its set or shrink it.

    Args:
        view: the shard.
        key: the client.
        request: its request.
        outcome: of the request, under the mode of the group.
        former: subscription before the request, under that mode.
        present: policy of the group before the request, if it is judged again; None for the policy in force.
    """
    if not outcome.applied or request.action not in (Action.COMPLETE_ADD, Action.PARTIAL_ADD):
        return _CLEAR
    wanted = interest_of(view.group(key.group), Client(outcome.subscription, outcome.subscription))
    is_again, present = present is not None, view.policy(key.group) if present is None else present
    policy = present if request.selector is None else present._replace(selector=request.selector)
    share = view.shard.share(policy.quota)
    topics = view.state.topics
    if policy.elsewhere or share is None or wanted.everything is not None or len(topics) <= share:
        return _CLEAR
    current = interest_of(view.group(key.group), Client(former, former))
    comparable = (
        current.everything is None and wanted.patterns == current.patterns and policy.selector == present.selector
    )
    if comparable and not any(view.state.topics_of(wanted.without(current, ordered=False))):
        held = None if is_again else view.held(key)  # nearly always: no stored topic is added
        return Admission(None, (_count(view, key, wanted, policy) if held is None else held) > share)
    after = _count(view, key, wanted, policy)
    if after <= share:
        return _CLEAR
    if after <= _count(view, key, current, present):
        return Admission(None, is_contested=True)
    return Admission(_excess(view, key, after, policy.quota, share), is_contested=True)


def _excess(view: ShardView, key: ClientKey, after: int, quota: int, share: int) -> str:
    number, shards = view.shard.number, view.shard.count
    where = f" on shard {number} of {shards}, whose share of {quota} is {share}" if shards > 1 else ""
    effect = "" if view.shard.refuses_requests else "it receives the first ones, and others when room frees; "
    return (
        f"client {key.client_id!r} of group {key.group!r} would hold {after} topics, more than {share}{where}; "
        f"{effect}ask for less, or raise lite.sub.client.quota of the group"
    )


def _count(view: ShardView, key: ClientKey, wanted: Interest, policy: GroupPolicy) -> int:
    """Return the number of stored topics that count against the quota."""
    return 0 if wanted.everything is not None else view.counts.count(key, wanted, policy)
