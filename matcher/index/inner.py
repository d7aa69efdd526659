"""Patterns with inner multi-segment wildcards by topic, matched together in blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from matcher.automaton import BLOCK_BITS, Automaton, bits_of
from matcher.index.node import Entries, Key, V, discard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matcher.pattern import Pattern, Segment, Tail

_Form = tuple["tuple[Segment, ...]", "Tail"]


class InnerPatterns(Generic[V]):
    """Entries of patterns with inner multi-segment wildcards.

    The patterns are in blocks, each with an automaton that is built at the first look-up after a change. At most one
    block is less than half full, apart from patterns larger than a block.

    One thread may change the entries while others read them: a block is replaced, never changed.
    """

    def __init__(self) -> None:
        self._entries: dict[_Form, Entries[V]] = {}
        self._homes: dict[_Form, int] = {}
        self._blocks: dict[int, _Block] = {0: _Block(())}
        self._open = 0  # the block that takes the next pattern

    def __len__(self) -> int:
        """Return the number of patterns."""
        return len(self._entries)

    def entries(self) -> list[Entries[V]]:
        """Return the entries of all patterns."""
        return list(self._entries.values())

    def add(self, pattern: Pattern, key: Key[V], value: V) -> bool:
        """Add an entry; return True if it is new. Linear in the pattern and the number of patterns of a block."""
        form = (pattern.segments, pattern.tail)
        entries = self._entries.get(form)
        if entries is None:
            self._entries[form] = {key: value}
            self._place(pattern, form)
            return True
        if key in entries:
            return False
        entries[key] = value
        return True

    def remove(self, pattern: Pattern, key: Key[V]) -> bool:
        """Remove an entry; return True if it was present. The cost equals the cost of `add`."""
        form = (pattern.segments, pattern.tail)
        entries = self._entries.get(form)
        if entries is None or not discard(entries, key):
            return False
        if not entries:
            del self._entries[form]
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
        every = (self._entries.get((pattern.segments, pattern.tail)) for pattern in found)
        return [entries for entries in every if entries is not None]

    def _place(self, pattern: Pattern, form: _Form) -> None:
        block = self._blocks[self._open]
        if block.patterns and block.bits + bits_of(pattern) > BLOCK_BITS:
            self._open = max(self._blocks) + 1
            block = _Block(())
        self._homes[form] = self._open
        self._blocks[self._open] = _Block((*block.patterns, pattern))

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
