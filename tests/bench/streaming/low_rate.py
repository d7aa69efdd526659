"""What the job costs at a low rate, and what a budget of CPU or a trigger interval saves of it: cores, and latency.

Latency is that at the steady rate, and that of events that come alone, one a second.

python -m tests.bench.streaming.low_rate
"""

import statistics
from dataclasses import replace

from tests.bench.command import arguments, broker_and_folder, show
from tests.bench.streaming.driver import JOB, Driver
from tests.bench.streaming.run import ALONE_RATE, at_rate


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--paces", type=float, nargs="*", default=[0, 0.5, 0.25], help="budgets (pace_cpu), in cores")
    parser.add_argument("--intervals", type=int, nargs="*", default=[1_000], help="trigger intervals, in milliseconds")
    parser.add_argument("--rate", type=float, default=20, help="events a second")
    parser.add_argument("--events", type=int, default=400, help="events that are measured in each case")
    parser.add_argument("--alone", type=int, default=20, help="events that come alone in each case")
    parser.add_argument("--warm-up", type=float, default=240, help="seconds at that rate before, in each case")
    options = parser.parse_args()
    cases = {f"pace_cpu = {pace:g}": {"REEXPAND_PACE_CPU": str(pace)} for pace in options.paces}
    cases |= {f"trigger_interval_ms = {ms}": {"REEXPAND_TRIGGER_INTERVAL_MS": str(ms)} for ms in options.intervals}
    figures: dict[str, dict[str, float]] = {}
    with broker_and_folder() as (broker, folder):
        for name, environment in cases.items():
            with Driver(replace(JOB, environment=environment), broker, folder) as driver:
                found = at_rate(driver, options.events, options.rate, round(options.warm_up * options.rate))
                alone = driver.latencies(options.alone, ALONE_RATE)
            figures[name] = {**found, "alone ms": 1000 * statistics.median(alone)}
    show(figures, f"{options.rate:g} events per second", as_json=options.json)


if __name__ == "__main__":
    main()
