"""Exceptions that an entry raises while it is read or applied; they become dead letters, and stop no other entry."""

from pathlib import Path
from traceback import walk_tb
from typing import Any, Final

from streaming.errors import StateCorrupted, StateFormatUnknown
from streaming.records.json_fields import excerpt
from streaming.records.model import Reason, Source
from streaming.records.updates import Problem


class EntryFailed(Exception):
    """The entry at `source` raised an exception after Spark received part of its key's output."""

    def __init__(self, source: Source, error: Exception) -> None:
        super().__init__(_raised(error))
        self.source = source


NOT_OF_AN_ENTRY: Final = (StateCorrupted, StateFormatUnknown, OSError, EntryFailed)
"""Exceptions of the state and its files, for which no entry is to blame."""

_ROOT: Final = Path(__file__).parents[2]
_PACKAGES: Final = ("streaming", "matcher")


def not_applicable(source: Source, error: Exception) -> Problem:
    """Return the problem of an entry that raised an exception: its class and location, without its text."""
    return Problem(
        source,
        Reason.NOT_APPLICABLE,
        f"{_raised(error)}, a defect of the job; the other entries are applied. Report it, and replay the dead letter "
        "with a release that fixes it",
    )


def unreadable(key: tuple[str, int], error: Exception) -> StateCorrupted:
    """Return the error of a key whose state raised an exception while it was decoded."""
    return StateCorrupted(
        f"the state of {excerpt(key[0])}, shard {key[1]}, cannot be decoded: {type(error).__name__} at "
        f"{place_of(error)}. Use the release that wrote it, or restore the checkpoint from a copy"
    )


def decision_fields(
    source: Source, micro_batch: int, key: tuple[str, int], partition: int | None, reason: str
) -> dict[str, Any]:
    """Return the fields from which the driver decides to leave out an entry.

    See `streaming.worker.quarantine`; the state partition is None if it is unknown.
    """
    parent, number = key
    fields = {"micro_batch": micro_batch, "parent": parent, "number": number, "reason": reason}
    return {**source._asdict(), **fields, "state_partition": partition}


def _raised(error: Exception) -> str:
    return f"the entry raised {type(error).__name__} at {place_of(error)}"


def place_of(error: Exception) -> str:
    """Return file and line of the innermost frame in this project, such as `streaming/records/model.py:7`."""
    found = "an unknown place"
    for frame, line in walk_tb(error.__traceback__):
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(_ROOT) and path.relative_to(_ROOT).parts[0] in _PACKAGES:
            found = f"{path.relative_to(_ROOT).as_posix()}:{line}"
    return found
