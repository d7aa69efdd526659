"""Python workers are killed."""

import os
import signal
import time
from contextlib import suppress

from tests.chaos.model import Struck, fault
from tests.chaos.stage import Stage

ROUNDS = 8


@fault("worker-killed", "SIGKILL to one Python worker in a micro-batch", survivable=True)
def _(stage: Stage) -> Struck:
    proof = stage.strikes(lambda: os.kill(stage.random.choice(stage.running.workers()), signal.SIGKILL))
    assert stage.is_up, stage.running.said()
    return Struck(proof, "Spark runs its task again")


@fault(
    "workers-killed",
    f"SIGKILL to all Python workers and their daemon, {ROUNDS} times, 2 s apart",
    "start the job",
    survivable=True,
)
def _(stage: Stage) -> Struck:
    proof = stage.strikes(lambda: _kill(stage))
    for _ in range(ROUNDS - 1):
        time.sleep(2)
        _kill(stage)
    time.sleep(1)
    return stage.survives(proof, "Spark starts others, and runs their tasks again")


@fault("workers-never-live", "SIGKILL to all Python workers every 50 ms for 10 s", "start the job", survivable=True)
def _(stage: Stage) -> Struck:
    def blow() -> None:
        end = time.monotonic() + 10
        while time.monotonic() < end and stage.is_up:
            _kill(stage)
            time.sleep(0.05)

    proof = stage.strikes(blow)
    return stage.survives(proof, "Spark goes on with others", seconds=10)


def _kill(stage: Stage) -> None:
    """Kill the Python processes that work now; Spark starts new ones, as long as it lives."""
    for worker in stage.running.workers():
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
