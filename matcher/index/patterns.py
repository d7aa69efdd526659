"""PatternIndex: patterns by topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from matcher.dialects import get_dialect
from matcher.index.node import Entries, Key, Node, V, discard
from matcher.pattern import Pattern, Tail

if TYPE_CHECKING:
    from matcher.dialects import Dialect


class PatternIndex(Generic[V]):
    """Set of (pattern, value) pairs, looked up by topic.

    Patterns without a wildcard lie in a dict by topic, the others in two tries over segments. The second trie holds
    patterns with an inner multi-segment wildcard, which need repeated visits of a node, and prefixes of the text, so
    that the common patterns do not pay for them.

    One thread may change the index while any number of others ask: an entry that is there all the time is always found,
    one that is added or removed meanwhile may or may not be. This relies on the atomic operations of dicts and lists in
    CPython.

    Args:
        dialect: dialect of all patterns, by name or one of your own.
        allow_inner_multi: accept multi-segment wildcards before the end of a pattern, in dialects that have them.
    """

    def __init__(self, dialect: str | Dialect = "lite", *, allow_inner_multi: bool = False) -> None:
        self._dialect = get_dialect(dialect)
        self._split = self._dialect.split  # these three are read at each look-up
        self._reserved = self._dialect.reserved
        self._open_end = self._dialect.rest_may_be_empty
        self._allow_inner_multi = allow_inner_multi
        self._exact: dict[str, Entries[V]] = {}
        self._trie: Node[V] = Node()
        self._general: Node[V] = Node()
        self._size = 0
        self._general_size = 0  # pairs in the second trie

    def __len__(self) -> int:
        """Return the number of (pattern, value) pairs."""
        return self._size

    def add(self, pattern: str | Pattern, value: V, *, policy: str | None = None) -> bool:
        """Add a pair; linear in the length of the pattern.

        Args:
            pattern: text of the pattern, or the pattern parsed by the dialect.
            value: any hashable value.
            policy: match policy, in dialects that have match policies.

        Returns:
            True if the pair is new; adding it twice changes nothing.

        Raises:
            InvalidPattern: the text is not a pattern of the dialect.
        """
        parsed = self._parsed(pattern, policy)
        if parsed.literal is not None:
            entries = self._exact.setdefault(parsed.literal, {})
        else:
            entries = self._root(parsed).grow(parsed.whole).entries(parsed)
        key = (parsed.text, parsed.policy, value)
        if key in entries:
            return False
        entries[key] = value
        self._size += 1
        self._general_size += _is_general(parsed)
        return True

    def remove(self, pattern: str | Pattern, value: V, *, policy: str | None = None) -> bool:
        """Remove a pair and the nodes used by it alone; linear in the length of the pattern.

        Returns:
            True if the pair was present; removing an absent pair changes nothing.

        Raises:
            InvalidPattern: the text is not a pattern of the dialect.
        """
        parsed = self._parsed(pattern, policy)
        key = (parsed.text, parsed.policy, value)
        if parsed.literal is not None:
            entries = self._exact.get(parsed.literal, {})
            removed = discard(entries, key)
            if removed and not entries:
                del self._exact[parsed.literal]
        else:
            removed = self._remove_from_trie(parsed, key)
        self._size -= removed
        self._general_size -= removed and _is_general(parsed)
        return removed

    def match(self, topic: str) -> list[V]:
        """Return the value of every pair whose pattern matches; a value under two matching patterns comes twice.

        The best match comes first: exact patterns, then those with one-segment wildcards only (a literal before a
        wildcard, from the left), then prefixes and those with a multi-segment wildcard (the longest first).

        Each node of the trie that agrees with the topic so far is visited once: at most 2**depth at each depth, and
        never more than there are patterns. With inner multi-segment wildcards a node can be visited once a segment
        of the topic, so the bound is (segments of the topic) x (nodes of such patterns). Prefixes cost one look-up
        for each length in use.
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

    def _root(self, pattern: Pattern) -> Node[V]:
        return self._general if _is_general(pattern) else self._trie

    def _remove_from_trie(self, pattern: Pattern, key: Key[V]) -> bool:
        path = pattern.whole
        nodes = self._root(pattern).path(path)
        if len(nodes) <= len(path):
            return False
        removed = nodes[-1].discard(pattern, key)
        for depth in range(len(path), 0, -1):
            if not nodes[depth].is_empty:
                break
            nodes[depth - 1].drop(path[depth - 1])
        return removed

    def _matching(self, topic: str) -> list[Entries[V]]:
        """Return the matching entries, best first."""
        segments = self._split(topic)
        if segments is None:
            return []
        exact = self._exact.get(topic)
        found = [] if exact is None else [exact]
        root: Node[V] | None = self._trie
        general: Node[V] | None = self._general
        if self._reserved and topic.startswith(self._reserved):
            root, general = self._trie.get(segments[0]), self._general.get(segments[0])
            segments = segments[1:]
        if root is not None:
            found += _walk(root, segments, self._open_end)
        if self._general_size and general is not None:
            found += _walk_general(general, segments, self._open_end)
        return found


def _is_general(pattern: Pattern) -> bool:
    return pattern.has_many or pattern.tail is Tail.STARTS


def _walk(root: Node[V], segments: list[str], open_end: bool) -> list[Entries[V]]:  # noqa: FBT001 - private, hot
    """Collect the matches in a trie without inner wildcards and prefixes, by one set of nodes for each segment.

    Each slot is read once, because a writer may clear it at any time.
    """
    level = [root]
    multi: list[Entries[V]] = []
    for segment in segments:
        following = []
        for node in level:
            child = node.get(segment)
            if child is not None:
                following.append(child)
            child = node.one
            if child is not None:
                following.append(child)
            rest = node.rest
            if rest is not None:
                multi.append(rest)
        level = following
        if not level:
            break
    if open_end:
        multi += [rest for node in level if (rest := node.rest) is not None]
    multi.reverse()
    return [here for node in level if (here := node.here) is not None] + multi if level else multi


def _walk_general(root: Node[V], segments: list[str], open_end: bool) -> list[Entries[V]]:  # noqa: FBT001 - as above
    """Collect the matches in a trie of patterns of any kind.

    A node after an inner multi-segment wildcard stays active once it is reached, because the wildcard may use up any
    further segment; all other nodes are active for one segment. Every node has one parent, so none is active twice
    at once.
    """
    staying: dict[int, Node[V]] = {}
    level = [root]
    multi: dict[int, Entries[V]] = {}
    for segment in segments:
        following = []
        for node in [*staying.values(), *level] if staying else level:
            following += [child for child in (node.get(segment), node.one) if child is not None]
            many, rest, starts = node.many, node.rest, node.starts
            if many is not None:
                staying[id(many)] = many
            if rest is not None:
                multi[id(rest)] = rest
            for length, texts in starts.items() if starts is not None else ():
                entries = texts.get(segment[:length])
                if entries is not None:
                    multi[id(entries)] = entries
        level = following
    last = [*level, *staying.values()]
    if open_end:
        multi.update((id(rest), rest) for node in last if (rest := node.rest) is not None)
    return [here for node in last if (here := node.here) is not None] + list(reversed(multi.values()))
