"""Brokers as fixtures hand them to tests."""

from collections.abc import Callable
from dataclasses import dataclass

from streaming.local.broker import Broker

StartBroker = Callable[..., Broker]
"""Starts an embedded broker that the test may kill, in a folder and with options of `Broker`."""


@dataclass(frozen=True)
class SharedBroker:
    """The broker that all tests of a session share: each uses topics of its own.

    Attributes:
        kind: `container` or `embedded`.
    """

    bootstrap_servers: str
    kind: str
