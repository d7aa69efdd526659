"""On what terms the clients of a group receive a topic that they ask for."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from matcher.selectors import BloomFilter, Selector
from matcher.selectors import compile as compile_selector
from streaming.events.model import SelectorSpec, TopicMetadata
from streaming.subscription.client import Mode
from streaming.subscription.interests import Interests
from streaming.subscription.subscribers import Matches, Orders


class GroupPolicy(NamedTuple):
    """Under what terms the clients of a group receive anything on one parent.

    Attributes:
        mode: how their entries are read.
        elsewhere: the group is bound to another parent, so they receive nothing on this one.
        exclusive: a topic goes to one client of the group only, the newest that asks for it.
        selection: what topics must agree with besides.
        quota: how many topics a client may hold; negative for any number.
    """

    mode: Mode = Mode.LITERAL
    elsewhere: bool = False
    exclusive: bool = False
    selector: SelectorSpec | None = None
    quota: int = -1

    @property
    def plain(self) -> bool:
        """Whether all who ask for a topic receive it."""
        return not self.exclusive and self.selector is None


def apply_policies(
    found: Matches,
    topic: str,
    metadata: TopicMetadata,
    interests: Iterable[Interests],
    policies: Mapping[str, GroupPolicy],
) -> Matches:
    """Those of the receivers to whom the terms of their groups leave the topic.

    Args:
        found: all who ask for the topic.
        topic: the topic.
        metadata: what its creation said about it.
        interests: where to ask how new their wishes are; later ones replace earlier ones.
        policies: of the groups whose terms are not plain.
    """
    if not policies:
        return found
    kept: Matches = {}
    newest: dict[str, tuple[int, str]] = {}
    orders: Orders | None = None
    for subscriber, patterns in found.items():
        group = policies.get(subscriber.group)
        if group is None or group.plain:
            kept[subscriber] = patterns
            continue
        if group.selector is not None and not agrees(group.selector, metadata):
            continue
        if group.exclusive:
            if orders is None:
                orders = {}
                for index in interests:
                    orders.update(index.orders(topic))
            newest[subscriber.group] = max(
                newest.get(subscriber.group, (-1, "")), (orders[subscriber], subscriber.client_id)
            )
        kept[subscriber] = patterns
    if not newest:
        return kept
    return {
        subscriber: patterns
        for subscriber, patterns in kept.items()
        if subscriber.group not in newest or newest[subscriber.group][1] == subscriber.client_id
    }


def agrees(selector: SelectorSpec, metadata: TopicMetadata) -> bool:
    """Whether a topic is what a selector wants; one of the user's own kind that fails wants nothing."""
    tags = () if metadata.tags is None else (metadata.tags,)
    try:
        return _compiled(selector).agrees(tags, metadata.properties)
    except Exception:  # noqa: BLE001 - foreign code must not stop the shard; TAG and SQL92 never raise
        return False


@lru_cache(maxsize=4_096)
def _compiled(selector: SelectorSpec) -> Selector:
    return compile_selector(*selector)


SQL92 = "SQL92"
_BLOOM = BloomFilter()


def bitmap(parent: str, metadata: TopicMetadata, policy: Mapping[str, GroupPolicy]) -> bytes | None:
    """The Bloom filter of the groups whose SQL92 selectors agree with a topic; None where no group has one.

    A dispatcher looks here first, and evaluates a selector only where the bits of its group are set.
    """
    groups = [(name, group.selector) for name, group in policy.items() if has_bitmap(group)]
    if not groups:
        return None
    found = _BLOOM.bitmap()
    for name, selector in groups:
        if selector is not None and agrees(selector, metadata):
            found.add(f"{name}#{parent}")
    return bytes(found)


def has_bitmap(policy: GroupPolicy) -> bool:
    """Whether a group stands in the bitmaps of its topics."""
    return not policy.elsewhere and policy.selector is not None and policy.selector.kind == SQL92
