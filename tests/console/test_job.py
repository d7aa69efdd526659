"""The page that a running job serves, on a real broker, in a real Chromium."""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streaming.console.explaining import BASIS
from streaming.console.job_lists import BASIS as GROUPS_BASIS
from streaming.console.overview import JobWatch
from streaming.records.model import Stream
from tests.console.conftest import COMMAND, own_streams
from tests.support.processes import eventually
from tests.support.running_job import SETTLE_SECONDS, Streams, running
from tests.support.scene import Scene

_PATIENCE_SECONDS = 15
"""Time after which a question is asked again, longer than the console waits for the job."""


@pytest.fixture
def streams(tmp_path: Path) -> Iterator[Streams]:
    with own_streams(tmp_path) as streams:
        yield streams


def wait_for_job(answer: Any, ask_again: Callable[[], Any]) -> None:
    """Wait for an answer of the job. Ask again if the console has given up on a busy job."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while not eventually(lambda: answer.count() > 0, _PATIENCE_SECONDS):
        assert time.monotonic() < deadline, "the job never answered the console in time"
        ask_again()


def test_a_topic_that_is_born_shows_with_its_receiver_and_the_job_says_why(
    opened: Callable[..., Any], streams: Streams, tmp_path: Path
) -> None:
    """And what could not be read becomes a dead letter on the page, and the micro-batches a plot."""
    scene = Scene(streams)
    scene.group("audit", "orders")
    scene.asks("auditor", "audit", "orders", "eu__**")
    scene.born("orders", "eu__acme__created", "us__acme__created")
    with running(streams, tmp_path / "job.log", "--http", "127.0.0.1:0", command=COMMAND) as job:
        page = opened(f"{job.address()}/#/topics?parent=orders")
        page.set_default_timeout(SETTLE_SECONDS * 1_000)
        page.get_by_role("treeitem", name=re.compile("^eu,")).wait_for()
        scene.born("orders", "eu__globex__created")
        scene.sent()
        page.goto(f"{job.address()}/#/topics?parent=orders&topic=eu__globex__created")
        page.get_by_role("link", name="Why does auditor receive eu__globex__created?").click()
        answer, explain = page.get_by_role("region", name="Answer"), page.get_by_role("button", name="Explain")
        answer.get_by_text("auditor receives eu__globex__created").wait_for()
        wait_for_job(answer.get_by_text(BASIS), explain.click)
        page.get_by_label("Topic", exact=True).fill("us__acme__created")
        explain.click()
        answer.get_by_text("auditor does not receive us__acme__created").wait_for()
        wait_for_job(answer.get_by_text(BASIS), explain.click)
        assert answer.locator(".step.differs").inner_text().split("\n") == ["eu", "us", "✗ differs"]
        scene.born("orders", "ap__idle")
        scene.settles(job)
        page.goto(f"{job.address()}/#/groups?parent=orders")
        groups = page.get_by_role("table", name="Groups of orders").locator("tbody tr")
        wait_for_job(page.get_by_text(GROUPS_BASIS), page.reload)
        cells = groups.first.inner_text().split("\t")
        assert (groups.count(), cells[1:4], cells[5:]) == (1, ["wildcard", "no", "none"], ["1", "1"])
        page.goto(f"{job.address()}/#/topics?parent=orders&show=unreceived")
        page.get_by_text("2 topics without receivers; searched all: 4 topics of the job.").wait_for()
        assert sorted(page.locator(".panel td a").all_inner_texts()) == ["ap__idle", "us__acme__created"]
        page.goto(f"{job.address()}/#/letters")
        page.get_by_role("heading", name="Dead letters").wait_for()
        scene.send(Stream.TOPICS, b'{"event": ', "orders")
        scene.sent()
        page.get_by_role("group").filter(has_text="not-json").wait_for()
        page.goto(f"{job.address()}/#/overview")
        page.get_by_role("region", name="Job", exact=True).get_by_text("Uptime").wait_for()
        page.get_by_role("region", name="Lag", exact=True).get_by_text("Unread records").wait_for()
        shards = page.get_by_role("region", name="Table: Slowest shards, last five minutes")
        shards.get_by_role("link", name="orders").first.wait_for()
        with JobWatch(streams.settings) as watch:
            assert eventually(lambda: watch.state()["state"] == "running" and "lag_records" in watch.state())
        page.goto(f"{job.address()}/#/timings")
        page.get_by_role("img", name=re.compile("^Duration of micro-batches")).wait_for()
        assert eventually(lambda: page.locator(".plot .bar").count() > 0)
        page.close()  # it would ask on
        assert job.stop() == 0
