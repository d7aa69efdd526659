"""PatternIndex: which patterns match this topic?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from matcher.dialects import get_dialect
from matcher.index.node import Entries, Node, V
from matcher.pattern import Pattern, Tail

if TYPE_CHECKING:
    from collections.abc import Iterable


class PatternIndex(Generic[V]):
    """A set of (pattern, value) pairs that is asked by topic.

    Patterns without a wildcard lie in a dict by topic. The others lie in a trie over segments, those with an inner
    multi-segment wildcard in a trie of their own, because only they need repeated visits of a node.

    Args:
        dialect: the name of the dialect of all patterns.
        allow_inner_multi: take multi-segment wildcards before the end of a pattern, where the dialect has them.
    """

    def __init__(self, dialect: str = "lite", *, allow_inner_multi: bool = False) -> None:
        self._dialect = get_dialect(dialect)
        self._allow_inner_multi = allow_inner_multi
        self._exact: dict[str, Entries[V]] = {}
        self._trie: Node[V] = Node()
        self._inner: Node[V] = Node()
        self._size = 0

    def __len__(self) -> int:
        """Return the number of (pattern, value) pairs."""
        return self._size

    def add(self, pattern: str | Pattern, value: V, *, policy: str | None = None) -> bool:
        """Add a pair; linear in the length of the pattern.

        Args:
            pattern: its text, or what the dialect's `parse` made of it.
            value: anything hashable.
            policy: the match policy, in dialects that have such.

        Returns:
            Whether the pair is new; adding it twice changes nothing.

        Raises:
            InvalidPattern: the text is no pattern of the dialect.
        """
        parsed = self._parsed(pattern, policy)
        entries = self._entries(parsed)
        key = (parsed.text, parsed.policy, value)
        if key in entries:
            return False
        entries[key] = value
        self._size += 1
        return True

    def remove(self, pattern: str | Pattern, value: V, *, policy: str | None = None) -> bool:
        """Remove a pair and every node that only it needed; linear in the length of the pattern.

        Returns:
            Whether the pair was there; removing what is not there changes nothing.

        Raises:
            InvalidPattern: the text is no pattern of the dialect.
        """
        parsed = self._parsed(pattern, policy)
        key = (parsed.text, parsed.policy, value)
        if parsed.literal is not None:
            removed = _discard(self._exact.get(parsed.literal), key)
            if removed and not self._exact[parsed.literal]:
                del self._exact[parsed.literal]
        else:
            removed = self._remove_from_trie(parsed, key)
        self._size -= removed
        return removed

    def match(self, topic: str) -> list[V]:
        """Return the value of every pair whose pattern matches; a value under two matching patterns comes twice.

        The best match comes first: exact patterns, then those with one-segment wildcards only (a literal before a
        wildcard, from the left), then those with a multi-segment wildcard (the longest before the wildcard first).

        Each node of the trie that agrees with the topic so far is visited once: at most 2**depth at each depth, and
        never more than there are patterns. With inner multi-segment wildcards a node can be visited once a segment
        of the topic, so the bound is (segments of the topic) x (nodes of such patterns).
        """
        out: list[V] = []
        for entries in self._matching(topic):
            out += entries.values()
        return out

    def match_patterns(self, topic: str) -> list[tuple[str, V]]:
        """Return (pattern as it was written, value) for each matching pair, in the order of `match`."""
        return [(text, value) for entries in self._matching(topic) for text, _, value in tuple(entries)]

    def _parsed(self, pattern: str | Pattern, policy: str | None) -> Pattern:
        if isinstance(pattern, Pattern):
            return pattern
        return self._dialect.parse(pattern, policy=policy, allow_inner_multi=self._allow_inner_multi)

    def _entries(self, pattern: Pattern) -> Entries[V]:
        """Return the entries that the pattern belongs to, made if missing."""
        if pattern.literal is not None:
            return self._exact.setdefault(pattern.literal, {})
        node = self._root(pattern).grow(pattern.segments)
        if pattern.tail is Tail.END:
            if node.here is None:
                node.here = {}
            return node.here
        if node.rest is None:
            node.rest = {}
        return node.rest

    def _remove_from_trie(self, pattern: Pattern, key: tuple[str, str | None, V]) -> bool:
        nodes = self._root(pattern).path(pattern.segments)
        if len(nodes) <= len(pattern.segments):
            return False
        last = nodes[-1]
        if pattern.tail is Tail.END:
            removed = _discard(last.here, key)
            last.here = last.here or None
        else:
            removed = _discard(last.rest, key)
            last.rest = last.rest or None
        for depth in range(len(nodes) - 1, 0, -1):
            if not nodes[depth].is_empty:
                break
            nodes[depth - 1].drop(pattern.segments[depth - 1])
        return removed

    def _root(self, pattern: Pattern) -> Node[V]:
        return self._inner if pattern.has_many else self._trie

    def _matching(self, topic: str) -> Iterable[Entries[V]]:
        """Return the matching entries, best first."""
        exact = self._exact.get(topic)
        found = [] if exact is None else [exact]
        segments = self._dialect.split(topic)
        if segments is None:
            return found
        found += _walk(self._trie, segments)
        if not self._inner.is_empty:
            found += _walk_inner(self._inner, segments)
        return found


def _walk(root: Node[V], segments: list[str]) -> list[Entries[V]]:
    """Collect the matches in a trie without inner multi-segment wildcards: one set of nodes a segment."""
    level = [root]
    multi: list[Entries[V]] = []
    for segment in segments:
        following = []
        for node in level:
            if node.rest is not None:
                multi.append(node.rest)
            child = node.literals.get(segment)
            if child is not None:
                following.append(child)
            if node.one is not None:
                following.append(node.one)
        if not following:
            multi.reverse()
            return multi
        level = following
    multi.reverse()
    return [node.here for node in level if node.here is not None] + multi


def _walk_inner(root: Node[V], segments: list[str]) -> list[Entries[V]]:
    """Collect the matches in a trie with inner multi-segment wildcards.

    A node behind such a wildcard stays active once it is reached, because the wildcard may use up any further
    segment; all other nodes are active for one segment. Every node has one parent, so none is active twice at once.
    """
    staying: dict[Node[V], None] = {}
    level: list[Node[V]] = [root]
    multi: dict[int, Entries[V]] = {}
    for segment in segments:
        following = []
        for node in (*staying, *level):
            if node.rest is not None:
                multi[id(node.rest)] = node.rest
            child = node.literals.get(segment)
            if child is not None:
                following.append(child)
            if node.one is not None:
                following.append(node.one)
            if node.many is not None:
                staying[node.many] = None
        level = following
    here = [node.here for node in (*level, *staying) if node.here is not None]
    return here + list(reversed(multi.values()))


def _discard(entries: Entries[V] | None, key: tuple[str, str | None, V]) -> bool:
    if entries is None or key not in entries:
        return False
    del entries[key]
    return True
