"""A kind of selectors that ends or stops the process which evaluates it, as a defect in foreign code does."""

import os
import signal
import time
from collections.abc import Collection, Mapping
from pathlib import Path

KIND = "LETHAL"


class Lethal:
    """Selector that agrees with all topics but those with the property `deed`, whose value it carries out."""

    def __init__(self, text: str) -> None:
        """Take any text."""

    def agrees(self, tags: Collection[str], properties: Mapping[str, str]) -> bool:  # noqa: ARG002 - the interface
        """Return True, or never return."""
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
                while True:
                    hoard.append(bytes([1]) * 10_000_000)
        return True
