"""Performance of a fault: it strikes a job at work, and what is left is judged."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException

from streaming.local.broker import Broker
from tests.chaos.model import Fault, Proof, Row, Struck, StruckIdleError
from tests.chaos.stage import Stage

LOAD_SECONDS: Final = 5
"""Seconds of load before a fault and after it."""

STRIKES: Final = 3
"""Attempts to strike while there is work."""


class Theatre:
    """Broker with a stage. A stage with a wrong relation is replaced."""

    def __init__(self, broker: Broker, folder: Path, seed: int, options: Sequence[str] = ()) -> None:
        self._broker = broker
        self._folder = folder
        self._seed = seed
        self._options = options
        self._stages = 0
        self._stage: Stage | None = None

    def close(self) -> None:
        self.leave()
        self._broker.kill()

    def leave(self) -> None:
        if self._stage is not None:
            self._stage.close()
        self._stage = None

    def stage(self) -> Stage:
        """Return a stage whose job is at work under load."""
        self._broker.start()
        if self._stage is None:
            self._stages += 1
            folder = self._folder / f"stage-{self._stages}"
            self._stage = Stage(self._broker, folder, self._seed + self._stages, self._options)
        if not self._stage.is_up:
            self._stage.start()
        self._stage.load.go()
        self._stage.answers()
        return self._stage


def play(fault: Fault, theatre: Theatre) -> Row:
    """Let a fault strike and judge what is left; repeat it where it struck idle."""
    struck, verdict, back, failure = Struck(Proof(), ""), None, 0.0, ""
    try:
        for attempt in range(1, STRIKES + 1):
            stage = theatre.stage()
            time.sleep(LOAD_SECONDS)
            try:
                struck = fault.strike(stage)
                break
            except StruckIdleError:
                if attempt == STRIKES:
                    raise AssertionError(f"it struck idle {STRIKES} times") from None
        assert struck.proof.holds, "it struck idle"
        stage.load.go()
        back = stage.answers()
        time.sleep(LOAD_SECONDS)
        verdict = stage.is_right()
        if not verdict.right:
            failure = f"the relation is wrong, such as {verdict.examples}"
    except (AssertionError, KafkaException, OSError) as error:
        failure = f"{type(error).__name__}: {error}"
    if failure or fault.spends_stage:
        theatre.leave()
    return Row(fault, struck, verdict, back, failure, datetime.now(UTC).date().isoformat())
