"""RocketMQ's remoting protocol, against a fake server."""

import asyncio
from collections.abc import Awaitable, Callable

import orjson
import pytest

from streaming.rocketmq.remoting import Link, Refused, Response, Unreachable, decode, encode, together


def frame(opaque: int, flag: int = 1, code: int = 0, body: bytes = b"", **fields: str) -> bytes:
    header = orjson.dumps({"code": code, "opaque": opaque, "flag": flag, "extFields": fields, "remark": "said"})
    return (4 + len(header) + len(body)).to_bytes(4) + len(header).to_bytes(4) + header + body


async def serving(
    answer: Callable[[bytes], list[bytes]],
    work: Callable[[Link], Awaitable[None]],
    *,
    ends: bool = False,
    connections: int = 1,
) -> None:
    """Do some work with a server that answers each request with some frames, or ends the connection then."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while size := int.from_bytes(await reader.read(4)):
            writer.writelines(answer(await reader.readexactly(size)))
            if ends:
                break
        writer.close()
        await writer.wait_closed()
        served.release()

    served = asyncio.Semaphore(0)
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    link = Link(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    try:
        await work(link)
    finally:
        await link.close()
        for _ in range(connections):  # the last ones, if each ends
            await served.acquire()
        server.close()
        await server.wait_closed()


def test_a_request_is_framed_as_java_reads_it() -> None:
    framed = encode(11, 7, {"queueId": 3, "order": False}, b"body")
    assert int.from_bytes(framed[:4]) == len(framed) - 4
    number, is_answer, content = decode(framed[4:])
    assert (number, is_answer) == (7, False)
    assert content == Response(11, {"queueId": "3", "order": "false"}, "", b"body")


@pytest.mark.parametrize("bad", [b"", b"HTTP/1.1 400 Bad Request", b"\0\0\0\2[]", b"\0\0\0\2{}"])
def test_what_is_no_frame_is_told(bad: bytes) -> None:
    with pytest.raises(Unreachable, match="does not use RocketMQ's protocol"):
        decode(bad)


def test_answers_find_their_requests_in_any_order_and_other_frames_are_left_out() -> None:
    waiting: list[int] = []

    def answer(request: bytes) -> list[bytes]:
        waiting.append(decode(request)[0])
        if len(waiting) < 3:
            return [frame(waiting[-1], flag=0), frame(99)]  # a request of the server, and an answer to nothing
        return [frame(number, body=b"%d" % number) for number in reversed(waiting)]

    async def work(link: Link) -> None:
        assert [each.body for each in await asyncio.gather(*(link.ask(1) for _ in range(3)))] == [b"1", b"2", b"3"]

    asyncio.run(serving(answer, work))


def test_a_connection_that_ends_fails_its_requests_and_is_opened_anew() -> None:
    answers = iter([[], [frame(2, body=b"second")]])

    async def work(link: Link) -> None:
        with pytest.raises(Unreachable, match="has closed the connection"):
            await link.ask(1)
        assert (await link.ask(1)).body == b"second"

    asyncio.run(serving(lambda _: next(answers), work, ends=True))


@pytest.mark.parametrize(
    ("answer", "seconds", "raised", "said"),
    [
        (lambda request: [frame(decode(request)[0], code=17)], 60, Refused, "code 17: said"),
        (lambda _: [b"HTTP/1.1 400 Bad Request"], 60, Unreachable, r"a frame of \d+ bytes, which is not RocketMQ's"),
        (lambda _: [], 0.05, Unreachable, "does not answer within 0 s"),
    ],
    ids=["an error", "another protocol", "no answer"],
)
def test_what_is_no_right_answer_is_raised(
    answer: Callable[[bytes], list[bytes]], seconds: float, raised: type[Exception], said: str
) -> None:
    async def work(link: Link) -> None:
        with pytest.raises(raised, match=said) as caught:
            (await link.ask(1, seconds=seconds)).checked()
        assert getattr(caught.value, "code", 17) == 17
        with pytest.raises(Unreachable, match="cannot be reached"):
            await Link("127.0.0.1:1").ask(1)

    asyncio.run(serving(answer, work))


def test_after_a_timeout_a_new_connection_is_opened() -> None:
    """A firewall may have forgotten the former one, which then stays silent."""
    silent = [True]

    def answer(request: bytes) -> list[bytes]:
        if silent:
            return []
        return [frame(orjson.loads(request[4 : 4 + int.from_bytes(request[:4])])["opaque"])]

    async def work(link: Link) -> None:
        with pytest.raises(Unreachable, match="does not answer within"):
            await link.ask(1, seconds=0.1)
        first = link._connection
        silent.clear()
        assert (await link.ask(1, seconds=60)).code == 0
        assert link._connection is not first

    asyncio.run(serving(answer, work, connections=2))


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("[::1]:1", "refused|Connect call failed|Cannot assign"),
        ("127.0.0.1:98766", "port must be 0-65535"),
        ("127.0.0.1", "invalid literal"),
    ],
)
def test_an_address_that_cannot_be_reached_is_told(address: str, reason: str) -> None:
    """IPv6 addresses have brackets, as RocketMQ writes them."""
    with pytest.raises(Unreachable, match=rf"cannot be reached \(.*({reason})"):
        asyncio.run(Link(address).ask(105))


def test_the_first_error_ends_the_rest_and_is_raised() -> None:
    """What goes on after it would change what the next attempt has read."""
    done: list[str] = []

    async def fail() -> None:
        raise OSError("first")

    async def work(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        done.append(name)

    async def run() -> None:
        await together(work(name, 0) for name in "ab")
        with pytest.raises(OSError, match="first"):
            await together([work("late", 60), fail()])
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())
    assert sorted(done) == ["a", "b"]
