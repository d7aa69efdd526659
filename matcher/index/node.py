"""Node of a trie of patterns, with a slot for each kind of wildcard, so that no literal is mistaken for a wildcard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

from matcher.pattern import ONE, Tail

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matcher.pattern import Pattern, Segment

V = TypeVar("V")
Key: TypeAlias = tuple[str, str | None, V]  # (pattern, policy, value)
Entries: TypeAlias = dict[Key[V], V]  # in order of addition

MAX_DEPTH: Final = 32  # segments that have nodes; a node takes a hundred times the memory of a short segment


class Node(dict[str, "Node[V]"], Generic[V]):
    """Node after one sequence of pattern segments; as a dict, the next nodes by literal segment.

    Attributes:
        one: next node after a wildcard for one segment.
        here: entries whose pattern ends at this node.
        rest: entries whose pattern ends here with a trailing multi-segment wildcard.
        starts: entries whose pattern ends here with the start of the next segment, by its length (shortest first) and
            its text.
        long: patterns with more than `MAX_DEPTH` segments, which go on below this node, and their entries.
    """

    __slots__ = ("here", "long", "one", "rest", "starts")

    def __init__(self) -> None:
        super().__init__()
        self.one: Node[V] | None = None
        self.here: Entries[V] | None = None
        self.rest: Entries[V] | None = None
        self.starts: dict[int, dict[str, Entries[V]]] | None = None
        self.long: dict[tuple[str, str | None], tuple[Pattern, Entries[V]]] | None = None

    def child(self, segment: Segment) -> Node[V] | None:
        """Return the next node for a pattern segment, if there is one."""
        return self.one if segment is ONE else self.get(str(segment))

    def grow(self, segments: Sequence[Segment]) -> tuple[Node[V], int]:
        """Return the node at the end of `segments`, and the number of missing nodes that were created on the way."""
        node, grown = self, 0
        for segment in segments:
            following = node.child(segment)
            if following is None:
                following = Node()
                grown += 1
                if segment is ONE:
                    node.one = following
                else:
                    node[str(segment)] = following
            node = following
        return node, grown

    def path(self, segments: Sequence[Segment]) -> list[Node[V]]:
        """Return this node and the nodes along `segments`, as far as they exist."""
        nodes = [self]
        for segment in segments:
            following = nodes[-1].child(segment)
            if following is None:
                break
            nodes.append(following)
        return nodes

    def drop(self, segment: Segment) -> None:
        """Remove the next node for a pattern segment."""
        if segment is ONE:
            self.one = None
        else:
            del self[str(segment)]

    def entries(self, pattern: Pattern) -> Entries[V]:
        """Return the entries for a pattern with its end at this node, or below it; create them if missing."""
        if len(pattern.whole) > MAX_DEPTH:
            if self.long is None:
                self.long = {}
            return self.long.setdefault((pattern.text, pattern.policy), (pattern, {}))[1]
        if pattern.tail is Tail.END:
            if self.here is None:
                self.here = {}
            return self.here
        if pattern.tail is Tail.STARTS:
            text = str(pattern.segments[-1])
            starts = self.starts or {}
            if len(text) not in starts:  # a new dict: a reader may iterate over the old one
                self.starts = starts = dict(sorted({**starts, len(text): {}}.items()))
            return starts[len(text)].setdefault(text, {})
        if self.rest is None:
            self.rest = {}
        return self.rest

    def has(self, pattern: Pattern) -> bool:
        """Return True if a pattern of more than `MAX_DEPTH` segments has entries below this node."""
        return self.long is not None and (pattern.text, pattern.policy) in self.long

    def below(self) -> Iterator[Entries[V]]:
        """Yield the entries of this node and of all nodes below it."""
        nodes: list[Node[V]] = [self]
        while nodes:
            node = nodes.pop()
            nodes += list(node.values())
            if node.one is not None:
                nodes.append(node.one)
            yield from (entries for entries in (node.here, node.rest) if entries is not None)
            for texts in (node.starts or {}).values():
                yield from tuple(texts.values())
            yield from (entries for _, entries in tuple((node.long or {}).values()))

    def discard(self, pattern: Pattern, key: Key[V]) -> bool:
        """Remove an entry of a pattern with its end at this node; return True if it was present."""
        entries = self.entries(pattern)
        removed = discard(entries, key)
        if entries:
            return removed
        if len(pattern.whole) > MAX_DEPTH:
            long = self.long or {}
            del long[pattern.text, pattern.policy]
            self.long = long or None
        elif pattern.tail is Tail.END:
            self.here = None
        elif pattern.tail is Tail.STARTS:
            text = str(pattern.segments[-1])
            starts = self.starts or {}
            del starts[len(text)][text]
            self.starts = {length: texts for length, texts in starts.items() if texts} or None
        else:
            self.rest = None
        return removed

    @property
    def is_empty(self) -> bool:
        """True if no pattern ends at this node or below it."""
        slots = (self.one, self.here, self.rest, self.starts, self.long)
        return not self and all(slot is None for slot in slots)


def discard(entries: Entries[V], key: Key[V]) -> bool:
    """Remove an entry; return True if it was present."""
    if key not in entries:
        return False
    del entries[key]
    return True
