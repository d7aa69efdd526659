"""Brokers of the fixtures."""

from collections.abc import Callable
from dataclasses import dataclass

from streaming.local.broker import Broker

StartBroker = Callable[..., Broker]
"""Starter of an embedded broker that the test may kill, with folder and options of `Broker`."""


@dataclass(frozen=True)
class SharedBroker:
    """Broker shared by all tests of a session, `container` or `embedded`. Each test uses its own topics."""

    bootstrap_servers: str
    kind: str
