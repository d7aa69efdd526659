"""On what terms the clients of a group receive a topic that they ask for."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from matcher.selectors import BloomFilter, Selector
from matcher.selectors import compile as compile_selector
from streaming.events.events import Facts, Selection
from streaming.subscription.interests import Interests
from streaming.subscription.receivers import Found, Orders
from streaming.subscription.subscription import Mode


class Terms(NamedTuple):
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
    selection: Selection | None = None
    quota: int = -1

    @property
    def plain(self) -> bool:
        """Whether all who ask for a topic receive it."""
        return not self.exclusive and self.selection is None


def limited(
    found: Found, topic: str, facts: Facts, interests: Iterable[Interests], terms: Mapping[str, Terms]
) -> Found:
    """Those of the receivers to whom the terms of their groups leave the topic.

    Args:
        found: all who ask for the topic.
        topic: the topic.
        facts: what its creation said about it.
        interests: where to ask how new their wishes are; later ones replace earlier ones.
        terms: of the groups whose terms are not plain.
    """
    if not terms:
        return found
    kept: Found = {}
    newest: dict[str, tuple[int, str]] = {}
    orders: Orders | None = None
    for receiver, patterns in found.items():
        group = terms.get(receiver.group)
        if group is None or group.plain:
            kept[receiver] = patterns
            continue
        if group.selection is not None and not agrees(group.selection, facts):
            continue
        if group.exclusive:
            if orders is None:
                orders = {}
                for index in interests:
                    orders.update(index.orders(topic))
            newest[receiver.group] = max(newest.get(receiver.group, (-1, "")), (orders[receiver], receiver.client_id))
        kept[receiver] = patterns
    if not newest:
        return kept
    return {
        receiver: patterns
        for receiver, patterns in kept.items()
        if receiver.group not in newest or newest[receiver.group][1] == receiver.client_id
    }


def agrees(selection: Selection, facts: Facts) -> bool:
    """Whether a topic is what a selector wants; one of the user's own kind that fails wants nothing."""
    tags = () if facts.tags is None else (facts.tags,)
    try:
        return _compiled(selection).agrees(tags, facts.properties)
    except Exception:  # noqa: BLE001 - foreign code must not stop the shard; TAG and SQL92 never raise
        return False


@lru_cache(maxsize=4_096)
def _compiled(selection: Selection) -> Selector:
    return compile_selector(*selection)


SQL92 = "SQL92"
_BLOOM = BloomFilter()


def bitmap(parent: str, facts: Facts, terms: Mapping[str, Terms]) -> bytes | None:
    """The Bloom filter of the groups whose SQL92 selectors agree with a topic; None where no group has one.

    A dispatcher looks here first, and evaluates a selector only where the bits of its group are set.
    """
    groups = [(name, group.selection) for name, group in terms.items() if has_bitmap(group)]
    if not groups:
        return None
    found = _BLOOM.bitmap()
    for name, selection in groups:
        if selection is not None and agrees(selection, facts):
            found.add(f"{name}#{parent}")
    return bytes(found)


def has_bitmap(terms: Terms) -> bool:
    """Whether a group stands in the bitmaps of its topics."""
    return not terms.elsewhere and terms.selection is not None and terms.selection.kind == SQL92
