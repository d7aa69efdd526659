"""Exactly once against at least once: the job as it is and with `--delivery at-least-once`, side by side.

Both write the same updates. The latency is that of a reader of committed records, and a burst ends when such a reader
could have read the last update.
"""

from tests.bench.streaming.driver import JOB, System
from tests.bench.streaming.run import compare, report, run_arguments

AT_LEAST_ONCE = System("job, at least once", [*JOB.command, "--delivery", "at-least-once"])


def main() -> None:
    """Runs the rounds and prints the table."""
    options = run_arguments(__doc__).parse_args()
    report(*compare((JOB, AT_LEAST_ONCE), options), options)


if __name__ == "__main__":
    main()
