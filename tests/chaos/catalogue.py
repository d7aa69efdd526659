"""All faults: importing their modules registers them, in the order in which they are played."""

from tests.chaos import model
from tests.chaos.faults import broker, checkpoint, driver, inputs, machine, topics, workers  # noqa: F401 - in order

FAULTS = model.FAULTS
"""All faults by name."""
