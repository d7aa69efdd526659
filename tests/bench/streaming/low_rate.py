"""What the job costs at a low rate, and what a trigger interval saves of it: cores in use, and latency.

python -m tests.bench.streaming.low_rate
"""

import os

from rich.table import Table

from tests.bench.command import arguments, broker_and_folder, show
from tests.bench.streaming.driver import JOB, Driver
from tests.bench.streaming.run import at_rate


def main() -> None:
    """Prints the table."""
    parser = arguments(__doc__)
    parser.add_argument("--intervals", type=int, nargs="+", default=[0, 500, 1_000, 1_500, 2_000], help="milliseconds")
    parser.add_argument("--rate", type=float, default=20, help="events a second")
    parser.add_argument("--events", type=int, default=400, help="events that are measured at each interval")
    parser.add_argument("--warm-up", type=float, default=240, help="seconds at that rate before, at each interval")
    options = parser.parse_args()
    table = Table("trigger interval ms", "cores", "p50 ms", "p95 ms", title=f"{options.rate:g} events a second")
    figures: dict[int, dict[str, float]] = {}
    with broker_and_folder() as (broker, folder):
        for interval in options.intervals:
            os.environ["REEXPAND_TRIGGER_INTERVAL_MS"] = str(interval)
            with Driver(JOB, broker, folder) as driver:
                figures[interval] = found = at_rate(
                    driver, options.events, options.rate, round(options.warm_up * options.rate)
                )
            table.add_row(
                str(interval), f"{found['cores']:.2f}", *(f"{found[name]:,.0f}" for name in ("p50 ms", "p95 ms"))
            )
    show(figures, table, as_json=options.json, width=80)


if __name__ == "__main__":
    main()
