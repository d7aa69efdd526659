"""Live changes as server-sent events."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from typing import Any

import orjson
import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse

from streaming.console import app as module
from streaming.console.app import ChangeStream, ConsoleSources
from streaming.console.explaining import explain_by_updates
from streaming.console.live import LiveRelation
from tests.support.processes import eventually
from tests.support.simulated import Simulated
from tests.support.update_records import add


def sources_of(live: LiveRelation, job: Callable[[], Mapping[str, Any]] | None = None) -> ConsoleSources:
    return ConsoleSources(live, partial(explain_by_updates, live), job=job)


def request(last: str = "") -> Request:
    headers = [(b"last-event-id", last.encode())] if last else []
    return Request({"type": "http", "method": "GET", "path": "/api/stream", "query_string": b"", "headers": headers})


async def events(stream: ChangeStream, last: str = "") -> AsyncGenerator[tuple[str, str, Any]]:
    """Follow a stream: kind, id and content of each event."""
    answer = await stream.follow(request(last))
    assert isinstance(answer, StreamingResponse)
    assert answer.media_type == "text/event-stream"
    async for chunk in answer.body_iterator:
        assert isinstance(chunk, bytes)
        lines = dict(line.split(": ", 1) for line in chunk.decode().strip().split("\n"))
        if "event" in lines:
            yield lines["event"], lines["id"], orjson.loads(lines["data"])


async def first(stream: ChangeStream, kind: str, last: str = "") -> tuple[str, Any]:
    async for found, number, content in events(stream, last):
        if found == kind:
            return number, content
    raise AssertionError


def test_the_state_comes_first_and_changes_as_they_happen(broker: Simulated, live: LiveRelation) -> None:
    async def story() -> None:
        stream = ChangeStream(sources_of(live))
        following = events(stream)
        kind, _, state = await anext(following)
        assert (kind, state["rows"]) == ("state", 5)
        broker.write(add("new", parent="orders"))
        kinds = {"state": state}
        while "changes" not in kinds or kinds["state"]["rows"] != 6:
            kind, _, content = await asyncio.wait_for(anext(following), 60)
            kinds[kind] = content
        (change,) = kinds["changes"]["changes"]
        assert (change["op"], change["topic"], kinds["changes"]["missed"]) == ("ADD", "new", 0)

    asyncio.run(story())


def test_a_change_of_the_job_is_sent_without_its_figures(live: LiveRelation) -> None:
    job = {"state": "running", "level": "good", "reason": "it ticks", "lag_records": 1}

    async def story() -> None:
        following = events(ChangeStream(sources_of(live, lambda: job)))
        _, _, state = await anext(following)
        assert state["job"] == {"state": "running", "level": "good", "reason": "it ticks"}
        job["state"] = "missing"
        kind, _, state = await asyncio.wait_for(anext(following), 10)
        assert (kind, state["job"]["state"]) == ("state", "missing")

    asyncio.run(story())


def test_a_browser_that_comes_back_gets_what_it_has_missed(broker: Simulated, live: LiveRelation) -> None:
    broker.write(add("one", parent="orders"), add("two", parent="orders"), partition=0)
    assert eventually(lambda: live.changes.last == 7)

    async def story() -> None:
        stream = ChangeStream(sources_of(live))
        seen, _ = await first(stream, "state")
        run = seen.partition("-")[0]
        _, found = await asyncio.wait_for(first(stream, "changes", f"{run}-5"), 60)
        assert [change["topic"] for change in found["changes"]] == ["one", "two"]

    asyncio.run(story())


@pytest.mark.parametrize("last", ["x-1", "-1", "x", "1", "x-é"])
def test_numbers_of_another_run_are_nothing(still: LiveRelation, last: str) -> None:
    """They would point anywhere in the changes of this one."""

    async def story() -> None:
        kind, number, _ = await anext(events(ChangeStream(sources_of(still)), last))
        assert (kind, number.partition("-")[2]) == ("state", "5")

    asyncio.run(story())


def test_the_number_of_streams_is_bounded(live: LiveRelation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of those that are asked for before the first one has begun; one that ends makes room."""
    monkeypatch.setattr(module, "MAX_STREAMS", 2)

    async def gone(_: object) -> None:
        raise OSError

    async def disconnected() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def story() -> None:
        stream = ChangeStream(sources_of(live))
        answers = await asyncio.gather(*(stream.follow(request()) for _ in range(5)))
        assert [answer.status_code for answer in answers] == [200, 200, 503, 503, 503]
        scope = {"type": "http", "asgi": {"spec_version": "2.4"}}
        with pytest.raises(ClientDisconnect):
            await answers[0](scope, disconnected, gone)
        assert (await stream.follow(request())).status_code == 200
        assert (await stream.follow(request())).status_code == 503

    asyncio.run(story())


def test_streams_end_with_the_server(live: LiveRelation) -> None:
    async def story() -> None:
        stream = ChangeStream(sources_of(live))
        following = events(stream)
        await anext(following)
        stream.close()
        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(anext(following), 60)

    asyncio.run(story())


def test_a_malformed_last_event_takes_no_stream(still: LiveRelation) -> None:
    """A number of too many digits is that of no event; the stream begins now, and ends."""
    stream = ChangeStream(sources_of(still))
    answer = asyncio.run(stream.follow(request(f"{stream._run}-{'9' * 5_000}")))
    assert isinstance(answer, StreamingResponse)
    assert stream.open == 1
