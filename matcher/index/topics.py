"""TopicIndex: topics by pattern."""

from __future__ import annotations

from typing import Final

from matcher.dialects import Dialect, get_dialect
from matcher.errors import InvalidPattern
from matcher.pattern import MANY, Pattern, Tail, Wildcard, advance


class _Node:
    """Node after one sequence of segments; `topic` is the topic with its end here, if any."""

    __slots__ = ("children", "topic")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = _NO_CHILDREN
        self.topic: str | None = None


_NO_CHILDREN: Final[dict[str, _Node]] = {}  # shared by all leaves, never written to


class TopicIndex:
    """Set of topics, looked up by pattern.

    The topics lie in a trie over segments; a look-up visits only branches that can still match. Topics refused by the
    dialect are members like others, but no pattern matches them.

    One thread may change the index while any number of others ask: an entry that is there all the time is always found,
    one that is added or removed meanwhile may or may not be. This relies on the atomic operations of dicts and lists in
    CPython.

    Args:
        dialect: dialect of all topics and patterns, by name or one of your own.
        allow_inner_multi: accept multi-segment wildcards before the end of a pattern, in dialects that have them.
    """

    def __init__(self, dialect: str | Dialect = "lite", *, allow_inner_multi: bool = False) -> None:
        self._dialect = get_dialect(dialect)
        self._allow_inner_multi = allow_inner_multi
        self._root = _Node()
        self._unmatchable: set[str] = set()
        self._size = 0

    def __len__(self) -> int:
        """Return the number of topics."""
        return self._size

    def __contains__(self, topic: object) -> bool:
        if not isinstance(topic, str):
            return False
        segments = self._dialect.split(topic)
        if segments is None:
            return topic in self._unmatchable
        nodes = self._path(segments)
        return len(nodes) > len(segments) and nodes[-1].topic is not None

    def add(self, topic: str) -> bool:
        """Add a topic, linear in its length; return True if it is new."""
        if topic in self:
            return False
        segments = self._dialect.split(topic)
        if segments is None:
            self._unmatchable.add(topic)
        else:
            node = self._root
            for segment in segments:
                following = node.children.get(segment)
                if following is None:
                    following = _Node()
                    if node.children:
                        node.children[segment] = following
                    else:
                        node.children = {segment: following}
                node = following
            node.topic = topic
        self._size += 1
        return True

    def remove(self, topic: str) -> bool:
        """Remove a topic and the nodes used by it alone, linear in its length; return True if it was present."""
        if topic not in self:
            return False
        segments = self._dialect.split(topic)
        if segments is None:
            self._unmatchable.remove(topic)
        else:
            nodes = self._path(segments)
            nodes[-1].topic = None
            for depth in range(len(segments), 0, -1):
                if nodes[depth].children or nodes[depth].topic is not None:
                    break
                del nodes[depth - 1].children[segments[depth - 1]]
        self._size -= 1
        return True

    def expand(self, pattern: str | Pattern, *, policy: str | None = None) -> list[str]:
        """Return the matching topics in no particular order; none for an invalid pattern.

        A literal segment costs one look-up a branch, a wildcard one visit of each child, so the bound is the number
        of nodes that agree with the pattern so far. With inner multi-segment wildcards each visit costs up to the
        longest run of pattern segments between two of them.
        """
        if not isinstance(pattern, Pattern):
            try:
                pattern = self._dialect.parse(pattern, policy=policy, allow_inner_multi=self._allow_inner_multi)
            except InvalidPattern:
                return []
        if pattern.literal is not None:
            return [pattern.literal] if pattern.literal in self else []
        root = self._visible_root() if pattern.starts_with_wildcard else self._root
        if pattern.has_many:
            return _expand_inner(root, pattern)
        level = [root]
        for segment in pattern.whole:
            if isinstance(segment, Wildcard):
                level = [child for node in level for child in list(node.children.values())]
            else:
                level = [child for node in level if (child := node.children.get(segment)) is not None]
        if pattern.tail is Tail.STARTS:
            start = str(pattern.segments[-1])
            level = [child for node in level for name, child in list(node.children.items()) if name.startswith(start)]
        found = [] if pattern.tail is Tail.SOME else _topics(level)
        return found if pattern.tail is Tail.END else found + _below(level)

    def _visible_root(self) -> _Node:
        """Return the root without the branches hidden from a wildcard in the first segment."""
        reserved = self._dialect.reserved
        if not reserved:
            return self._root
        root = _Node()
        root.children = {
            name: child for name, child in list(self._root.children.items()) if not name.startswith(reserved)
        }
        return root

    def _path(self, segments: list[str]) -> list[_Node]:
        """Return the nodes along the segments, as far as they exist."""
        nodes = [self._root]
        for segment in segments:
            following = nodes[-1].children.get(segment)
            if following is None:
                break
            nodes.append(following)
        return nodes


def _expand_inner(root: _Node, pattern: Pattern) -> list[str]:
    """Expand a pattern with inner multi-segment wildcards; visit each node with its active positions."""
    end = len(pattern.segments)
    found = []
    stack = [(root, [0])]
    while stack:
        node, active = stack.pop()
        if active[0] == end:
            if pattern.tail is not Tail.SOME:
                found += _topics([node])
            if pattern.tail is not Tail.END:
                found += _below([node])
                continue
        for name, child in _candidates(node, pattern, active):
            after = advance(pattern.segments, active, name)
            if after:
                stack.append((child, after))
    return found


def _topics(level: list[_Node]) -> list[str]:
    """Return the topics with their end at the nodes."""
    return [node.topic for node in level if node.topic is not None]


def _below(level: list[_Node]) -> list[str]:
    """Return all topics below the nodes, without the topics of the nodes themselves."""
    found = []
    while level:
        level = [child for node in level for child in list(node.children.values())]
        found += _topics(level)
    return found


def _candidates(node: _Node, pattern: Pattern, active: list[int]) -> list[tuple[str, _Node]]:
    """Return the children worth a visit: all of them, unless every active position asks for a literal."""
    wanted = set()
    for position in active:
        if position and pattern.segments[position - 1] is MANY:
            return list(node.children.items())
        if position < len(pattern.segments):
            segment = pattern.segments[position]
            if isinstance(segment, Wildcard):
                return list(node.children.items())
            wanted.add(segment)
    return [(name, child) for name in wanted if (child := node.children.get(name)) is not None]
