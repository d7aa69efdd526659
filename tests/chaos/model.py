"""Faults, and what came of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.chaos.judge import Verdict
    from tests.chaos.stage import Stage


class StruckIdleError(Exception):
    """A fault struck while no work was left: it proves nothing, and is repeated."""


@dataclass(frozen=True)
class Proof:
    """Work that was left when a fault struck.

    Attributes:
        planned: a micro-batch was planned and not committed.
        unread: number of offsets of the inputs that no committed micro-batch had read; None where Kafka was away.
        transaction: a transaction of the updates topic was open.
    """

    planned: bool = False
    unread: float | None = None
    transaction: bool = False

    @property
    def holds(self) -> bool:
        return self.planned or bool(self.unread) or self.transaction

    def __str__(self) -> str:
        found = ["batch planned"] * self.planned + ["transaction open"] * self.transaction
        if self.unread:
            found.append(f"{self.unread:,.0f} unread")
        return ", ".join(found) or "none"


@dataclass(frozen=True)
class Struck:
    """Work that was left when a fault struck, and what the job did then."""

    proof: Proof
    outcome: str


Strike = Callable[["Stage"], Struck]


@dataclass(frozen=True)
class Fault:
    """A fault that strikes a running job under load, and the way back to a running job.

    Attributes:
        operator: what an operator does about it.
        strike: what makes it happen; raises an AssertionError where the job does not do as it should.
        survivable: the job, or its next start, goes on without anybody's help, so that it fits among random ones.
        spends_stage: the inputs cannot be read from their beginning any more, so the next fault gets other ones.
    """

    name: str
    how: str
    operator: str
    strike: Strike
    survivable: bool
    spends_stage: bool


@dataclass(frozen=True)
class Row:
    """A row of the table of results.

    Attributes:
        back: seconds from the end of the fault until a topic that was created then has its update.
        failure: what was not as it should be; empty if all was.
        day: day of the run, as YYYY-MM-DD.
    """

    fault: Fault
    struck: Struck
    verdict: Verdict | None
    back: float
    failure: str
    day: str

    @property
    def right(self) -> bool:
        return not self.failure


FAULTS: dict[str, Fault] = {}
"""All faults by name, in the order in which they are played."""


def fault(
    name: str, how: str, operator: str = "nothing", *, survivable: bool = False, spends_stage: bool = False
) -> Callable[[Strike], Strike]:
    """Register a function as a fault."""

    def register(strike: Strike) -> Strike:
        assert name not in FAULTS, f"two faults are called {name}"
        FAULTS[name] = Fault(name, how, operator, strike, survivable, spends_stage)
        return strike

    return register
