"""Facts about groups and clients, from the state of a shard."""

from streaming.records.model import Stream
from streaming.records.subscribers import ClientKey
from streaming.state import UNKNOWN_GROUP, ShardState
from streaming.worker.inquiry.model import ClientFacts, EventPlace, GroupFacts, request_place


def group_facts(state: ShardState, name: str, clients: int | None = None) -> GroupFacts:
    """Return the facts about a group on a shard."""
    group = state.group(name)
    policy = state.policy(name)
    return GroupFacts(
        name,
        group.attributes,
        policy.mode,
        policy.exclusive,
        policy.quota,
        policy.selector and (policy.selector.kind, policy.selector.text),
        group.bound_to,
        None if group is UNKNOWN_GROUP else EventPlace(Stream.GROUPS, group.partition, group.offset),
        clients,
    )


def client_facts(state: ShardState, key: ClientKey) -> ClientFacts | None:
    """Return the facts about a client on a shard; None if there are none."""
    client = state.clients.get(key)
    if client is None:
        return None
    subscription = client.subscription(state.group(key.group).mode)
    last = state.last_requests.get(key)
    return ClientFacts(
        key.group,
        key.client_id,
        subscription.live,
        sum(len(block.entries) for block in subscription.blocks),
        subscription.everything is not None,
        subscription.version,
        None if last is None or last.position < 0 else request_place(last.partition, last.position),
    )
