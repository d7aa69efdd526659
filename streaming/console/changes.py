"""The last changes of the relation. They are numbered, so readers can follow them without a queue."""

import threading
from collections import Counter, OrderedDict, deque
from typing import Any, NamedTuple

from streaming.client.relation import Change
from streaming.client.rows import Subscriber
from streaming.console.budget import PATTERNS, fitting, shortened
from streaming.records.op import Op

KEPT = 2_000
"""Maximum number of kept changes. A reader that falls behind further receives the number of missed changes."""

REMOVALS = 20_000
"""Maximum number of pairs whose last REMOVE is kept for explanations."""

BUSIEST = 10
"""Maximum number of subscribers in the list of those with the most updates."""

SECONDS = 300
"""Length of the plot of rates and latencies, in seconds."""


class SeenChange(NamedTuple):
    """A change, with the time when the console read it."""

    number: int
    seen_ms: int
    op: str
    parent: str
    group: str
    client: str
    part: str | None
    topic: str
    patterns: tuple[str, ...]
    cause: str
    version: int | None
    event: str
    source: dict[str, Any]


class Second(NamedTuple):
    """Updates within a second.

    Attributes:
        at: the second, since the epoch.
        adds: number of ADDs.
        removes: number of REMOVEs.
        worst_ms: maximum latency from the event to the console, in milliseconds; None without event times.
    """

    at: int
    adds: int
    removes: int
    worst_ms: int | None


Pair = tuple[str, str, str, str | None, str]


class Changes:
    """The last changes, the last removal of each pair, and updates per second. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._recent: deque[SeenChange] = deque(maxlen=KEPT)
        self._removals: OrderedDict[Pair, SeenChange] = OrderedDict()
        self._seconds: deque[Second] = deque(maxlen=SECONDS)
        self.last = self._past = 0

    def add(self, change: Change, seen_ms: int, *, live: bool) -> None:
        """Record a change. Only live changes count for rates and latencies."""
        row = change.row
        parent, group, client, part = row.subscriber
        patterns = tuple(map(shortened, row.patterns[:PATTERNS]))
        with self._lock:
            self.last += 1
            seen = SeenChange(
                *(self.last, seen_ms, change.op.value, parent, group, client, part, row.lite_topic, patterns),
                *(row.cause, row.version, row.event_id, change.source),
            )
            pair = (parent, group, client, part, row.lite_topic)
            if change.op is Op.REMOVE:
                self._removals[pair] = seen
                self._removals.move_to_end(pair)
                if len(self._removals) > REMOVALS:
                    self._removals.popitem(last=False)
            self._recent.append(seen)
            if live:
                self._count(seen)
            else:
                self._past = self.last

    def since(self, number: int, size: int) -> tuple[list[SeenChange], int]:
        """Return the last changes after a number, at most `size`, and the number of omitted changes."""
        with self._lock:
            wanted = min(self.last - number, size, len(self._recent))
            if wanted <= 0:
                return [], 0
            found = [self._recent[-at] for at in range(1, wanted + 1)]
            last = self.last
        shown = fitting(found, _characters)
        return shown[::-1], last - number - len(shown)

    def of_pair(self, pair: Pair) -> list[SeenChange]:
        """Return the kept changes of a pair, newest first."""
        with self._lock:
            found = {seen.number: seen for seen in self._recent if seen[3:8] == pair}
            removal = self._removals.get(pair)
        if removal is not None:
            found[removal.number] = removal
        return fitting(sorted(found.values(), reverse=True), _characters)

    def seconds(self) -> list[Second]:
        """Return the counts of the last seconds with updates."""
        with self._lock:
            return list(self._seconds)

    def busiest(self) -> list[tuple[Subscriber, int]]:
        """Return the subscribers with the most kept live changes, with their numbers of changes."""
        with self._lock:
            found = Counter(Subscriber(*seen[3:7]) for seen in self._recent if seen.number > self._past)
        return found.most_common(BUSIEST)

    def _count(self, seen: SeenChange) -> None:
        happened = seen.source.get("timestamp")
        late = max(0, seen.seen_ms - happened) if isinstance(happened, int) and happened > 0 else None
        at, added = seen.seen_ms // 1_000, seen.op == Op.ADD
        last = self._seconds.pop() if self._seconds and self._seconds[-1].at == at else Second(at, 0, 0, None)
        worst = max((ms for ms in (late, last.worst_ms) if ms is not None), default=None)
        self._seconds.append(Second(at, last.adds + added, last.removes + (not added), worst))


def _characters(seen: SeenChange) -> int:
    return len(seen.parent) + len(seen.group) + len(seen.client) + len(seen.topic) + sum(map(len, seen.patterns))
