"""PatternIndex: patterns by topic."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Generic

from matcher.dialects import get_dialect
from matcher.index.node import MAX_DEPTH, Entries, Key, Node, V, discard
from matcher.pattern import BLOCK_BITS, ONE, Automaton, Pattern, Tail, bits_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matcher.dialects import Dialect
    from matcher.pattern import Segment

# Measured with `tracemalloc`, on CPython 3.11 of 64 bits: bytes.
_PATTERN: Final = 500
_NODE: Final = 220
_LONG_SEGMENT: Final = 60  # of a pattern of more than `MAX_DEPTH` segments
_INNER_SEGMENT: Final = 250  # of a pattern with an inner multi-segment wildcard

_Form = tuple["tuple[Segment, ...]", "Tail"]


class PatternIndex(Generic[V]):
    """Set of (pattern, value) pairs, looked up by topic.

    Patterns without a wildcard are in a dict by topic, the others in two tries over segments. The second trie holds
    prefixes of the text, so that common patterns do not pay for them. Patterns with an inner multi-segment wildcard are
    in automata.

    One thread may change the index while any number of others read it. Pairs present throughout a look-up are always
    found; pairs added or removed meanwhile may or may not be. This relies on the atomic operations of dicts and lists
    in CPython.

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
        self._prefixes: Node[V] = Node()
        self._inner: _InnerPatterns[V] = _InnerPatterns()
        self._size = 0
        self._prefix_count = 0  # pairs in the second trie
        self._long_segments = 0  # of different patterns that go on below the tries
        self._nodes = 0

    def __len__(self) -> int:
        """Return the number of (pattern, value) pairs."""
        return self._size

    def __iter__(self) -> Iterator[tuple[str, V]]:
        """Iterate over (pattern as it was written, value) of each pair, in no particular order."""
        every = chain(
            tuple(self._exact.values()), self._trie.below(), self._prefixes.below(), list(self._inner.entries.values())
        )
        return ((text, value) for entries in every for text, _, value in tuple(entries))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} dialect={self._dialect.name!r} len={self._size}>"

    @property
    def memory_bytes(self) -> int:
        """Estimated memory of the index in bytes, without texts and values."""
        segments = self._long_segments * _LONG_SEGMENT + self._inner.segments * _INNER_SEGMENT
        return self._size * _PATTERN + self._nodes * _NODE + segments

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
        key = (parsed.text, parsed.policy, value)
        if parsed.has_many:
            is_new = self._inner.add(parsed, key, value)
            self._size += is_new
            return is_new
        if parsed.literal is not None:
            entries = self._exact.setdefault(parsed.literal, {})
        else:
            node, grown = self._root(parsed).grow(parsed.whole[:MAX_DEPTH])
            self._nodes += grown
            entries = node.entries(parsed)
            if not entries and len(parsed.whole) > MAX_DEPTH:
                self._long_segments += len(parsed.segments)
        if key in entries:
            return False
        entries[key] = value
        self._size += 1
        self._prefix_count += parsed.tail is Tail.STARTS
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
        elif parsed.has_many:
            removed = self._inner.remove(parsed, key)
        else:
            removed = self._remove_from_trie(parsed, key)
            self._prefix_count -= removed and parsed.tail is Tail.STARTS
        self._size -= removed
        return removed

    def match(self, topic: str) -> list[V]:
        """Return the value of every pair whose pattern matches; a value with two matching patterns occurs twice.

        The best match comes first: exact patterns, then those with one-segment wildcards only (a literal before a
        wildcard, from the left), then prefixes and those with a multi-segment wildcard (the longest first).

        Each node of the trie that agrees with the topic so far is visited once: at most 2**depth at each depth, and
        never more than there are patterns. Patterns of more than `MAX_DEPTH` segments that agree up to there are
        checked one by one. Inner multi-segment wildcards cost (segments of the topic) x (segments of such patterns) /
        64 operations. Prefixes cost one look-up for each length in use.
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
        return self._prefixes if pattern.tail is Tail.STARTS else self._trie

    def _remove_from_trie(self, pattern: Pattern, key: Key[V]) -> bool:
        path = pattern.whole[:MAX_DEPTH]
        nodes = self._root(pattern).path(path)
        if len(nodes) <= len(path):
            return False
        removed = nodes[-1].discard(pattern, key)
        if removed and len(pattern.whole) > MAX_DEPTH and not nodes[-1].has(pattern):
            self._long_segments -= len(pattern.segments)
        for depth in range(len(path), 0, -1):
            if not nodes[depth].is_empty:
                break
            nodes[depth - 1].drop(path[depth - 1])
            self._nodes -= 1
        return removed

    def _matching(self, topic: str) -> list[Entries[V]]:
        segments = self._split(topic)
        if segments is None:
            return []
        exact = self._exact.get(topic)
        found = [] if exact is None else [exact]
        hidden = bool(self._reserved) and topic.startswith(self._reserved)
        root = self._trie.get(segments[0]) if hidden else self._trie
        if root is not None:
            found += _walk([root], segments, hidden, self._open_end)
        if self._prefix_count:
            root = self._prefixes.get(segments[0]) if hidden else self._prefixes
            found += _walk_prefixes([] if root is None else [root], segments, hidden)
        if self._inner.entries:
            found += self._inner.matching(segments, hidden=hidden)
        return found


def _long(level: list[Node[V]], segments: Sequence[str]) -> list[Entries[V]]:
    """Return the entries of the long patterns below these nodes that match, the best match first."""
    found = [
        (_rank(pattern), entries)
        for node in level
        for pattern, entries in list((node.long or {}).values())
        if pattern.accepts(segments)
    ]
    return [entries for _, entries in sorted(found, key=lambda each: each[0])]


def _rank(pattern: Pattern) -> tuple[Any, ...]:
    """Return the sort key of a long pattern that puts the best match first."""
    if pattern.tail is Tail.END:
        return False, [segment is ONE for segment in pattern.segments]
    return True, -len(pattern.whole), -len(str(pattern.segments[-1])) if pattern.tail is Tail.STARTS else 0


def _walk(level: list[Node[V]], segments: list[str], first: int, open_end: bool) -> list[Entries[V]]:  # noqa: FBT001 - private, hot
    """Collect the matches in a trie without prefixes, by one set of nodes for each segment from `first` on.

    Each slot is read once, because a writer may clear it at any time.
    """
    multi: list[Entries[V]] = []
    for segment in segments[first:MAX_DEPTH]:
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
    goes_on = len(segments) > MAX_DEPTH
    if goes_on or open_end:
        multi += [rest for node in level if (rest := node.rest) is not None]
    multi.reverse()
    ends = _long(level, segments) if goes_on else [here for node in level if (here := node.here) is not None]
    return ends + multi


def _walk_prefixes(level: list[Node[V]], segments: list[str], first: int) -> list[Entries[V]]:
    """Collect the matches in a trie of prefixes, the longest first."""
    found: list[Entries[V]] = []
    for depth, segment in enumerate(segments[first : MAX_DEPTH + 1], first):
        following = []
        for node in level:
            following += [child for child in (node.get(segment), node.one) if child is not None]
            starts = node.starts
            for length, texts in starts.items() if starts is not None else ():
                entries = texts.get(segment[:length])
                if entries is not None:
                    found.append(entries)
        if depth == MAX_DEPTH:
            found += reversed(_long(level, segments))
        level = following
    found.reverse()
    return found


class _InnerPatterns(Generic[V]):
    """Entries of patterns with inner multi-segment wildcards.

    The patterns are in blocks, each with an automaton that is built at the first look-up after a change. At most one
    block is less than half full, apart from patterns larger than a block.

    One thread may change the entries while others read them: a block is replaced, never changed.

    Attributes:
        segments: number of segments of the different patterns.
    """

    def __init__(self) -> None:
        self.entries: dict[_Form, Entries[V]] = {}
        self._homes: dict[_Form, int] = {}
        self._blocks: dict[int, _Block] = {0: _Block(())}
        self._open = 0  # the block that takes the next pattern
        self.segments = 0

    def add(self, pattern: Pattern, key: Key[V], value: V) -> bool:
        """Add an entry; return True if it is new. Linear in the pattern and the number of patterns of a block."""
        form = (pattern.segments, pattern.tail)
        entries = self.entries.setdefault(form, {})
        if key in entries:
            return False
        entries[key] = value
        if form not in self._homes:
            block = self._blocks[self._open]
            if block.patterns and block.bits + bits_of(pattern) > BLOCK_BITS:
                self._open = max(self._blocks) + 1
                block = _Block(())
            self._homes[form] = self._open
            self.segments += len(pattern.segments)
            self._blocks[self._open] = _Block((*block.patterns, pattern))
        return True

    def remove(self, pattern: Pattern, key: Key[V]) -> bool:
        """Remove an entry; return True if it was present. The cost equals the cost of `add`."""
        form = (pattern.segments, pattern.tail)
        entries = self.entries.get(form)
        if entries is None or not discard(entries, key):
            return False
        if not entries:
            del self.entries[form]
            self.segments -= len(pattern.segments)
            self._displace(form)
        return True

    def matching(self, segments: Sequence[str], *, hidden: bool) -> list[Entries[V]]:
        """Return the entries of the matching patterns, the longest first.

        Each block costs one step of its automaton for each segment, as long as one of its patterns may match.
        """
        found: list[Pattern] = []
        for block in list(self._blocks.values()):
            automaton = block.automaton
            state = automaton.start(hidden=hidden)
            for segment in segments:
                if not state:
                    break
                state = automaton.step(state, segment)
            found += [block.patterns[number] for number in automaton.matching(state)]
        found.sort(key=lambda pattern: -len(pattern.segments))
        every = (self.entries.get((pattern.segments, pattern.tail)) for pattern in found)
        return [entries for entries in every if entries is not None]

    def _displace(self, form: _Form) -> None:
        home = self._homes.pop(form)
        block = _Block(tuple(each for each in self._blocks[home].patterns if (each.segments, each.tail) != form))
        self._blocks[home] = block
        other = self._blocks[self._open]
        if home == self._open or 2 * block.bits > BLOCK_BITS:
            return
        if block.bits + other.bits > BLOCK_BITS:
            self._open = home
            return
        blocks = {**self._blocks, self._open: _Block(other.patterns + block.patterns)}
        del blocks[home]
        self._homes.update(((each.segments, each.tail), self._open) for each in block.patterns)
        self._blocks = blocks  # at once, so that a reader finds each pattern in one block


class _Block:
    """Patterns of one automaton; immutable."""

    __slots__ = ("_automaton", "bits", "patterns")

    def __init__(self, patterns: tuple[Pattern, ...]) -> None:
        self.patterns = patterns
        self.bits = sum(map(bits_of, patterns))
        self._automaton: Automaton | None = None

    @property
    def automaton(self) -> Automaton:
        """The automaton, built at the first use."""
        if self._automaton is None:
            self._automaton = Automaton(self.patterns)
        return self._automaton
