"""Condition of a job, for liveness and readiness probes."""

import threading
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, NamedTuple

from streaming.printable import counted

BEHIND_SECONDS: Final = 60.0
"""Lag in seconds above which a ready job counts as catching up."""

CAUGHT_UP_SECONDS: Final = 5.0
"""Lag in seconds below which a catching-up job counts as ready."""


class Condition(StrEnum):
    """Condition of a job."""

    STARTING = "starting"
    STANDING_BY = "standing-by"
    CATCHING_UP = "catching-up"
    READY = "ready"
    KAFKA_UNREACHABLE = "kafka-unreachable"
    HUNG = "hung"
    STOPPING = "stopping"


class Answer(NamedTuple):
    """Response to a probe: condition of the job, the same as a sentence, and additional facts."""

    condition: Condition
    reason: str
    details: dict[str, Any]

    @property
    def is_alive(self) -> bool:
        """False if a restart would help, because a micro-batch hangs."""
        return self.condition is not Condition.HUNG

    def is_ready(self, *, as_holder: bool = False) -> bool:
        """Return True if the job writes updates in time, or is a standby.

        `as_holder` excludes standbys.
        """
        return self.condition is Condition.READY or (self.condition is Condition.STANDING_BY and not as_holder)

    def body(self) -> dict[str, Any]:
        """Return the JSON fields of the response."""
        return {"state": self.condition, "alive": self.is_alive, "ready": self.is_ready(), "reason": self.reason,
                **self.details}  # fmt: skip


class Health:
    """Thread-safe condition of a job, whose micro-batches count as hung after `hang_seconds`."""

    def __init__(self, hang_seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._hang_seconds = hang_seconds
        self._now = now
        self._began = now()
        self._phase, self._about = Condition.STARTING, "Spark starts"
        self._batch = -1
        self._running: tuple[int, float] | None = None
        self._looked = now()
        self.unreachable_seconds = 0.0
        self._back = now()
        self.is_catching_up = True
        self._lag: tuple[int, float] | None = None
        self.former = "unknown"  # how the former driver of the checkpoint has ended

    @property
    def uptime(self) -> float:
        """Seconds since the start."""
        return self._now() - self._began

    def enter(self, phase: Condition, about: str) -> None:
        """Enter a phase: starting, standing by, ready (the query runs), or stopping."""
        with self._lock:
            self._phase, self._about = phase, about
            self._looked = self._now()

    def look(self, batch: int, *, is_running: bool) -> None:
        """Record the last committed micro-batch, and if the next one is running."""
        with self._lock:
            self._looked = self._now()
            if not is_running:
                self._running = None
            elif self._running is None or self._batch != batch:
                self._running = (batch + 1, self._looked)
            self._batch = batch

    def note_kafka(self, *, unreachable_for: float) -> None:
        """Record the seconds since Kafka's last response; 0 if Kafka answers."""
        with self._lock:
            if self.unreachable_seconds and not unreachable_for:
                self._back = self._now()
            self.unreachable_seconds = unreachable_for

    def note_lag(self, records: int, seconds: float) -> None:
        """Record the lag of the inputs."""
        with self._lock:
            self._lag = (records, seconds)
            self.is_catching_up = seconds > (CAUGHT_UP_SECONDS if self.is_catching_up else BEHIND_SECONDS)

    def answer(self) -> Answer:
        """Return the condition of the job."""
        with self._lock:
            condition, reason = self._judge()
            details = {
                "uptime_seconds": round(self.uptime, 1),
                "micro_batch": self._batch if self._batch >= 0 else None,
                "lag_records": self._lag[0] if self._lag else None,
                "lag_seconds": round(self._lag[1], 1) if self._lag else None,
                "former_driver": self.former,
            }
        return Answer(condition, reason, details)

    def _judge(self) -> tuple[Condition, str]:
        if self._phase is not Condition.READY:
            return self._phase, self._about
        if hung := self._hung():
            return Condition.HUNG, hung
        if self.unreachable_seconds:
            return Condition.KAFKA_UNREACHABLE, f"Kafka has not answered for {self.unreachable_seconds:.0f} s"
        if self._lag is None:
            return Condition.CATCHING_UP, "the query is running; its lag is not yet known"
        records, seconds = self._lag
        if self.is_catching_up:
            return (
                Condition.CATCHING_UP,
                f"{counted(records, 'record is', 'records are')} unread, the oldest for {seconds:.0f} s",
            )
        return Condition.READY, self._about

    def _hung(self) -> str | None:
        """Return the reason if the job counts as hung, or None."""
        silent = self._now() - self._looked
        if silent > self._hang_seconds:
            return f"the driver has not checked the query for {silent:.0f} s: Spark does not answer"
        if self._running is None or self.unreachable_seconds:
            return None
        number, since = self._running
        running = self._now() - max(since, self._back)  # time without Kafka does not count
        return f"micro-batch {number} has been running for {running:.0f} s" if running > self._hang_seconds else None
