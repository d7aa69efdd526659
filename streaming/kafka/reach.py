"""Reachability check of Kafka brokers, with progress in the log.

Kafka's clients retry silently until a response is overdue, and then have no reason.
"""

import logging
import re
import socket
import time
from collections.abc import Callable
from typing import Final

from streaming.errors import ConfigInvalid, KafkaUnavailable

log = logging.getLogger("reexpand")

WAIT_SECONDS: Final = 10.0
"""Time in seconds that a verb waits for a broker that accepts no connection."""

_CONNECT_SECONDS: Final = 3.0
_PAUSE_SECONDS: Final = 0.5
_REPORT_SECONDS: Final = 5.0
"""Time in seconds between two lines of the log."""

_ADDRESS: Final = re.compile(r"(?:\w+://)?\[?(?P<host>[^\[\]\s/]+?)\]?:(?P<port>\d{1,5})")
"""Address of a broker, with the name of a security protocol before it if librdkafka is to have it."""


def wait_for_broker(
    bootstrap_servers: str,
    seconds: float | None = None,
    failure: Callable[[str], Exception] = KafkaUnavailable,
    *,
    is_over: Callable[[], bool] = lambda: False,
) -> None:
    """Wait until one of the addresses accepts a connection, and log progress.

    Args:
        bootstrap_servers: addresses of Kafka brokers.
        seconds: longest wait; `WAIT_SECONDS` by default.
        failure: makes an exception of the sentence, if no address accepts a connection in time.
        is_over: predicate that ends the wait early, without an exception.

    Raises:
        ConfigInvalid: an address is not host:port.
    """
    addresses = [_parsed(server.strip()) for server in bootstrap_servers.split(",") if server.strip()]
    seconds = WAIT_SECONDS if seconds is None else seconds
    start = time.monotonic()
    said_at = start - _REPORT_SECONDS
    while not is_over():
        reasons = [reason for address in addresses if (reason := _obstacle(*address)) is not None]
        if len(reasons) < len(addresses):
            return
        now = time.monotonic()
        if now - start >= seconds:
            raise failure(
                f"no Kafka broker answers at {bootstrap_servers} within {seconds:g} s: {'; '.join(reasons)}. "
                "Check the address, and that the broker runs."
            )
        if now - said_at >= _REPORT_SECONDS:
            said_at = now
            left = seconds - (now - start)
            log.info("connecting to %s: %s; %.0f s left", bootstrap_servers, "; ".join(reasons), left)
        time.sleep(_PAUSE_SECONDS)


def _parsed(server: str) -> tuple[str, int]:
    found = _ADDRESS.fullmatch(server)
    if not found or not 0 < int(found["port"]) < 65_536:  # noqa: PLR2004 - the number of ports
        raise ConfigInvalid(f"bootstrap_servers must be host:port[,host:port...]: {server!r} is not")
    return found["host"], int(found["port"])


def _obstacle(host: str, port: int) -> str | None:
    """Return the reason for which an address accepts no connection, or None."""
    try:
        socket.create_connection((host, port), timeout=_CONNECT_SECONDS).close()
    except socket.gaierror:
        return f"the name {host} is not known"
    except TimeoutError:
        return f"{host}:{port} does not answer"
    except OSError as error:
        return f"{host}:{port}: {(error.strerror or str(error)).lower()}"
    return None
