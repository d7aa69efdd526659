"""A console on a simulated broker, opened in a real Chromium.

Chromium comes from the PATH or from playwright. `make test-console` installs both; without them the tests of
this folder are skipped.
"""

from __future__ import annotations

import shutil
import threading
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn

import matcher
from streaming.config import Address
from streaming.console.app import ConsoleSources, console
from streaming.console.budget import shown_steps
from streaming.console.explaining import explain_by_updates
from streaming.console.job_lists import JobLists
from streaming.console.letters import LetterTail
from streaming.console.live import LiveRelation
from streaming.local.broker import Broker
from streaming.local.server import free_port
from tests.console.job import FakeJob
from tests.console.rows import LETTERS, ROWS
from tests.support.running_job import Streams
from tests.support.simulated import TOPIC, Simulated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from streaming.client.rows import Subscriber

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")


COMMAND = str(Path(__file__).parents[2] / ".venv/bin/reexpand")
"""The command of the job: a browser's library is in another environment."""


_START = int(time.time()) * 1_000
SHARDS = [
    {"parent": parent, "shard": shard, "topics": 1_200 * shard, "clients": 40, "bytes": 912_345, "seconds": seconds}
    for parent, shard, seconds in (("orders", 3, 2.5), ("orders", 11, 0.94), ("sensors", 0, 0.31))
]


def batches() -> list[Mapping[str, Any]]:
    """Return the timings of thirty micro-batches."""
    return [
        {"number": number, "started_ms": _START + number * 1_000, "seconds": 0.2 + number % 7 / 20,
         "records": 20 * number, "updates": 3 * number,
         "phases": {"offsets": 0.02, "route": 0.05, "expand": 0.1 + number % 7 / 25}, "slowest": SHARDS}
        for number in range(30)
    ]  # fmt: skip


_ENTRIES = {"eu-dashboard": "eu__**", "globex-billing": "*__globex__**"}


def _explain(live: LiveRelation, subscriber: Subscriber, lite_topic: str) -> dict[str, Any]:
    """Return the explanation of the updates, with the entry of some clients by segment, as a job does."""
    seen = explain_by_updates(live, subscriber, lite_topic)
    entry = _ENTRIES.get(subscriber.client_id)
    if entry is None:
        return seen
    found = matcher.explain(entry, lite_topic)
    detail, steps = f"{entry} (lite): {found.reason}.", shown_steps(found.steps)
    fact = {"name": "topic", "met": None, "detail": "exists.", "steps": ()}
    hint = {"name": "hint", "met": None, "detail": "the group is bound to sensors", "steps": ()}
    return {**seen, "checks": [fact, {"name": "entry", "met": found.matched, "detail": detail, "steps": steps}, hint]}


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A browser without windows."""
    api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed; `make test-console` brings it"
    )
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    with api.sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        except api.Error as error:
            pytest.skip(f"no Chromium can be started; `make test-console` installs it: {error.message.splitlines()[0]}")
        yield browser
        browser.close()


@pytest.fixture
def broker() -> Simulated:
    simulated = Simulated()
    simulated.write(*ROWS, partition=0)
    simulated.write(*LETTERS, topic="letters", partition=0)
    return simulated


@contextmanager
def own_streams(folder: Path, kind: type[Streams] = Streams) -> Iterator[Streams]:
    """Start a broker in a folder, and yield the job's topics on it."""
    with Broker(folder / "kafka") as broker:
        yield kind(broker.bootstrap_servers, folder / "checkpoint").create()


JOB = {"state": "ready", "level": "good", "reason": "the query runs, and the inputs are read",
       "uptime_seconds": 93_784.2, "micro_batch": 8_412, "lag_records": 12, "lag_seconds": 1.5,
       "rates": {"lite-subscription-events": 41.7, "lite-topic-events": 7.25, "lite-group-events": 0.0}}  # fmt: skip


@contextmanager
def served(broker: Simulated, port: int = 0, token: str | None = None, **options: Any) -> Iterator[str]:
    with (
        LiveRelation(broker.address, TOPIC, **options) as relation,
        LetterTail(broker.address, "letters", {}) as letters,
    ):
        relation.wait_ready(60)
        about = {"broker": broker.address, "updates": TOPIC}
        sources = ConsoleSources(
            relation, partial(_explain, relation), letters.page, batches, about, lambda: JOB, JobLists(FakeJob)
        )
        with serving(sources, port, token) as address:
            yield address


@contextmanager
def serving(sources: ConsoleSources, port: int = 0, token: str | None = None) -> Iterator[str]:
    where = Address("127.0.0.1", port or free_port())
    app = console(sources, token)
    config = uvicorn.Config(app, host=where.host, port=where.port, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
        yield f"http://{where}/"
    finally:
        app.state.close()
        server.should_exit = True
        thread.join()


@pytest.fixture
def url(broker: Simulated) -> Iterator[str]:
    """The address of a console of `ROWS`."""
    with served(broker) as address:
        yield address


@pytest.fixture
def opened(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Opens pages, and checks at the end that none of them complained: of its policy, of a script, of a file."""
    contexts, complaints = [], []

    def page(address: str, *, width: int = 1280, scheme: str = "light", quiet: bool = True, zone: str = "UTC") -> Any:
        size = {"width": width, "height": 800}
        context = chromium.new_context(viewport=size, color_scheme=scheme, timezone_id=zone)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        if quiet:
            page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(address)
        return page

    yield page
    for context in contexts:
        context.close()
    assert complaints == []
