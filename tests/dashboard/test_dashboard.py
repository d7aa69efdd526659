"""The dashboard of deploy/, drawn by Grafana's own panels in a real Chromium, of a real Prometheus and a live job.

A Grafana is not needed: `page/` reads the dashboard's file and draws it with the library of Grafana's panels. `make
test-dashboard` builds the page; the test is skipped without it, and without Prometheus or Chromium.
"""

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlencode

import pytest

from streaming.examples.traffic import events
from streaming.records.model import Stream
from tests.console.conftest import COMMAND, own_streams
from tests.support.prometheus import DASHBOARD, is_installed, scraping
from tests.support.running_job import Streams, running

PAGE = Path(__file__).with_name("page")
BUILT = Path(os.environ.get("REEXPAND_DASHBOARD", "nowhere"))
"""Folder of the page's script."""

MINUTES = float(os.environ.get("REEXPAND_DASHBOARD_MINUTES", "1"))
PICTURE = os.environ.get("REEXPAND_DASHBOARD_PICTURE")
"""File for a picture of the dashboard, if one is wanted: that of docs/operations.md shows five minutes."""

RATE = 20.0


@pytest.mark.skipif(not (BUILT / "dashboard.js").exists(), reason="`make test-dashboard` builds the page")
@pytest.mark.skipif(not is_installed(), reason="Prometheus is not installed (Debian: prometheus)")
@pytest.mark.parametrize("mode", ["dark", "light"])
def test_each_panel_shows_what_a_live_job_does(opened: Callable[..., Any], address: str, mode: str) -> None:
    page = opened(f"{address}&mode={mode}", width=1_470, quiet=False)
    page.wait_for_function("document.title == 'drawn'")
    panels = json.loads(DASHBOARD.read_text())["panels"]
    page.wait_for_function(f"document.querySelectorAll('[data-panel]').length == {len(panels)}")
    assert [each.get_attribute("data-empty") for each in page.locator("[data-empty]").all()] == []
    for panel in panels:
        if panel["type"] == "timeseries":
            page.locator(f'[data-panel="{panel["title"]}"] canvas').wait_for()
    page.locator('[data-panel="State"]').get_by_text("ready").wait_for()
    if PICTURE and mode == "dark":
        page.locator("#dashboard").screenshot(path=PICTURE)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page's address, when a job has worked under traffic for a while."""
    folder = tmp_path_factory.mktemp("dashboard")
    for file in (PAGE / "index.html", BUILT / "dashboard.js", BUILT / "dashboard.css", DASHBOARD):
        shutil.copy(file, folder)
    with (
        own_streams(folder) as streams,
        running(streams, folder / "log", "--http", "127.0.0.1:0", command=COMMAND) as job,
        scraping(job.address()) as prometheus,
        serving(folder) as page,
    ):
        send(streams)
        yield f"{page}?{urlencode({'dashboard': DASHBOARD.name, 'prometheus': prometheus, 'minutes': MINUTES})}"


def send(streams: Streams) -> None:
    """Send the sample traffic for a while, with a damaged record now and then."""
    feed = streams.producer()
    for number, event in enumerate(islice(events(Random(1)), round(60 * MINUTES * RATE))):
        feed.send(event.stream, event.value, event.key)
        if number % 200 == 150:
            feed.send(Stream.TOPICS, b"?", event.key)
        time.sleep(1 / RATE)
    feed.flush()


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()
