"""Number of stored topics that a client asks for, followed from one request of a micro-batch to the next."""

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from streaming.records.subscribers import ClientKey
from streaming.state import ShardState
from streaming.state.blocks import Block, Blocks, Changes, EntryKey
from streaming.state.client import Interest
from streaming.state.policy import GroupPolicy, accepts

if TYPE_CHECKING:
    from collections.abc import Sequence

_KEPT = 2
"""Kept interests of a client: before and after a request, since either may count in the end."""


class TopicCounts:
    """Counts of topics by client. A count is derived from the count at a former request if possible."""

    def __init__(self, state: ShardState) -> None:
        self._state = state
        self._known: dict[ClientKey, list[_Counted]] = defaultdict(list)
        self._asked: set[ClientKey] = set()

    def count(self, key: ClientKey, wanted: Interest, policy: GroupPolicy) -> int:
        """Return the number of stored topics that match an interest and that the selector accepts."""
        if key not in self._asked:  # nearly always the only request of its client
            self._asked.add(key)
            topics, selector = self._state.topics_of(wanted), policy.selector
            if selector is None:
                return len(topics)
            return sum(accepts(selector, self._state.topics[topic]) for topic in topics)
        known = self._known[key]
        found = next((each for each in known if each.leads_to(wanted, policy)), None)
        if found is None:
            found = _Counted(self._state, wanted, policy)
        else:
            known.remove(found)
        known[:] = [found, *known[: _KEPT - 1]]
        return len(found.topics)


class _Counted:
    """Topics that match an interest, each with the number of its matching entries."""

    def __init__(self, state: ShardState, wanted: Interest, policy: GroupPolicy) -> None:
        self._state = state
        self._patterns = wanted.patterns
        self._selector = policy.selector
        self._blocks: Sequence[Block] = wanted.blocks
        self.topics: Counter[str] = Counter()
        for block in wanted.blocks:
            for entry in block.entries:
                self._add((block.notation, entry), 1)

    def leads_to(self, wanted: Interest, policy: GroupPolicy) -> bool:
        """Follow the requests from the last interest to another, or one request back; False if there are none."""
        if wanted.patterns is not self._patterns or policy.selector != self._selector:
            return False
        if wanted.blocks is not self._blocks:
            back = self._blocks.changes_since(wanted.blocks) if isinstance(self._blocks, Blocks) else None
            ahead = wanted.blocks.path_from(self._blocks) if isinstance(wanted.blocks, Blocks) else None
            if back is None and ahead is None:
                return False
            self._follow({key: (new, old) for key, (old, new) in back.items()} if back is not None else {})
            for changes in ahead or ():
                self._follow(changes)
            self._blocks = wanted.blocks
        return True

    def _follow(self, changes: Changes) -> None:
        for key, (old, new) in changes.items():
            if (old is None) is not (new is None):
                self._add(key, 1 if old is None else -1)

    def _add(self, key: EntryKey, step: int) -> None:
        notation, entry = key
        for topic in self._state.topics_of(Interest(self._patterns, (Block(0, 0, 0, notation, (entry,)),))):
            if self._selector is None or accepts(self._selector, self._state.topics[topic]):
                self.topics[topic] += step
                if not self.topics[topic]:
                    del self.topics[topic]
