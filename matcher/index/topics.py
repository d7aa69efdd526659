"""TopicIndex: topics by pattern."""

from __future__ import annotations

import sys
from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from matcher.dialects import Dialect, get_dialect
from matcher.errors import InvalidPattern, not_a_list
from matcher.index.node import MAX_DEPTH
from matcher.pattern import ONE, Automaton, Pattern, Tail, Wildcard, in_blocks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SHORT: Final = 64  # characters that a topic without nodes of its own may have, since a look-up searches them all
_SHORT_SEGMENTS: Final = 8  # segments that it may have, since a look-up splits it


class _Node(dict[str, "_Node | str"]):
    """Node after segments that several topics begin with; as a dict, the next node or the only topic by segment.

    After `MAX_DEPTH` segments it has topics by their whole text.

    Attributes:
        topic: the topic that ends here, if any.
    """

    __slots__ = ("topic",)

    def __init__(self, topic: str | None = None) -> None:
        super().__init__()
        self.topic = topic


class TopicIndex:
    """Set of topics, looked up by pattern.

    The topics are in a trie over their first `MAX_DEPTH` segments. A short topic has nodes only for segments that it
    shares with others. A look-up visits only branches that can still match, and splits topics there whose other
    segments have no nodes. Topics that the dialect refuses are members too, but no pattern matches them.

    One thread may change the index while any number of others read it. Topics present throughout a look-up are always
    found; topics added or removed meanwhile may or may not be. This relies on the atomic operations of dicts and lists
    in CPython.

    Args:
        dialect: dialect of all topics and patterns, by name or one of your own.
        allow_inner_multi: accept multi-segment wildcards before the end of a pattern, in dialects that have them.

    Attributes:
        nodes: number of nodes of the trie, some 200 bytes each.
    """

    def __init__(self, dialect: str | Dialect = "lite", *, allow_inner_multi: bool = False) -> None:
        self._dialect = get_dialect(dialect)
        self._allow_inner_multi = allow_inner_multi
        self.nodes = 0
        self._root = _Node()
        self._unmatchable: set[str] = set()
        self._size = 0

    def __len__(self) -> int:
        """Return the number of topics."""
        return self._size

    def __iter__(self) -> Iterator[str]:
        """Iterate over a copy of the topics, in no particular order."""
        return iter([*_topics([self._root]), *_below([self._root]), *tuple(self._unmatchable)])

    def __repr__(self) -> str:
        return f"<{type(self).__name__} dialect={self._dialect.name!r} len={self._size}>"

    def __contains__(self, topic: object) -> bool:
        if not isinstance(topic, str):
            return False
        keys = self._keys(topic)
        if keys is None:
            return topic in self._unmatchable
        found: _Node | str | None = self._root
        for key in keys:
            if not isinstance(found, _Node):
                break
            found = found.get(key)
        return topic == (found.topic if isinstance(found, _Node) else found)

    def add(self, topic: str) -> bool:
        """Add a topic, linear in its length; return True if it is new."""
        keys = self._keys(topic)
        if keys is None:
            if not isinstance(topic, str):
                raise TypeError(f"a topic must be a text, not {type(topic).__name__}")
            if topic in self._unmatchable:
                return False
            self._unmatchable.add(topic)
            self._size += 1
            return True
        node = self._root
        for depth, key in enumerate(keys, 1):
            following = node.get(key)
            if following is None:
                node[key] = self._branch(topic, keys, depth)
                break
            if isinstance(following, str):
                if following == topic:
                    return False
                following = node[key] = self._node(following, self._keys(following) or [], depth)
            node = following
        else:
            if node.topic is not None:
                return False
            node.topic = topic
        self._size += 1
        return True

    def remove(self, topic: str) -> bool:
        """Remove a topic and the nodes used by it alone, linear in its length; return True if it was present."""
        if topic not in self:
            return False
        self._size -= 1
        keys = self._keys(topic)
        if keys is None:
            self._unmatchable.remove(topic)
            return True
        nodes = [self._root]
        for key in keys:
            following = nodes[-1].get(key)
            if not isinstance(following, _Node):
                del nodes[-1][key]
                break
            nodes.append(following)
        else:
            nodes[-1].topic = None
        for parent, key, node in reversed(list(zip(nodes, keys, nodes[1:], strict=False))):
            if not node and node.topic is None:
                del parent[key]
            else:
                left = [*node.values(), *_topics([node])] if len(node) <= 1 else []
                if len(left) != 1 or isinstance(left[0], _Node) or not _is_short(left[0], self._keys(left[0]) or []):
                    break
                parent[key] = left[0]  # a reader of the node finds it there as well
            self.nodes -= 1
        return True

    def expand(self, pattern: str | Pattern, *, policy: str | None = None) -> list[str]:
        """Return the matching topics in no particular order; none for an invalid pattern.

        A literal segment costs one look-up per branch, a wildcard one visit of each child, so the bound is the number
        of nodes that agree with the pattern so far. With inner multi-segment wildcards each visit costs (segments of
        the pattern) / 64 operations. A short topic without nodes costs a search of its text.
        """
        if not isinstance(pattern, Pattern):
            try:
                pattern = self._parse(pattern, policy)
            except InvalidPattern:
                return []
        if pattern.literal is not None:
            return [pattern.literal] if pattern.literal in self else []
        root = self._visible_root() if pattern.starts_with_wildcard else self._root
        if pattern.has_many:
            return self._expand_inner([pattern])
        separator, found, level = self._dialect.separator, list[str](), [root]
        for depth, segment in enumerate(pattern.whole[:MAX_DEPTH], 1):
            level, topics = _told_apart(_step(level, segment))
            found += accepted(topics, pattern, separator, depth)
        size = len(pattern.whole)
        if size > MAX_DEPTH or (size == MAX_DEPTH and pattern.tail is Tail.STARTS):
            return found + accepted(_below(level), pattern, separator, MAX_DEPTH)
        if pattern.tail is Tail.STARTS:
            start = str(pattern.segments[-1])
            children = [child for node in level for name, child in list(node.items()) if name.startswith(start)]
            level, topics = _told_apart(children)
            found += topics
        if pattern.tail is not Tail.SOME:
            found += _topics(level)
        return found if pattern.tail is Tail.END else found + _below(level)

    def expand_any(self, patterns: Iterable[str | Pattern], *, policy: str | None = None) -> list[str]:
        """Return the topics that match one of the patterns; a topic may occur several times.

        Patterns with inner multi-segment wildcards are expanded together, so many of them cost little more than one.
        The others cost as much as with `expand`.

        Raises:
            TypeError: a text was given in place of a list.
        """
        if isinstance(patterns, str):
            raise not_a_list("patterns", patterns)
        found: list[str] = []
        inner: list[Pattern] = []
        for pattern in patterns:
            try:
                parsed = pattern if isinstance(pattern, Pattern) else self._parse(pattern, policy)
            except InvalidPattern:
                continue
            if parsed.has_many:
                inner.append(parsed)
            else:
                found += self.expand(parsed)
        for block in in_blocks(sorted(inner, key=lambda pattern: pattern.text)):
            found += self._expand_inner(block)
        return found

    def _parse(self, pattern: str, policy: str | None) -> Pattern:
        return self._dialect.parse(pattern, policy=policy, allow_inner_multi=self._allow_inner_multi)

    def _visible_root(self) -> _Node:
        """Return the root without the branches hidden from a wildcard in the first segment."""
        reserved = self._dialect.reserved
        if not reserved:
            return self._root
        root = _Node()
        root.update((name, child) for name, child in list(self._root.items()) if not name.startswith(reserved))
        return root

    def _keys(self, topic: str) -> list[str] | None:
        """Return the keys of the nodes on the way to a topic, and its own key; None if no pattern can match it."""
        segments = self._dialect.split(topic)
        return segments if segments is None or len(segments) <= MAX_DEPTH else [*segments[:MAX_DEPTH], topic]

    def _branch(self, topic: str, keys: list[str], depth: int) -> _Node | str:
        """Return what leads from so many segments to one topic: the topic itself if it is short, else a node."""
        return topic if depth > MAX_DEPTH or _is_short(topic, keys) else self._node(topic, keys, depth)

    def _node(self, topic: str, keys: list[str], depth: int) -> _Node:
        """Return a node after so many segments with one topic."""
        self.nodes += 1
        if len(keys) == depth:
            return _Node(topic)
        node = _Node()
        node[keys[depth]] = self._branch(topic, keys, depth + 1)
        return node

    def _expand_inner(self, patterns: list[Pattern]) -> list[str]:
        """Expand patterns with inner multi-segment wildcards; visit each node with a state of their automaton."""
        automaton = Automaton(patterns)
        alone, separator = len(patterns) == 1, self._dialect.separator
        found = []
        stack = self._first_steps(automaton)
        while stack:
            node, state, depth = stack.pop()
            if isinstance(node, str):
                if state & automaton.tails or automaton.accepts(node.split(separator)[depth:], state):
                    found.append(node)
                continue
            if automaton.matches(state):
                found += _topics([node])
            if state & automaton.tails:
                found += _below([node])
                if alone:
                    continue
            if depth < MAX_DEPTH:
                stack += _steps(node, automaton, state, depth)
            else:
                stack += [(topic, state, depth) for topic in list(node.values())]
        return found

    def _first_steps(self, automaton: Automaton) -> list[tuple[_Node | str, int, int]]:
        """Return the nodes of the first segments with the states there."""
        reserved = self._dialect.reserved
        if not reserved:
            return _steps(self._root, automaton, automaton.start(), 0)
        first = [
            (child, automaton.step(automaton.start(hidden=name.startswith(reserved)), name), 1)
            for name, child in list(self._root.items())
        ]
        return [each for each in first if each[1]]


def _is_short(topic: str, keys: list[str]) -> bool:
    return len(topic) <= _SHORT and len(keys) <= _SHORT_SEGMENTS


def accepted(topics: list[str], pattern: Pattern, separator: str, depth: int = 0) -> list[str]:
    """Return the topics that a pattern accepts.

    Args:
        topics: topics that patterns of the dialect can match.
        pattern: the pattern.
        separator: that of the dialect.
        depth: number of segments of each topic that are known to agree with the pattern; 0 if it `has_many`.
    """
    if pattern.has_many:
        automaton = Automaton([pattern])
        longest = max([each for each in pattern.segments if isinstance(each, str)], key=len, default="")
        return [topic for topic in topics if longest in topic and automaton.accepts(topic.split(separator))]
    size, tail = len(pattern.whole), pattern.tail
    if tail is Tail.STARTS:
        if any(isinstance(segment, Wildcard) for segment in pattern.segments):
            return [topic for topic in topics if pattern.accepts(topic.split(separator))]
        prefix = separator.join(map(str, pattern.segments))
        return [topic for topic in topics if topic.startswith(prefix)]
    places = [place for place in range(depth, size) if pattern.whole[place] is not ONE]
    if places:
        last = str(pattern.whole[places[-1]])  # most other topics lack it
        topics = [topic for topic in topics if last in topic]
    least, most = size - 1 + (tail is Tail.SOME), size - 1 if tail is Tail.END else sys.maxsize  # separators
    counts = map(str.count, topics, repeat(separator))
    topics = [topic for topic, count in zip(topics, counts, strict=False) if least <= count <= most]
    if not places:
        return topics
    literals = itemgetter(*places)
    wanted = literals(pattern.whole)
    return [topic for topic in topics if literals(topic.split(separator)) == wanted]


def _topics(level: list[_Node]) -> list[str]:
    return [node.topic for node in level if node.topic is not None]


def _step(level: list[_Node], segment: Any) -> list[Any]:
    """Return the nodes and topics after one more segment of a pattern."""
    if segment is ONE:
        return [child for node in level for child in list(node.values())]
    return [child for node in level if (child := node.get(segment)) is not None]


def _told_apart(children: list[Any]) -> tuple[list[_Node], list[str]]:
    """Return the nodes, and the topics."""
    nodes = [child for child in children if child.__class__ is _Node]
    if len(nodes) == len(children):
        return nodes, []
    return nodes, [child for child in children if child.__class__ is not _Node]


def _below(level: list[_Node]) -> list[str]:
    """Return all topics below the nodes, without the topics of the nodes themselves."""
    found = []
    while level:
        level, topics = _told_apart([child for node in level for child in list(node.values())])
        found += topics
        found += _topics(level)
    return found


def _steps(node: _Node, automaton: Automaton, state: int, depth: int) -> list[tuple[_Node | str, int, int]]:
    """Return the children that can match, with the states there; look up only the names that the state can accept."""
    wanted = automaton.wanted(state, len(node))
    if wanted is None:
        children = list(node.items())
    else:
        children = [(name, child) for name in wanted if (child := node.get(name)) is not None]
    steps = [(child, automaton.step(state, name), depth + 1) for name, child in children]
    return [each for each in steps if each[1]]
