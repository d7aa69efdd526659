"""All faults: importing a module registers its faults."""

from importlib import import_module

from tests.chaos import model

for _family in ("driver", "workers", "broker", "inputs", "checkpoint", "topics", "machine"):  # as they are played
    import_module(f"tests.chaos.faults.{_family}")

FAULTS = model.FAULTS
"""All faults by name."""
