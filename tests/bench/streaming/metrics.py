"""The job with metrics that are asked for every five seconds, and without, side by side.

    python -m tests.bench.streaming.metrics --former ../former/.venv/bin/reexpand

Without a command of a former release, which has no metrics at all, the other one is the job with `--http off`: it has
no server, but counts all the same.
"""

import sys
import threading
from contextlib import suppress
from http.client import HTTPConnection, HTTPException

from streaming.local.node import free_port
from tests.bench.streaming.driver import JOB, System
from tests.bench.streaming.run import compare, report, run_arguments

_SCRAPE_SECONDS = 5.0
"""Three times as often as deploy/monitoring/prometheus.yml asks."""

_SILENT = System("job, http off", JOB.command)


def scrape(port: int, stop: threading.Event, answers: list[int]) -> None:
    """Ask for the metrics until the event is set, and note the size of each answer; a stopped job does not answer."""
    while not stop.wait(_SCRAPE_SECONDS):
        connection = HTTPConnection("127.0.0.1", port, timeout=2)
        with suppress(OSError, HTTPException):
            connection.request("GET", "/metrics")
            answers.append(len(connection.getresponse().read()))
        connection.close()


def main() -> None:
    """Runs the rounds and prints the table."""
    parser = run_arguments(__doc__)
    parser.add_argument("--former", help="command `reexpand` of a release without metrics")
    options = parser.parse_args()
    port, stop = free_port(), threading.Event()
    answers: list[int] = []
    scraped = System(JOB.name, JOB.command, {"REEXPAND_HTTP": f"127.0.0.1:{port}"})
    other = System("job, without metrics", [options.former, "run"]) if options.former else _SILENT
    thread = threading.Thread(target=scrape, args=(port, stop, answers))
    thread.start()
    try:
        figures, wrong = compare((scraped, other), options)
    finally:
        stop.set()
        thread.join()
    if not answers:
        sys.exit("the metrics were never served: the figures mean nothing")
    report(figures, wrong, options, f"{len(answers)} answers of {max(answers):,} bytes at most")


if __name__ == "__main__":
    main()
