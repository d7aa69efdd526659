"""Findings of a verification: rows about which inputs, state and updates disagree, each with the reason."""

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
    Fault.SURPLUS_UPDATE: "the updates topic holds an ADD of a row that does not hold; --repair writes the REMOVE",
    Fault.MISSING_UPDATE: "the row holds, and the updates topic has no ADD of it; --repair writes the ADD",
    Fault.WRONG_VALUE: "the ADD of the row names patterns or a version that it never had; --repair writes the ADD",
    Fault.STATE_DIFFERS: "the state of the job is not what the inputs say; `reexpand rebuild` makes a new checkpoint",
    Fault.STATE_DAMAGED: "the state of this shard cannot be read; restore the checkpoint, or use `reexpand rebuild`",
    Fault.QUOTA_ORDER: "a quota refused a request of this group: which topics it found depends on the micro-batches",
}

REPAIRABLE = frozenset({Fault.SURPLUS_UPDATE, Fault.MISSING_UPDATE, Fault.WRONG_VALUE})
"""Faults of the updates topic alone."""

UNDECIDED = frozenset({Fault.QUOTA_ORDER})
"""Faults that are none where the micro-batches were cut in another way."""


class RowName(NamedTuple):
    """Fields that name a row of the relation; the part is blank for a client as a whole."""

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
    """A row about which the witnesses disagree.

    Attributes:
        key: of its updates.
        inputs, state, updates: True where they say that the row holds; None where they were not, or cannot be, read.
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
    """What a verification found.

    Attributes:
        micro_batch: the committed micro-batch after which inputs, state and updates were compared.
        rows: number of rows by witness; None for the inputs where they were not read.
        in_flight: number of rows that were about to change, and were not judged.
        differences: in order of their keys.
        damaged: shards whose state cannot be read.
        notes: sentences about what was not looked at, and why.
        mended: number of rows that were corrected, by reason.
    """

    micro_batch: int
    rows: dict[str, int | None] = field(default_factory=dict)
    in_flight: int = 0
    differences: list[Difference] = field(default_factory=list)
    damaged: list[DamagedState] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    mended: Counter[Fault] = field(default_factory=Counter)

    @property
    def repaired(self) -> int:
        """Number of rows that were corrected."""
        return self.mended.total()

    @property
    def is_right(self) -> bool:
        """True if inputs, state and updates agree, as far as it can be decided."""
        return not self.damaged and all(difference.fault in UNDECIDED for difference in self.differences)

    @property
    def repairable(self) -> list[Difference]:
        """Differences that corrections in the updates topic mend."""
        return [difference for difference in self.differences if difference.fault in REPAIRABLE]

    @property
    def doubted(self) -> set[bytes]:
        """Keys of the rows whose ADD has a wrong value."""
        return {difference.key for difference in self.differences if difference.fault is Fault.WRONG_VALUE}

    def by_fault(self) -> Counter[Fault]:
        """Return the number of differences by reason."""
        return Counter(difference.fault for difference in self.differences)
