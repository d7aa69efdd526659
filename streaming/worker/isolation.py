"""Runs of a key's rows: all at once, and in halves if an entry raises an exception, until that entry is alone.

A failed run changes nothing. The relation does not depend on how rows are split into micro-batches. So the other
entries are applied as if the failed entries did not exist, at a cost that grows with the logarithm of their number.
"""

from collections import deque
from collections.abc import Callable, Generator
from typing import NamedTuple

from streaming.records.model import Source
from streaming.storage.journal import Journal
from streaming.worker.failures import NOT_OF_AN_ENTRY, EntryFailed
from streaming.worker.rows import InputRows, Output


class Ran(NamedTuple):
    """A run that has succeeded: its last output, the state after it, and topics, clients and bytes of its journal."""

    output: Output
    journal: Journal
    size: tuple[int, int, int]


Run = Callable[[InputRows, Journal], Generator[Output, None, Ran]]
"""Applies rows to a state, and yields output; changes nothing if it raises."""


class Isolation(NamedTuple):
    """Isolation of the entries of one key from each other.

    Attributes:
        run: applies some of its rows.
        source_of: returns the source of rows that are a single one.
        reject: returns the output of a row that is not applied because of an exception.
    """

    run: Run
    source_of: Callable[[InputRows], Source]
    reject: Callable[[InputRows, Exception], Output]

    def apply(self, rows: InputRows, journal: Journal) -> Generator[Output, None, tuple[Output, Ran | None]]:
        """Apply rows in order without those that fail; yield all but the last output.

        Returns the last output, and the last run that has succeeded. Raises `EntryFailed` if an entry failed after
        output of its run was yielded.
        """
        waiting, last, outputs = [rows], None, deque[Output]()
        while waiting:
            part = waiting.pop()
            has_written, ran = yield from _guarded(self.run(part, journal))
            if isinstance(ran, Ran):
                outputs.append(ran.output)
                last, journal = ran, ran.journal
            elif has_written:
                raise self._culprit(part, journal, ran) from ran
            elif len(part.offsets) == 1:
                outputs.append(self.reject(part, ran))
            else:
                waiting += _halves(part)
            if len(outputs) > 1:
                yield outputs.popleft()
        return outputs.pop(), last

    def _culprit(self, rows: InputRows, journal: Journal, error: Exception) -> Exception:
        """Return the error that names the first entry that fails alone, or else the error itself."""
        waiting = [rows] if len(rows.offsets) == 1 else _halves(rows)
        while waiting:
            part = waiting.pop()
            ran = _result(_guarded(self.run(part, journal)))
            if isinstance(ran, Ran):
                journal = ran.journal
            elif len(part.offsets) == 1:
                return EntryFailed(self.source_of(part), ran)
            else:
                waiting += _halves(part)
        return error


def _guarded(steps: Generator[Output, None, Ran]) -> Generator[Output, None, tuple[bool, Ran | Exception]]:
    """Yield the outputs of a run; return whether there were any, and its result or its exception."""
    has_written = False
    while True:
        try:
            output = next(steps)
        except StopIteration as end:
            return has_written, end.value
        except NOT_OF_AN_ENTRY:
            raise
        except Exception as error:  # noqa: BLE001 - any exception of an entry concerns that entry only
            return has_written, error
        has_written = True
        yield output


def _result(steps: Generator[Output, None, tuple[bool, Ran | Exception]]) -> Ran | Exception:
    """Return the result of a run without its output."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            _, ran = end.value
            found: Ran | Exception = ran
            return found


def _halves(rows: InputRows) -> list[InputRows]:
    """Return the second half of rows and the first, which is taken from the end."""
    middle = len(rows.offsets) // 2
    return [rows.take(slice(middle, None)), rows.take(slice(middle))]
