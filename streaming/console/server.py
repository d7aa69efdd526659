"""The console on an address of its own, until SIGTERM or Ctrl-C."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from streaming.address import Address, parse
from streaming.console.access import Access
from streaming.errors import AddressUnusable, ConfigInvalid
from streaming.monitor.bounded import BoundedServer
from streaming.monitor.server import checked_token, token_of_file

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from pathlib import Path

    from starlette.applications import Starlette

VARIABLE: Final = "REEXPAND_CONSOLE_TOKEN"
"""Environment variable of the token, where no file names it."""

_GOODBYE_SECONDS: Final = 2
"""Time that answers have at the end, in seconds."""


def address(text: str) -> Address:
    """Read HOST:PORT.

    Raises:
        ConfigInvalid: the text is none.
    """
    try:
        found = parse(text)
    except ValueError:
        found = None
    if found is None:
        raise ConfigInvalid(f"--http {text!r} is no address; it looks as 127.0.0.1:9465")
    return found


def access(where: Address, token: str | None, token_file: Path | None) -> Access:
    """Return who may see a console.

    Args:
        where: its address.
        token: token from the environment.
        token_file: file with the token, which goes before.

    Raises:
        ConfigInvalid: the token is missing where others reach the address, is too short, or cannot be read.
    """
    if token_file is not None:
        return Access(token_of_file(token_file))
    if token is not None:
        return Access(checked_token(token, VARIABLE))
    if where.is_loopback:
        return Access()
    raise ConfigInvalid(
        f"others reach {where.host}, so the console needs a token there: give it by --token-file or in "
        f"{VARIABLE}, or listen on 127.0.0.1"
    )


def serve(app: Starlette, where: Address, opened: Callable[[str], None]) -> None:
    """Serve an application until SIGTERM or Ctrl-C.

    Args:
        app: the application.
        where: its address; port 0 takes a free one.
        opened: called with the URL once it listens.

    Raises:
        AddressUnusable: the address cannot be listened on.
    """
    try:
        listener = where.listen()
    except OSError as error:
        raise AddressUnusable(
            f"the console cannot listen on {where}: {error.strerror or error}. "
            "Choose another address with --http; port 0 takes a free one."
        ) from None
    with listener:
        opened(f"http://{Address(where.host, listener.getsockname()[1])}/")
        _ConsoleServer(app, timeout_graceful_shutdown=_GOODBYE_SECONDS).run(sockets=[listener])


class _ConsoleServer(BoundedServer):
    """Server that ends the streams of open pages before it waits for them."""

    def __init__(self, app: Starlette, **options: Any) -> None:
        super().__init__(app, **options)
        self._close = app.state.close

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End."""
        self._close()
        await super().shutdown(sockets)
