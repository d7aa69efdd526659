"""TopicIndex: topics by pattern."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from matcher.dialects import Dialect, get_dialect
from matcher.errors import InvalidPattern, not_a_list
from matcher.index.node import MAX_DEPTH
from matcher.pattern import Automaton, Pattern, Tail, Wildcard, in_blocks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class _Node:
    """Node after one sequence of segments; `topic` is the topic that ends here, if any."""

    __slots__ = ("children", "topic")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = _NO_CHILDREN
        self.topic: str | None = None


_NO_CHILDREN: Final[dict[str, _Node]] = {}  # shared by all leaves, never written to


class TopicIndex:
    """Set of topics, looked up by pattern.

    The topics are in a trie over their first `MAX_DEPTH` segments. A look-up visits only branches that can still match,
    and checks longer topics there one by one. Topics that the dialect refuses are members too, but no pattern matches
    them.

    One thread may change the index while any number of others read it. Topics present throughout a look-up are always
    found; topics added or removed meanwhile may or may not be. This relies on the atomic operations of dicts and lists
    in CPython.

    Args:
        dialect: dialect of all topics and patterns, by name or one of your own.
        allow_inner_multi: accept multi-segment wildcards before the end of a pattern, in dialects that have them.
    """

    def __init__(self, dialect: str | Dialect = "lite", *, allow_inner_multi: bool = False) -> None:
        self._dialect = get_dialect(dialect)
        self._allow_inner_multi = allow_inner_multi
        self._root = _Node()
        self._long: dict[_Node, dict[str, None]] = {}  # longer topics, by the node of their first segments
        self._unmatchable: set[str] = set()
        self._size = 0

    def __len__(self) -> int:
        """Return the number of topics."""
        return self._size

    def __iter__(self) -> Iterator[str]:
        """Iterate over a copy of the topics, in no particular order."""
        return iter([*_topics([self._root]), *self._below([self._root]), *tuple(self._unmatchable)])

    def __repr__(self) -> str:
        return f"<{type(self).__name__} dialect={self._dialect.name!r} len={self._size}>"

    def __contains__(self, topic: object) -> bool:
        if not isinstance(topic, str):
            return False
        segments = self._dialect.split(topic)
        if segments is None:
            return topic in self._unmatchable
        path = segments[:MAX_DEPTH]
        nodes = self._path(path)
        if len(nodes) <= len(path):
            return False
        return topic in self._long.get(nodes[-1], ()) if len(segments) > MAX_DEPTH else nodes[-1].topic is not None

    def add(self, topic: str) -> bool:
        """Add a topic, linear in its length; return True if it is new."""
        if topic in self:
            return False
        segments = self._dialect.split(topic)
        if segments is None:
            self._unmatchable.add(topic)
        else:
            node = self._root
            for segment in segments[:MAX_DEPTH]:
                following = node.children.get(segment)
                if following is None:
                    following = _Node()
                    if node.children:
                        node.children[segment] = following
                    else:
                        node.children = {segment: following}
                node = following
            if len(segments) > MAX_DEPTH:
                self._long.setdefault(node, {})[topic] = None
            else:
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
            path = segments[:MAX_DEPTH]
            nodes = self._path(path)
            if len(segments) > MAX_DEPTH:
                long = self._long[nodes[-1]]
                del long[topic]
                if not long:
                    del self._long[nodes[-1]]
            else:
                nodes[-1].topic = None
            for depth in range(len(path), 0, -1):
                node = nodes[depth]
                if node.children or node.topic is not None or node in self._long:
                    break
                del nodes[depth - 1].children[path[depth - 1]]
        self._size -= 1
        return True

    def expand(self, pattern: str | Pattern, *, policy: str | None = None) -> list[str]:
        """Return the matching topics in no particular order; none for an invalid pattern.

        A literal segment costs one look-up per branch, a wildcard one visit of each child, so the bound is the number
        of nodes that agree with the pattern so far. With inner multi-segment wildcards each visit costs (segments of
        the pattern) / 64 operations. A topic of more than `MAX_DEPTH` segments costs a check of its further segments.
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
        level = [root]
        for segment in pattern.whole[:MAX_DEPTH]:
            if isinstance(segment, Wildcard):
                level = [child for node in level for child in list(node.children.values())]
            else:
                level = [child for node in level if (child := node.children.get(segment)) is not None]
        depth = len(pattern.whole)
        if depth > MAX_DEPTH or (depth == MAX_DEPTH and pattern.tail is Tail.STARTS):
            return [topic for topic in self._long_topics(level) if pattern.accepts(self._dialect.split(topic) or ())]
        if pattern.tail is Tail.STARTS:
            start = str(pattern.segments[-1])
            level = [child for node in level for name, child in list(node.children.items()) if name.startswith(start)]
        found = [] if pattern.tail is Tail.SOME else _topics(level)
        return found if pattern.tail is Tail.END else found + self._below(level)

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
        root.children = {
            name: child for name, child in list(self._root.children.items()) if not name.startswith(reserved)
        }
        return root

    def _path(self, segments: list[str]) -> list[_Node]:
        nodes = [self._root]
        for segment in segments:
            following = nodes[-1].children.get(segment)
            if following is None:
                break
            nodes.append(following)
        return nodes

    def _expand_inner(self, patterns: list[Pattern]) -> list[str]:
        """Expand patterns with inner multi-segment wildcards; visit each node with a state of their automaton."""
        automaton = Automaton(patterns)
        alone = len(patterns) == 1
        found = []
        stack = self._first_steps(automaton)
        while stack:
            node, state = stack.pop()
            if automaton.matches(state):
                found += _topics([node])
            if state & automaton.tails:
                found += self._below([node])
                if alone:
                    continue
            for topic in self._long_topics([node]):
                if automaton.accepts((self._dialect.split(topic) or [])[MAX_DEPTH:], state):
                    found.append(topic)
            stack += _steps(node, automaton, state)
        return found

    def _first_steps(self, automaton: Automaton) -> list[tuple[_Node, int]]:
        """Return the nodes of the first segments with the states there."""
        reserved = self._dialect.reserved
        if not reserved:
            return _steps(self._root, automaton, automaton.start())
        first = [
            (child, automaton.step(automaton.start(hidden=name.startswith(reserved)), name))
            for name, child in list(self._root.children.items())
        ]
        return [(child, state) for child, state in first if state]

    def _below(self, level: list[_Node]) -> list[str]:
        """Return all topics below the nodes, without the topics of the nodes themselves."""
        found = []
        while level:
            found += self._long_topics(level)
            level = [child for node in level for child in list(node.children.values())]
            found += _topics(level)
        return found

    def _long_topics(self, level: list[_Node]) -> list[str]:
        """Return the topics with more than `MAX_DEPTH` segments below nodes of that depth."""
        if not self._long:
            return []
        return [topic for node in level for topic in list(self._long.get(node, ()))]


def _topics(level: list[_Node]) -> list[str]:
    return [node.topic for node in level if node.topic is not None]


def _steps(node: _Node, automaton: Automaton, state: int) -> list[tuple[_Node, int]]:
    """Return the children that can match, with the states there; look up only the names that the state can accept."""
    wanted = automaton.wanted(state, len(node.children))
    if wanted is None:
        children = list(node.children.items())
    else:
        children = [(name, child) for name in wanted if (child := node.children.get(name)) is not None]
    steps = [(child, automaton.step(state, name)) for name, child in children]
    return [(child, after) for child, after in steps if after]
