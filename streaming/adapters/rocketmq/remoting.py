"""RocketMQ's remoting protocol: frames of a JSON header and a body, and a connection that multiplexes requests.

Source: `org.apache.rocketmq.remoting.protocol.RemotingCommand` of RocketMQ 5.5.
"""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import orjson

from streaming.adapters.rocketmq.access import RocketMQAccess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

SUCCESS = 0
_RESPONSE_FLAG = 1
_LENGTHS = struct.Struct(">II")
_MAX_FRAME_BYTES = 64 * 1024 * 1024
"""Largest frame that is read; RocketMQ's own limit is 16 MB."""


_LENGTH_BYTES = 4
_READ_BYTES = 256 * 1024
"""Most bytes that one read of a connection takes."""


class Unreachable(Exception):
    """A server does not answer, or the connection to it has ended."""


class Refused(Exception):
    """A server answered with an error.

    Attributes:
        code: its code, as in `ResponseCode`.
    """

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(f"code {code}: {remark}")
        self.code = code


class Response(NamedTuple):
    """Answer of a server.

    Attributes:
        code: 0, or the kind of another outcome.
        fields: fields of the header, as texts.
        remark: text for people, mostly of an error.
        body: body of the frame.
    """

    code: int
    fields: Mapping[str, str]
    remark: str
    body: bytes

    def checked(self) -> Response:
        """Return this answer, if it is no error.

        Raises:
            Refused: it is one.
        """
        if self.code != SUCCESS:
            raise Refused(self.code, self.remark)
        return self


_OPEN = RocketMQAccess()


def encode(
    code: int, opaque: int, fields: Mapping[str, object], body: bytes = b"", access: RocketMQAccess = _OPEN
) -> bytes:
    """Return the frame of a request."""
    texts = {name: _text(value) for name, value in fields.items()}
    header = orjson.dumps(
        {
            "code": code,
            "language": "PYTHON",
            "version": 0,
            "opaque": opaque,
            "flag": 0,
            "extFields": access.signed(texts, body),
        }
    )
    # The upper byte of the second length names the kind of header: 0 for JSON.
    return _LENGTHS.pack(4 + len(header) + len(body), len(header)) + header + body


def decode(frame: bytes) -> tuple[int, bool, Response]:
    """Return number, kind (True for an answer, False for a request of the server) and content of a frame.

    Args:
        frame: bytes after the first length.

    Raises:
        Unreachable: it is no frame with a JSON header: another protocol is spoken there.
    """
    try:
        size = int.from_bytes(frame[:4])  # with the kind of header in its upper byte, 0 for JSON
        header = orjson.loads(frame[4 : 4 + size])
        fields = {name: str(value) for name, value in (header.get("extFields") or {}).items()}
        content = Response(header["code"], fields, header.get("remark") or "", frame[4 + size :])
        return header["opaque"], bool(header["flag"] & _RESPONSE_FLAG), content
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unreachable(f"does not speak RocketMQ's protocol ({error})") from None


class Connection:
    """A connection to a name server or a broker, opened by `connect`; many requests may be under way at once."""

    def __init__(
        self, address: str, access: RocketMQAccess, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.address = address
        self._access = access
        self._reader = reader
        self._writer = writer
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[Response]] = {}
        self._task = asyncio.create_task(self._read())

    @property
    def is_open(self) -> bool:
        """True until the connection has ended."""
        return not self._task.done()

    async def ask(
        self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b"", *, seconds: float = 5
    ) -> Response:
        """Send a request and return its answer, whatever its code.

        Args:
            code: kind of request, as in `RequestCode`.
            fields: fields of its header.
            body: its body.
            seconds: longest wait for the answer.

        Raises:
            Unreachable: there is no answer in time, or the connection has ended.
        """
        if not self.is_open:
            raise Unreachable(f"{self.address} has closed the connection")
        number = next(self._numbers)
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            async with asyncio.timeout(seconds):
                self._writer.write(encode(code, number, fields or {}, body, self._access))
                await self._writer.drain()
                return await answer
        except TimeoutError:
            raise Unreachable(f"{self.address} does not answer within {seconds:.0f} s") from None
        except OSError as error:
            raise Unreachable(f"{self.address}: {error}") from None
        finally:
            del self._waiting[number]

    async def close(self) -> None:
        """Close the connection; requests under way fail."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()

    async def _read(self) -> None:
        """Hand answers to those who wait; what the server itself asks or announces is left out."""
        reason = "has closed the connection"
        try:
            async for frame in self._frames():
                number, is_answer, content = decode(frame)
                waiting = self._waiting.get(number)
                if is_answer and waiting is not None and not waiting.done():
                    waiting.set_result(content)
        except OSError:
            pass
        except Unreachable as error:
            reason = str(error)
        finally:
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(Unreachable(f"{self.address} {reason}"))
            self._writer.close()

    async def _frames(self) -> AsyncIterator[bytes]:
        """Yield the frames that arrive; many small ones arrive at once, and one read takes them all."""
        received = bytearray()
        while chunk := await self._reader.read(_READ_BYTES):
            received += chunk
            start = 0
            while len(received) - start >= _LENGTH_BYTES:
                size = int.from_bytes(received[start : start + _LENGTH_BYTES])
                if size > _MAX_FRAME_BYTES:
                    raise Unreachable(f"sends a frame of {size} bytes, so it does not speak RocketMQ's protocol")
                end = start + _LENGTH_BYTES + size
                if end > len(received):
                    break
                yield bytes(received[start + _LENGTH_BYTES : end])
                start = end
            del received[:start]


async def connect(address: str, access: RocketMQAccess = _OPEN, seconds: float = 5) -> Connection:
    """Open a connection.

    Args:
        address: HOST:PORT.
        access: login and TLS.
        seconds: longest wait.

    Raises:
        Unreachable: nobody listens there.
    """
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(host, int(port), ssl=access.tls)
    except TimeoutError:
        raise Unreachable(f"{address} does not answer within {seconds:.0f} s") from None
    except (OSError, ValueError) as error:
        raise Unreachable(f"{address} cannot be reached ({error})") from None
    return Connection(address, access, reader, writer)


class Link:
    """A server, with a connection that is opened when it is needed, and closed at the end of an `async with` block."""

    def __init__(self, address: str, access: RocketMQAccess = _OPEN) -> None:
        self.address = address
        self._access = access
        self._connection: Connection | None = None
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def ask(
        self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b"", *, seconds: float = 5
    ) -> Response:
        """Send a request, over a new connection where the former one has ended.

        Raises:
            Unreachable: as for `Connection.ask`.
        """
        async with self._opening:
            if self._connection is None or not self._connection.is_open:
                self._connection = await connect(self.address, self._access)
            connection = self._connection
        return await connection.ask(code, fields, body, seconds=seconds)

    async def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            await self._connection.close()


def _text(value: object) -> str:
    """Return a field as Java writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def loads(body: bytes) -> Any:
    """Return the JSON of a body.

    Raises:
        Unreachable: it is none.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Unreachable(f"the answer is no JSON ({error})") from None
