"""Simulated job whose inputs can be read again."""

from typing import Any

from streaming.operations.verify.replay import StoredInput
from tests.support.simulator import Record, Simulation


class Recorder(Simulation):
    """Simulated job that stores its input records with the times of reading."""

    def _run_batch(self, records: Any, *, crash: bool) -> None:
        self.now += 1
        self.read: list[tuple[int, Record]] = [*getattr(self, "read", []), *((self.now, each) for each in records)]
        super()._run_batch(records, crash=crash)

    def partitions(self) -> list[list[StoredInput]]:
        """Return the records by partition, with the times of reading as timestamps."""
        found: dict[tuple[Any, int], list[StoredInput]] = {}
        for time, record in getattr(self, "read", []):
            stored = StoredInput(record.stream, record.partition, record.offset, time, record.value)
            found.setdefault((record.stream, record.partition), []).append(stored)
        return list(found.values())
