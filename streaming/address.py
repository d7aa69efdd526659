"""Addresses of HTTP servers."""

import ipaddress
import socket
from typing import Final, NamedTuple
from urllib.parse import urlsplit

OFF = "off"
"""Word for no server."""

_LARGEST_PORT = 65_535
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class Address(NamedTuple):
    """Host and port to listen on; port 0 takes a free one."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """True if only this machine reaches it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def listen(self) -> socket.socket:
        """Return a listening socket; the kernel queues connections until a server accepts them.

        Raises:
            OSError: the address cannot be listened on.
        """
        family, kind, protocol, _, place = socket.getaddrinfo(
            self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(place)
            listening.listen()
        except OSError:
            listening.close()
            raise
        return listening

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse(text: str) -> Address | None:
    """Return the address of `HOST:PORT`; None for `off`.

    Raises:
        ValueError: it is neither.
    """
    if text == OFF:
        return None
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (host and port.isascii() and port.isdecimal() and int(port) <= _LARGEST_PORT):
        raise ValueError(f"must be HOST:PORT, as 127.0.0.1:9464, or off, not {text!r}")
    return Address(host, int(port))


def host_name(host: str) -> str:
    """Return the name in a Host header without its port, or an empty text if the header is malformed."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def is_loopback_name(host: str) -> bool:
    """Tell whether a Host header names the loopback interface."""
    return host_name(host) in _LOOPBACK
