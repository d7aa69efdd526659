"""Findings of a verification: rows on which inputs, state and updates differ, with the reason."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple


class Fault(StrEnum):
    """Reason of a difference."""

    SURPLUS_UPDATE = "surplus-update"
    MISSING_UPDATE = "missing-update"
    WRONG_VALUE = "wrong-value"
    STATE_DIFFERS = "state-differs"
    STATE_DAMAGED = "state-damaged"
    QUOTA_ORDER = "quota-order"


EXPLANATIONS = {
    Fault.SURPLUS_UPDATE: "the updates topic has an ADD of a row outside the relation; --repair writes the REMOVE",
    Fault.MISSING_UPDATE: "the updates topic has no ADD of a row of the relation; --repair writes the ADD",
    Fault.WRONG_VALUE: "the ADD of the row has patterns or a version that it never had; --repair writes the ADD",
    Fault.STATE_DIFFERS: "the state of the job does not follow from the inputs; use `reexpand rebuild`",
    Fault.STATE_DAMAGED: "the state of this shard cannot be read; restore a backup, or use `reexpand rebuild`",
    Fault.QUOTA_ORDER: "a quota refused a request of this group, which depends on the original micro-batches",
}

REPAIRABLE = frozenset({Fault.SURPLUS_UPDATE, Fault.MISSING_UPDATE, Fault.WRONG_VALUE})
"""Faults of the updates topic alone."""

UNDECIDED = frozenset({Fault.QUOTA_ORDER})
"""Differences that may only result from other micro-batch boundaries."""


class RowName(NamedTuple):
    """Identity of a row of the relation; `part` is blank for a whole client."""

    parent: str
    group: str
    client_id: str
    lite_topic: str
    part: str = ""


class UpdateRecord(NamedTuple):
    """A record of the updates topic.

    Attributes:
        update: its value; None for a tombstone.
    """

    partition: int
    offset: int
    timestamp: int
    update: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Difference:
    """A row on which the sources differ.

    Attributes:
        inputs, state, updates: True if the source has the row; None if the source was not read.
        record: last record of the row in the updates topic.
    """

    key: bytes
    row: RowName
    fault: Fault
    inputs: bool | None
    state: bool | None
    updates: bool
    record: UpdateRecord | None = None


class DamagedState(NamedTuple):
    """A shard whose state cannot be read."""

    parent: str
    shard: int
    problem: str


@dataclass(slots=True)
class Findings:
    """Result of a verification.

    Attributes:
        micro_batch: the committed micro-batch after which inputs, state and updates were compared.
        rows: number of rows by source; None for inputs that were not read.
        in_flight: number of rows that were changing, and were not compared.
        notes: sentences about parts that were not compared, with the reason.
        corrected: number of rows that were corrected, by reason.
    """

    micro_batch: int
    rows: dict[str, int | None] = field(default_factory=dict)
    in_flight: int = 0
    differences: list[Difference] = field(default_factory=list)
    damaged: list[DamagedState] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    corrected: Counter[Fault] = field(default_factory=Counter)

    @property
    def repaired(self) -> int:
        """Number of rows that were corrected."""
        return self.corrected.total()

    @property
    def is_right(self) -> bool:
        """True if inputs, state and updates agree, apart from undecided differences."""
        return not self.damaged and all(difference.fault in UNDECIDED for difference in self.differences)

    @property
    def repairable(self) -> list[Difference]:
        """Differences that corrections in the updates topic fix."""
        return [difference for difference in self.differences if difference.fault in REPAIRABLE]

    @property
    def doubted(self) -> set[bytes]:
        """Keys of the rows whose ADD has a wrong value."""
        return {difference.key for difference in self.differences if difference.fault is Fault.WRONG_VALUE}

    def by_fault(self) -> Counter[Fault]:
        """Return the number of differences by reason."""
        return Counter(difference.fault for difference in self.differences)
