"""Subscriptions of clients, and the interests that the relation depends on.

The mode of its group decides how a client's entries are read: as names in a literal group, as patterns in a wildcard
group. Group attributes arrive on another stream, possibly later, and the relation follows those now in force. So a
client has one subscription under each mode; `Client` shares one object where the two are equal, which is nearly always.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple, Self

from streaming.events.model import Notation
from streaming.subscription.blocks import Block, Blocks, settled


class Mode(StrEnum):
    """Mode of a group: its entries are names (literal) or patterns (wildcard)."""

    LITERAL = "literal"
    WILDCARD = "wildcard"


class Ignored(StrEnum):
    """Reason for a valid event without any effect; counted, never silent."""

    STALE_VERSION = "stale-version"
    UNCHANGED = "unchanged"
    NO_SUBSCRIPTION = "no-subscription"
    ASKED_AGAIN = "asked-again"
    SELECTOR_REPLACED = "selector-replaced"
    TOPIC_EXISTS = "topic-exists"
    TOPIC_UNKNOWN = "topic-unknown"
    GROUP_UNKNOWN = "group-unknown"
    GROUP_SUPERSEDED = "group-superseded"


class Subscription(NamedTuple):
    """Subscription of one client on one shard, under one mode.

    Attributes:
        live: True while the client is in session; a session that has ended keeps its version, so that older requests
            stay stale.
        version: version of the last request applied; None while all requests were unversioned.
        blocks: entries by request, oldest request first.
        everything: order of the request by which the client receives every topic of the parent (an empty set in a
            wildcard group); None without such a request.
        everything_at: position of that request; -1 without one.
    """

    live: bool = False
    version: int | None = None
    blocks: Sequence[Block] = ()
    everything: float | None = None
    everything_at: int = -1

    def outdates(self, version: int | None) -> bool:
        """Return True if a request of this version is stale; a request without a version never is."""
        return version is not None and self.version is not None and version < self.version

    @property
    def content(self) -> tuple[bool, int | None, set[tuple[Notation, str]], bool]:
        """All but the order and the positions, to compare subscriptions by."""
        return self.live, self.version, _entries(self.blocks), self.everything is not None

    @property
    def settled(self) -> Self:
        """The subscription as a state keeps it."""
        return self._replace(blocks=settled(self.blocks)) if isinstance(self.blocks, Blocks) else self

    @property
    def editable(self) -> Self:
        """The subscription, prepared for further requests of one micro-batch."""
        return self if isinstance(self.blocks, Blocks) else self._replace(blocks=Blocks(tuple(self.blocks)))


ABSENT = Subscription()


class LastRequest(NamedTuple):
    """Positions of a client's last requests in the subscription stream.

    Attributes:
        partition: partition of all these requests.
        position: position of the last request of any kind.
        literal, wildcard: position of the last request that began or replaced the session under this mode; -1 if none
            stands in this partition.
        literal_order, wildcard_order: number of that request on this shard; 0 in state that a former release wrote.
    """

    partition: int
    position: int
    literal: int
    wildcard: int
    literal_order: float = 0
    wildcard_order: float = 0

    def began(self, mode: Mode) -> tuple[int, float]:
        """Return position and number of the request that last began or replaced the session under this mode."""
        if mode is Mode.WILDCARD:
            return self.wildcard, self.wildcard_order
        return self.literal, self.literal_order


class Client(NamedTuple):
    """Subscriptions of one client, one under each mode."""

    literal: Subscription = ABSENT
    wildcard: Subscription = ABSENT

    @classmethod
    def of(cls, literal: Subscription, wildcard: Subscription) -> Self:
        """Return a client that keeps equal subscriptions once."""
        return cls(literal, literal if wildcard == literal else wildcard)

    def subscription(self, mode: Mode) -> Subscription:
        """Return the subscription under this mode."""
        return self.wildcard if mode is Mode.WILDCARD else self.literal

    @property
    def settled(self) -> Self:
        """The client as a state keeps it."""
        literal = self.literal.settled
        return type(self)(literal, literal if self.wildcard is self.literal else self.wildcard.settled)

    @property
    def editable(self) -> Self:
        """The client, prepared for further requests of one micro-batch."""
        literal = self.literal.editable
        return type(self)(literal, literal if self.wildcard is self.literal else self.wildcard.editable)


class Interest(NamedTuple):
    """Interest of a client: the part of its subscription that the relation depends on.

    Attributes:
        patterns: True if the entries are patterns; otherwise they are names.
        blocks: entries by request, oldest request first.
        everything: order of the request by which the client receives every topic; None if it does not.
    """

    patterns: bool = False
    blocks: Sequence[Block] = ()
    everything: float | None = None

    @property
    def entries(self) -> set[tuple[Notation, str]]:
        """All entries with their notation, without their order."""
        return _entries(self.blocks)

    def without(self, other: "Interest", *, ordered: bool) -> "Interest":
        """Return this interest without the entries of another one.

        Entries are compared as text: one stays even if a pattern of the other interest covers it. Nothing stays if the
        other interest is in everything, and order does not count.

        Args:
            other: interest under the same mode.
            ordered: treat the same entry with another order as another entry.
        """
        if other.everything is not None and not ordered:
            return NOTHING
        everything = None if self.everything == other.everything else self.everything
        fresh = self.blocks.fresh(other.blocks) if isinstance(self.blocks, Blocks) and not ordered else None
        if fresh is not None:
            return Interest(self.patterns, fresh, everything)
        excluded = {
            (block.notation, entry, block.order if ordered else 0) for block in other.blocks for entry in block.entries
        }
        blocks = (
            block._replace(
                entries=tuple(
                    e for e in block.entries if (block.notation, e, block.order if ordered else 0) not in excluded
                )
            )
            for block in self.blocks
        )
        return Interest(self.patterns, tuple(block for block in blocks if block.entries), everything)


NOTHING = Interest()


def interest(client: Client, mode: Mode) -> Interest:
    """Return the interest of a client in a group of this mode; `NOTHING` while it is not in session."""
    subscription = client.subscription(mode)
    if not subscription.live or not (subscription.blocks or subscription.everything is not None):
        return NOTHING
    return Interest(mode is Mode.WILDCARD, subscription.blocks, subscription.everything)


def _entries(blocks: Iterable[Block]) -> set[tuple[Notation, str]]:
    return {(block.notation, entry) for block in blocks for entry in block.entries}
