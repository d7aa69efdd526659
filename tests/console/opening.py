"""Time from `reexpand console` until a browser shows the tree of many topics, on a real broker."""

import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import sync_playwright

from tests.console.conftest import BROWSERS, COMMAND, FLAGS, own_streams
from tests.support.running_job import Streams
from tests.support.update_records import add

_TURNS: Final = 5


def opening(streams: Streams, browser: Any, topics: int) -> list[float]:
    """Return the seconds from the start until the console listens, shows a tree, and shows all topics."""
    settings, started = streams.settings, time.monotonic()
    topic_options = ["--updates", settings.updates, "--dead-letters", settings.dead_letters]
    command = [COMMAND, "console", "--bootstrap-servers", streams.bootstrap_servers, "--http", "127.0.0.1:0"]
    with subprocess.Popen([*command, *topic_options], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = re.search(r"http://\S+/", process.stdout.readline())
        assert address is not None
        seconds = [time.monotonic() - started]
        page = browser.new_page()
        page.goto(f"{address[0]}#/topics")
        page.get_by_role("treeitem").first.wait_for()
        seconds.append(time.monotonic() - started)
        page.locator("#health").get_by_text(f"{topics:,} topics").wait_for()
        seconds.append(time.monotonic() - started)
        page.close()
        process.terminate()
    return seconds


def main(topics: int = 100_000) -> None:
    """Write the updates, open the console some times, and print the medians."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    with tempfile.TemporaryDirectory() as folder, own_streams(Path(folder)) as streams, sync_playwright() as playwright:
        names = (f"r{number % 5}__tenant{number % 977}__order__{number}" for number in range(topics))
        rows = (add(name, parent="big", client=f"c{at % 50}") for at, name in enumerate(names))
        streams.write(streams.settings.updates, *rows)
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        turns = [opening(streams, browser, topics) for _ in range(_TURNS)]
        browser.close()
    for name, found in zip(("listens", "shows the tree", "shows all topics"), zip(*turns, strict=True), strict=True):
        sys.stdout.write(f"{name}: {statistics.median(found):.1f} s ({min(found):.1f} to {max(found):.1f})\n")


if __name__ == "__main__":
    main()
