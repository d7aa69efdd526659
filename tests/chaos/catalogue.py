"""All faults: importing a module registers its faults."""

from importlib import import_module

from tests.chaos import model

_FAMILIES = ("driver", "workers", "broker", "inputs", "tenants", "checkpoint", "topics", "machine")  # in this order

for _family in _FAMILIES:
    import_module(f"tests.chaos.faults.{_family}")

FAULTS = model.FAULTS
"""All faults by name."""
