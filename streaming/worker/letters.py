"""Dead letters of a key, as output rows."""

from collections import deque
from collections.abc import Generator, Iterable
from typing import NamedTuple

from streaming.records.model import Reason, Source
from streaming.records.updates import Problem
from streaming.records.writing import dead_letter, withdrawn
from streaming.worker.bounds import Bounds
from streaming.worker.failures import not_applicable
from streaming.worker.rows import MAX_FAILURES, InputRows, Output, OutputKind, StreamTopics, position


class DeadLetters(NamedTuple):
    """Writer of dead letters; it yields outputs of more than `piece_bytes`."""

    topics: StreamTopics
    piece_bytes: int

    def source_of(self, rows: InputRows) -> Source:
        """Return the source of rows that are a single one."""
        ((stream, partition, offset, entry, timestamp, _),) = rows.by_row()
        return Source(self.topics[stream], partition, offset, position(entry), timestamp)

    def add(self, problems: Iterable[Problem], rows: InputRows, output: Output) -> Generator[Output, None, None]:
        """Add a dead letter for each problem, with the original entry, and yield full pieces of output."""
        originals: dict[tuple[str, int, int, int], bytes | None] = {}
        for source, reason, message, earlier in problems:
            if not message:
                output.add(OutputKind.DEAD_LETTER, withdrawn(source))
                continue
            if not originals:
                originals = {
                    (self.topics[stream], partition, offset, position(entry)): payload
                    for stream, partition, offset, entry, _, payload in rows.by_row()
                }
            output.add_dead_letter(reason, dead_letter(source, reason, message, originals.get(source[:4], earlier)))
            if reason is Reason.NOT_APPLICABLE and len(output.failures) < MAX_FAILURES:
                output.failures.append((*source[:4], message))
            if output.size >= self.piece_bytes:
                yield output.drain()

    def reject(self, rows: InputRows, error: Exception) -> Output:
        """Return the dead letter of a row that raised an exception."""
        output = Output()
        deque(self.add([not_applicable(self.source_of(rows), error)], rows, output), maxlen=0)
        return output

    def oversize(self, rows: InputRows, bounds: Bounds | None) -> Generator[Output, None, None]:
        """Yield a dead letter for each value that was too large to be read."""
        output, limit = Output(), 0 if bounds is None else bounds.value_bytes
        for stream, partition, offset, _, timestamp, payload in rows.by_row():
            size, _, beginning = (payload or b"").partition(b"\n")
            source = Source(self.topics[stream], partition, offset, 0, timestamp)
            message = f"the value has {int(size):,} bytes; at most {limit:,} are allowed (max_value_bytes)"
            letter = dead_letter(source, Reason.VALUE_TOO_LARGE, message, beginning, size=int(size))
            output.add_dead_letter(Reason.VALUE_TOO_LARGE, letter)
            if output.size >= self.piece_bytes:
                yield output.drain()
        yield output
