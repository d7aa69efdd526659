"""Sorted names of lite topics, from which each level of a tree is read without a tree in memory."""

from __future__ import annotations

from typing import NamedTuple

from sortedcontainers import SortedList

from streaming.console.budget import MAX_CHARACTERS


class Branch(NamedTuple):
    """Topics with one beginning, or one topic.

    Attributes:
        text: the segment.
        prefix: beginning of the names, with the separator; empty for a topic.
        topic: name of the topic; empty for a branch.
        topics: number of topics.
    """

    text: str
    prefix: str
    topic: str
    topics: int


class Level(NamedTuple):
    """A page of one level of the tree.

    Attributes:
        branches: branches and topics in the order of their names.
        more: `after` of the next page; empty on the last one.
    """

    branches: list[Branch]
    more: str


class SortedNames:
    """Sorted names; not safe in threads.

    A look at a level costs two binary searches for each of its branches, however many topics these have.
    """

    def __init__(self) -> None:
        self._names: SortedList = SortedList()

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def add(self, name: str) -> None:
        """Add a name, unless it is there."""
        if name not in self._names:
            self._names.add(name)

    def remove(self, name: str) -> None:
        """Remove a name, if it is there."""
        self._names.discard(name)

    def count(self, prefix: str) -> int:
        """Return the number of names with a beginning."""
        start, end = self._range(prefix)
        return end - start

    def page(self, prefix: str, after: str, size: int) -> list[str]:
        """Return at most `size` names with a beginning, those behind the name `after` (from the first one: empty)."""
        start, end = self._range(prefix)
        if after:
            start = max(start, self._names.bisect_right(after))
        return list(self._names.islice(start, min(end, start + size)))

    def sample(self, size: int) -> list[str]:
        """Return at most `size` names, evenly spaced."""
        count = len(self._names)
        if count <= size:
            return list(self._names)
        return [self._names[at * count // size] for at in range(size)]

    def level(self, prefix: str, separator: str, after: str, size: int) -> Level:
        """Return the branches and topics right below a prefix.

        Args:
            prefix: empty, or the prefix of a branch.
            separator: text between two segments.
            after: `more` of the page before; empty for the first one.
            size: greatest number of branches and topics.
        """
        at, end = self._range(prefix)
        if after:
            at = max(at, self._names.bisect_left(after))
        found: list[Branch] = []
        room = MAX_CHARACTERS
        while at < end:
            name = self._names[at]
            if len(found) == size or (found and room < len(name)):
                return Level(found, name)
            room -= len(name)
            cut = name.find(separator, len(prefix))
            if cut < 0:
                found.append(Branch(name[len(prefix) :], "", name, 1))
                at += 1
            else:
                below = name[: cut + len(separator)]
                behind = self._names.bisect_left(_behind(below))
                found.append(Branch(name[len(prefix) : cut], below, "", behind - at))
                at = behind
        return Level(found, "")

    def _range(self, prefix: str) -> tuple[int, int]:
        if not prefix:
            return 0, len(self._names)
        return self._names.bisect_left(prefix), self._names.bisect_left(_behind(prefix))


_LAST = 0x10FFFF


def _behind(prefix: str) -> str:
    """Return the least text that is greater than every text with this beginning."""
    head = prefix.rstrip(chr(_LAST))
    return head[:-1] + chr(ord(head[-1]) + 1) if head else chr(_LAST) * (len(prefix) + 1)
