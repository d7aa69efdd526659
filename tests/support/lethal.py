"""Selector type that kills or hangs the evaluating process, as a defect in third-party code does."""

import os
import signal
import time
from collections.abc import Collection, Mapping
from pathlib import Path

KIND = "LETHAL"


class Lethal:
    """Selector that accepts all topics, except that it executes the value of the property `deed`."""

    def __init__(self, text: str) -> None:
        """Accept any text."""

    def agrees(self, tags: Collection[str], properties: Mapping[str, str]) -> bool:  # noqa: ARG002 - the interface
        match properties.get("deed"):
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "kill once":
                flag = Path(properties["flag"])
                if not flag.exists():
                    flag.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
            case "pause":
                time.sleep(1.3)
            case "sleep":
                time.sleep(1_000)
            case "grow":
                hoard = []
                while True:  # 200 MB in a second at most, so the parent sees it before all memory is taken
                    hoard.append(bytes([1]) * 2_000_000)
                    time.sleep(0.01)
        return True
