"""Group policies, and the subscribers left for a topic once they are applied."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from matcher.cache import BoundedCache
from matcher.selectors import BloomFilter, Selector
from matcher.selectors import compile as compile_selector
from streaming.records.model import SelectorSpec, TopicMetadata
from streaming.records.subscribers import Matches, Orders
from streaming.state.client import Mode
from streaming.state.interests import Interests

_COMPILED_BYTES = 64
"""Largest size in bytes of a compiled selector, for each character of its text."""

_COMPILED_CACHE_BYTES = 128 * 1024 * 1024
"""Memory of the selectors that a process keeps compiled; even the longest one is kept."""


class GroupPolicy(NamedTuple):
    """Policy of a group on one parent.

    Attributes:
        mode: mode of the entries of its clients.
        elsewhere: True if the group is bound to another parent; its clients receive nothing on this parent.
        exclusive: True if a topic goes to one client of the group only, the client with the newest matching entry.
        selector: selector that topics must satisfy besides; None for all topics.
        quota: number of topics that a client may hold; negative for no limit.
    """

    mode: Mode = Mode.LITERAL
    elsewhere: bool = False
    exclusive: bool = False
    selector: SelectorSpec | None = None
    quota: int = -1

    @property
    def plain(self) -> bool:
        """True if every subscriber with a matching entry receives the topic."""
        return not self.exclusive and self.selector is None

    @property
    def terms(self) -> "GroupPolicy":
        """The policy without the quota."""
        return self._replace(quota=-1)


def apply_policies(
    found: Matches,
    topic: str,
    metadata: TopicMetadata,
    interests: Iterable[Interests],
    policies: Mapping[str, GroupPolicy],
) -> Matches:
    """Return the subscribers left after the policies of their groups: selectors, then exclusive delivery.

    Args:
        found: all subscribers with a matching entry.
        topic: name of the topic.
        metadata: metadata of the topic.
        interests: indexes to take the order of entries from; later indexes replace earlier ones.
        policies: policies by group; groups with a plain policy may be missing.
    """
    if not policies:
        return found
    kept: Matches = {}
    accepted: dict[str, bool] = {}
    newest: dict[str, tuple[float, str]] = {}
    orders: Orders | None = None
    for subscriber, patterns in found.items():
        policy = policies.get(subscriber.group)
        if policy is None or policy.plain:
            kept[subscriber] = patterns
            continue
        if policy.selector is not None and not _accepts_once(subscriber.group, policy.selector, metadata, accepted):
            continue
        if policy.exclusive:
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


def _accepts_once(group: str, selector: SelectorSpec, metadata: TopicMetadata, known: dict[str, bool]) -> bool:
    """Return True if a topic satisfies the selector of a group, which is evaluated once for all of its clients."""
    if group not in known:
        known[group] = accepts(selector, metadata)
    return known[group]


def accepts(selector: SelectorSpec, metadata: TopicMetadata) -> bool:
    """Return True if a topic satisfies a selector; an exception in a user-defined selector means no."""
    tags = () if metadata.tags is None else (metadata.tags,)
    try:
        return _COMPILED[selector].agrees(tags, metadata.properties)
    except Exception:  # noqa: BLE001 - foreign code must not stop the shard; TAG and SQL92 never raise
        return False


def _compiled(selector: SelectorSpec) -> Selector:
    """Compile a selector that this release or an earlier one, whose bounds were wider, has accepted."""
    return compile_selector(*selector, stored=True)


_COMPILED = BoundedCache(
    _compiled, lambda selector, _: _COMPILED_BYTES * (8 + len(selector.text)), _COMPILED_CACHE_BYTES
)


SQL92 = "SQL92"
"""Kind of selectors for which topics carry a bitmap."""

_BLOOM = BloomFilter()


def bitmap(parent: str, metadata: TopicMetadata, policies: Mapping[str, GroupPolicy]) -> bytes | None:
    """Return the Bloom filter of the groups whose SQL92 selectors accept a topic; None without any selector.

    A dispatcher tests it first, and evaluates a group's selector only if the bits of the group are set.
    """
    selectors = [(name, policy.selector) for name, policy in policies.items() if has_bitmap(policy)]
    if not selectors:
        return None
    found = _BLOOM.bitmap()
    for name, selector in selectors:
        if selector is not None and accepts(selector, metadata):
            found.add(f"{name}#{parent}")
    return bytes(found)


def is_restrictive(policy: GroupPolicy) -> bool:
    """Return True if a matching client of a group with this policy may not receive a topic."""
    return not policy.plain


def has_bitmap(policy: GroupPolicy) -> bool:
    """Return True if a group with this policy takes part in the bitmaps of topics."""
    return not policy.elsewhere and policy.selector is not None and policy.selector.kind == SQL92
