"""The node of a trie of patterns: each kind of wildcard is a slot of its own, so no literal can be mistaken for one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

from matcher.pattern import MANY, ONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matcher.pattern import Segment

V = TypeVar("V")
Entries: TypeAlias = "dict[tuple[str, str | None, V], V]"  # (pattern, policy, value) -> value, in order of addition

_NO_LITERALS: Final[dict[str, Node[object]]] = {}  # shared by all leaves, never written to


class Node(Generic[V]):
    """What follows one sequence of pattern segments.

    Attributes:
        literals: the next node by literal segment.
        one: the next node after a wildcard for one segment.
        many: the next node after an inner wildcard for one or more segments.
        here: entries whose pattern ends at this node.
        rest: entries whose pattern ends here with a trailing multi-segment wildcard.
    """

    __slots__ = ("here", "literals", "many", "one", "rest")

    def __init__(self) -> None:
        self.literals: dict[str, Node[V]] = _NO_LITERALS  # type: ignore[assignment]  # empty, so of any type
        self.one: Node[V] | None = None
        self.many: Node[V] | None = None
        self.here: Entries[V] | None = None
        self.rest: Entries[V] | None = None

    def child(self, segment: Segment) -> Node[V] | None:
        """Return the next node for a pattern segment, if there is one."""
        if segment is ONE:
            return self.one
        if segment is MANY:
            return self.many
        return self.literals.get(segment)

    def grow(self, segments: Sequence[Segment]) -> Node[V]:
        """Return the node at the end of `segments`, making those that are missing."""
        node = self
        for segment in segments:
            following = node.child(segment)
            if following is None:
                following = Node()
                node._put(segment, following)
            node = following
        return node

    def path(self, segments: Sequence[Segment]) -> list[Node[V]]:
        """Return the nodes from this one along `segments`, as far as they exist."""
        nodes = [self]
        for segment in segments:
            following = nodes[-1].child(segment)
            if following is None:
                break
            nodes.append(following)
        return nodes

    def drop(self, segment: Segment) -> None:
        """Forget the next node for a pattern segment."""
        if segment is ONE:
            self.one = None
        elif segment is MANY:
            self.many = None
        else:
            del self.literals[segment]

    @property
    def is_empty(self) -> bool:
        """Whether no pattern ends at this node or below it."""
        return not (self.literals or self.one or self.many or self.here or self.rest)

    def _put(self, segment: Segment, following: Node[V]) -> None:
        if segment is ONE:
            self.one = following
        elif segment is MANY:
            self.many = following
        elif self.literals:
            self.literals[segment] = following
        else:
            self.literals = {segment: following}
