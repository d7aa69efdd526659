"""What every peer in Python has to do with who starts it."""

import os
import sys


def setting(name: str) -> str:
    """What the environment says."""
    return os.environ[f"REEXPAND_{name}"]


def say_ready() -> None:
    """Says that events are read from now on."""
    sys.stderr.write("ready: reading\n")
    sys.stderr.flush()
