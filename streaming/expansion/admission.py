"""Admission of requests: a request that would exceed its client's quota is refused, or applied and capped."""

from typing import NamedTuple

from streaming.expansion.view import ShardView
from streaming.records.model import Action, SubscriptionRequest
from streaming.records.subscribers import ClientKey
from streaming.state.client import Client, Interest, RequestOutcome, Subscription
from streaming.state.group import interest_of
from streaming.state.policy import GroupPolicy


class Admission(NamedTuple):
    """Evaluation of a request by the quota of its client.

    It is contested if the client would hold more than the quota, even if the request adds no topic.
    """

    excess: str | None = None
    is_contested: bool = False


WITHIN_QUOTA = Admission()


def admission(
    view: ShardView,
    key: ClientKey,
    request: SubscriptionRequest,
    outcome: RequestOutcome,
    former: Subscription,
    *,
    present: GroupPolicy | None = None,
) -> Admission:
    """Evaluate a request by the quota of its client.

    Only the net change over the stored topics counts, so a client may always repeat its set or shrink it. The outcome
    and the former subscription are under the mode of the group; `present` is its policy at a request that is judged
    again.
    """
    is_addition = request.action in (Action.COMPLETE_ADD, Action.PARTIAL_ADD)
    if not (is_addition and outcome.applied) or outcome.subscription.everything is not None:
        return WITHIN_QUOTA
    is_again, present = present is not None, view.policy(key.group) if present is None else present
    policy = present if request.selector is None else present._replace(selector=request.selector)
    share = view.shard.share(policy.quota)
    if policy.elsewhere or share is None or len(view.state.topics) <= share:
        return WITHIN_QUOTA
    wanted = interest_of(view.group(key.group), Client(outcome.subscription, outcome.subscription))
    current = interest_of(view.group(key.group), Client(former, former))
    comparable = (
        current.everything is None and wanted.patterns == current.patterns and policy.selector == present.selector
    )
    if comparable and not any(view.state.topics_of(wanted.without(current, ordered=False))):
        exceeds = None if is_again else view.exceeds_quota(key)  # nearly always: no stored topic is added
        return Admission(None, _count(view, key, wanted, policy) > share if exceeds is None else exceeds)
    after = _count(view, key, wanted, policy)
    if after <= share:
        return WITHIN_QUOTA
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
    return 0 if wanted.everything is not None else view.counts.count(key, wanted, policy)
