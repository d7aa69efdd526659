"""Client of RocketMQ's remoting protocol: frames of a JSON header and a body, multiplexed over one connection.

Sources: `org.apache.rocketmq.remoting.protocol.RemotingCommand`, `org.apache.rocketmq.acl.common.AclClientRPCHook` and
`TlsSystemConfig` of RocketMQ 5.5.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import ssl
import struct
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import orjson

from streaming.errors import ConfigInvalid
from streaming.kafka.options import read_options

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
    from pathlib import Path

SUCCESS = 0
_RESPONSE_FLAG = 1
_LENGTHS = struct.Struct(">II")
_LENGTH_BYTES = 4
_MAX_FRAME_BYTES = 64 * 1024 * 1024
"""Maximum size of an accepted frame. RocketMQ's own limit is 16 MB."""

_READ_BYTES = 256 * 1024
"""Maximum number of bytes per read."""

_CONNECT_SECONDS = 5.0
_LOGIN = ("accessKey", "secretKey")
_TRUST, _CERTIFICATE, _KEY = "tls.client.trustCertPath", "tls.client.certPath", "tls.client.keyPath"
_NAMES = (*_LOGIN, _TRUST, _CERTIFICATE, _KEY)


@dataclass(frozen=True)
class RocketMQAccess:
    """Login and TLS of a remoting client. The default uses neither.

    Attributes:
        access_key: user name; empty for no login.
        secret_key: password of the user.
        tls: TLS context; None for plain connections.
    """

    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None

    def signed(self, fields: Mapping[str, str], body: bytes) -> Mapping[str, str]:
        """Add user and signature to the header fields of a request, if there is a login."""
        if not self.access_key:
            return fields
        named = {**fields, "AccessKey": self.access_key}
        content = "".join(named[name] for name in sorted(named)).encode() + body
        digest = hmac.digest(self.secret_key.encode(), content, "sha1")
        return {**named, "Signature": base64.b64encode(digest).decode()}


def load_access(path: Path | None) -> RocketMQAccess:
    """Read an options file that uses the option names of RocketMQ's own tools.

    The CA must not sign certificates of other services, because host names are not verified. RocketMQ's own clients do
    not verify them either. Without a file there is neither login nor TLS.

    Raises:
        ConfigInvalid: the file or a certificate cannot be read, or an option is unknown or incomplete.
    """
    if path is None:
        return RocketMQAccess()
    given = read_options(path)
    for name in given:
        if name not in _NAMES:
            raise ConfigInvalid(f"{path}: unknown option {name}; expected one of {', '.join(_NAMES)}")
    for one, other in (_LOGIN, _LOGIN[::-1], (_CERTIFICATE, _KEY), (_KEY, _CERTIFICATE), (_CERTIFICATE, _TRUST)):
        if given.get(one) and not given.get(other):
            raise ConfigInvalid(f"{path}: {one} needs {other} as well")
    access = RocketMQAccess(given.get("accessKey", ""), given.get("secretKey", ""))
    if not given.get(_TRUST):
        return access
    context, name = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), _TRUST
    context.check_hostname = False
    try:
        context.load_verify_locations(path.parent / given[_TRUST])
        if given.get(_CERTIFICATE):
            name = f"{_CERTIFICATE} or {_KEY}"
            # Reject an encrypted key: without a password OpenSSL would prompt for one on the terminal.
            context.load_cert_chain(path.parent / given[_CERTIFICATE], path.parent / given[_KEY], password="")
    except OSError as error:
        raise ConfigInvalid(f"{path}: {name} cannot be used ({error.strerror or error})") from None
    return replace(access, tls=context)


_OPEN = RocketMQAccess()


class Unreachable(Exception):
    """A server does not answer, or the connection to it was closed."""


class Refused(Exception):
    """A server answered with an error, whose code is in `ResponseCode`."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(f"code {code}: {remark}")
        self.code = code


class Response(NamedTuple):
    """Response of a server, with a code of `ResponseCode` and a remark, usually about an error."""

    code: int
    fields: Mapping[str, str]
    remark: str
    body: bytes

    def checked(self) -> Response:
        """Return this response if it reports success; otherwise raise `Refused`."""
        if self.code != SUCCESS:
            raise Refused(self.code, self.remark)
        return self

    def json(self) -> Any:
        """Parse the body of a successful response.

        Raises:
            Refused: the response reports an error.
            Unreachable: the body is not JSON.
        """
        try:
            return orjson.loads(self.checked().body)
        except orjson.JSONDecodeError as error:
            raise Unreachable(f"the response is not JSON ({error})") from None


def encode(
    code: int, opaque: int, fields: Mapping[str, object], body: bytes = b"", access: RocketMQAccess = _OPEN
) -> bytes:
    """Encode a request frame."""
    # Java writes truth values in lower case.
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in fields.items()}
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
    # The upper byte of the second length is the header format: 0 for JSON.
    return _LENGTHS.pack(4 + len(header) + len(body), len(header)) + header + body


def decode(frame: bytes) -> tuple[int, bool, Response]:
    """Decode a frame after its first length: number, is a response, content.

    Raises:
        Unreachable: the frame has no JSON header, because the server uses another protocol.
    """
    try:
        size = int.from_bytes(frame[:4])  # the upper byte is the header format, 0 for JSON
        header = orjson.loads(frame[4 : 4 + size])
        fields = {name: str(value) for name, value in (header.get("extFields") or {}).items()}
        content = Response(header["code"], fields, header.get("remark") or "", frame[4 + size :])
        return header["opaque"], bool(header["flag"] & _RESPONSE_FLAG), content
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unreachable(f"does not use RocketMQ's protocol ({error})") from None


class Link:
    """Connection to a name server or a broker, opened on first use and again after it was closed.

    Any number of requests may be pending at a time. An `async with` block closes the connection.
    """

    def __init__(self, address: str, access: RocketMQAccess = _OPEN) -> None:
        self.address = address
        self._access = access
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[Response]] = {}
        self._opening = asyncio.Lock()
        self._connection: tuple[asyncio.StreamWriter, asyncio.Task[None]] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def ask(
        self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b"", *, seconds: float = 5
    ) -> Response:
        """Send a request, with a code of `RequestCode`; return any response.

        Raises:
            Unreachable: the server did not respond in time, or the connection failed.
        """
        writer = await self._open()
        number = next(self._numbers)
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            async with asyncio.timeout(seconds):
                writer.write(encode(code, number, fields or {}, body, self._access))
                await writer.drain()
                return await answer
        except TimeoutError:
            writer.transport.abort()  # the connection may be dead without a sign, so the next request opens another
            raise Unreachable(f"{self.address} does not answer within {seconds:.0f} s") from None
        except OSError as error:
            raise Unreachable(f"{self.address}: {error}") from None
        finally:
            del self._waiting[number]

    async def close(self) -> None:
        """Close the connection. Pending requests fail."""
        if self._connection is None:
            return
        writer, reading = self._connection
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    async def _open(self) -> asyncio.StreamWriter:
        async with self._opening:
            if self._connection is not None and self._connection[0].is_closing():
                await asyncio.wait([self._connection[1]])  # it fails the requests of this connection
            if self._connection is None or self._connection[1].done():
                host, _, port = self.address.rpartition(":")
                host = host.removeprefix("[").removesuffix("]")  # an IPv6 address, as RocketMQ writes it
                try:
                    async with asyncio.timeout(_CONNECT_SECONDS):
                        reader, writer = await asyncio.open_connection(host, int(port), ssl=self._access.tls)
                except TimeoutError:
                    message = f"{self.address} does not answer within {_CONNECT_SECONDS:.0f} s"
                    raise Unreachable(message) from None
                except (OSError, ValueError, OverflowError) as error:  # overflow: no port
                    raise Unreachable(f"{self.address} cannot be reached ({error})") from None
                self._connection = writer, asyncio.create_task(self._read(reader, writer))
            return self._connection[0]

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Deliver each response to its waiting request. Ignore requests that the server initiates."""
        reason = "has closed the connection"
        try:
            async for frame in _frames(reader):
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
            writer.close()


async def _frames(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield the frames that arrive. One read takes many small frames."""
    received = bytearray()
    while chunk := await reader.read(_READ_BYTES):
        received += chunk
        start = 0
        while len(received) - start >= _LENGTH_BYTES:
            size = int.from_bytes(received[start : start + _LENGTH_BYTES])
            if size > _MAX_FRAME_BYTES:
                raise Unreachable(f"sends a frame of {size} bytes, which is not RocketMQ's protocol")
            end = start + _LENGTH_BYTES + size
            if end > len(received):
                break
            yield bytes(received[start + _LENGTH_BYTES : end])
            start = end
        del received[:start]


async def together(work: Iterable[Coroutine[object, object, None]]) -> None:
    """Run coroutines concurrently. On the first error, cancel the others and raise it."""
    try:
        async with asyncio.TaskGroup() as tasks:
            for each in work:
                tasks.create_task(each)
    except ExceptionGroup as group:  # the first error cancelled the others
        raise group.exceptions[0] from None
