"""Effects of planned events."""

from dataclasses import dataclass

from streaming.worker.inquiry.model import PlannedProblem, PlannedUpdate


@dataclass(frozen=True, slots=True)
class ParentEffect:
    """Effect of a planned event on one parent."""

    parent: str
    adds: int
    removes: int
    shown: tuple[PlannedUpdate, ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class DryRun:
    """Effect of a planned event."""

    stream: str
    parents: tuple[ParentEffect, ...]
    problems: tuple[PlannedProblem, ...]
    ignored: tuple[str, ...]

    @property
    def adds(self) -> int:
        """Number of rows that would be added."""
        return sum(each.adds for each in self.parents)

    @property
    def removes(self) -> int:
        """Number of rows that would be removed."""
        return sum(each.removes for each in self.parents)
