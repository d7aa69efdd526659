"""Timings of the micro-batches of the job that serves the page."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from streaming.console.sources import BatchTiming
from streaming.monitor.batch import TOTAL
from streaming.updates.op import Op

if TYPE_CHECKING:
    from streaming.monitor.batch import BatchReport

KEPT: Final = 500
"""Number of micro-batches that are kept: the last ones that have read records."""

_UPDATES: Final = tuple(f"{op.lower()}:" for op in Op)


class RecentBatches:
    """The last micro-batches; one thread may take them in while others read."""

    def __init__(self) -> None:
        self._kept: deque[BatchTiming] = deque(maxlen=KEPT)

    def follow(self, batch: BatchReport) -> None:
        """Take over a micro-batch that was committed."""
        if not batch.records:
            return
        phases = dict(batch.phases)
        seconds = phases.pop(TOTAL, 0.0)
        updates = sum(count for kind, count in batch.counts.items() if kind.startswith(_UPDATES))
        began = int((batch.ended - seconds) * 1_000)
        self._kept.append(BatchTiming(batch.number, began, seconds, batch.records, updates, phases))

    def recent(self) -> list[BatchTiming]:
        """Return the last micro-batches, the oldest first."""
        return list(self._kept)
