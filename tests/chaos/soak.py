"""Load for a long time, with faults at random times, while sizes and relation are looked at once a minute.

`python -m tests.chaos.soak [--minutes N] [--calm] [--seed N] [--out FOLDER]`; the exit code is 1 when the relation was
wrong at any time, or a fault made the job do what it should not.
"""

import argparse
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Final

from rich.console import Console

from streaming.local.broker import Broker
from streaming.local.java import short_lived
from tests.chaos import sampling
from tests.chaos.catalogue import FAULTS
from tests.chaos.model import Fault, StruckIdleError
from tests.chaos.stage import Stage
from tests.support.processes import ends_in_order

RESULTS: Final = Path(".reexpand/soak")
MINUTE: Final = 60
PAUSES: Final = (5, 40)
"""Shortest and longest time between the end of a fault and the next one, in seconds."""


class Soak:
    """Stage with random faults. A calm run has none."""

    def __init__(self, stage: Stage, random: Random, faults: list[Fault], console: Console) -> None:
        self._stage = stage
        self._random = random
        self._faults = faults
        self._console = console
        self._begun = time.monotonic()
        self._struck = 0
        self.samples: list[sampling.Sample] = []

    def last(self, seconds: float, file: Path) -> None:
        """Go on for some seconds; write the samples to a file after each."""
        stage = self._stage
        stage.start()
        stage.load.go()
        stage.answers()
        while time.monotonic() - self._begun < seconds:
            looked = time.monotonic()
            while time.monotonic() - looked < MINUTE:
                time.sleep(self._random.uniform(*PAUSES))
                if self._faults:
                    self._strike(self._random.choice(self._faults))
            self._sample(file)
            stage.load.go()

    def _strike(self, fault: Fault) -> None:
        stage = self._stage
        try:
            struck = fault.strike(stage)
        except StruckIdleError:
            self._say(f"{fault.name}: struck idle")
        else:
            self._struck += 1
            self._say(f"{fault.name} ({struck.proof}): {struck.outcome}")
        if not stage.is_up:
            stage.start()
        stage.load.go()
        stage.answers()

    def _sample(self, file: Path) -> None:
        found = sampling.sample(self._stage, self._begun, self._struck)
        self.samples.append(found)
        sampling.write(self.samples, file)
        self._say(
            f"{found.rows:,} rows, {found.missing} missing, {found.surplus} surplus; "
            f"JVM {found.jvm_mb} MB, workers {found.workers_mb} MB, state {found.state_kb:,} kB, {found.files} files"
        )

    def _say(self, text: str) -> None:
        self._console.print(f"{time.monotonic() - self._begun:6.0f} s  {text}", highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--calm", action="store_true", help="no faults, only the load")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for samples.csv")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of events, faults and times")
    given = parser.parse_args()
    if not given.calm:
        os.environ.update(short_lived(os.environ))  # most jobs of this run are killed within minutes
    ends_in_order()
    given.out.mkdir(parents=True, exist_ok=True)
    console = Console(stderr=True)
    faults = [] if given.calm else [fault for fault in FAULTS.values() if fault.survivable]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True)))
        broker = stack.enter_context(Broker(folder / "kafka"))
        stage = Stage(broker, folder / "stage", given.seed)
        stack.callback(stage.close)
        soak = Soak(stage, Random(given.seed), faults, console)
        console.print(f"seed {given.seed}, {given.minutes:g} minutes, {len(faults)} faults to draw from")
        failure = ""
        try:
            soak.last(given.minutes * MINUTE, given.out / "samples.csv")
        except AssertionError as error:
            failure = str(error)
    if soak.samples:
        Console().print(sampling.as_screen(soak.samples))
    console.print(failure, style="bold red")
    sys.exit(1 if failure or any(each.missing or each.surplus or each.repeated for each in soak.samples) else 0)


if __name__ == "__main__":
    main()
