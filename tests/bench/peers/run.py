"""The job against the same operator in other stream processors, side by side on one broker.

    python -m tests.bench.peers.run --rounds 3 --only job kafka-streams

What is measured is what `tests.bench.streaming.run` measures, of each system in the same way. A system whose updates
are wrong gets no figures.
"""

import os
import tempfile
from pathlib import Path

from streaming.local.java import find_java
from streaming.local.process import cache_folder
from tests.bench.peers import kafka_streams
from tests.bench.peers.jars import JARS
from tests.bench.streaming.driver import JOB, NO_OP, System
from tests.bench.streaming.run import compare, report, run_arguments

ROOT = Path(__file__).parents[3]
QUIX_PYTHON, FLINK_PYTHON = (cache_folder() / name / "bin" / "python" for name in ("quix", "flink"))
NOT_INSTALLED = "not installed; `make bench SUITE=peers` does that"
PROCESSES = 2
KAFKA_STREAMS = tuple(kafka_streams.GUARANTEES)
QUIX_STREAMS = ("quix-streams",)
PYFLINK = ("pyflink",)
NAMES = (JOB.name, NO_OP.name, *KAFKA_STREAMS, *QUIX_STREAMS, *PYFLINK)


def quix_streams(_: Path) -> list[System]:
    """The operator in Quix Streams.

    Raises:
        LookupError: its Python is not there.
    """
    if not QUIX_PYTHON.exists():
        raise LookupError(NOT_INSTALLED)
    environment = {"PYTHONPATH": str(ROOT), "REEXPAND_PROCESSES": str(PROCESSES)}
    command = [str(QUIX_PYTHON), "-m", "tests.bench.peers.quix_streams"]
    return [System(name, command, environment, stops=False) for name in QUIX_STREAMS]


def pyflink(_: Path) -> list[System]:
    """The operator in PyFlink.

    Raises:
        LookupError: its Python is not there.
        JarsUnavailable: the jars cannot be had.
    """
    if not FLINK_PYTHON.exists():
        raise LookupError(NOT_INSTALLED)
    environment = {
        "JAVA_HOME": str(find_java().home),
        "JVM_ARGS": "-Xmx1g",
        "PYTHONPATH": str(ROOT),
        "REEXPAND_JARS": os.pathsep.join(map(str, JARS.jars("flink"))),
        "REEXPAND_PARALLELISM": str(PROCESSES),
    }
    command = [str(FLINK_PYTHON), "-m", "tests.bench.peers.py_flink"]
    return [System(name, command, environment, stops=False) for name in PYFLINK]


def main() -> None:
    """Runs the rounds and prints the table."""
    parser = run_arguments(__doc__)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, metavar="SYSTEM", help=", ".join(NAMES))
    options = parser.parse_args()
    left_out = []
    with tempfile.TemporaryDirectory() as folder:
        systems = [JOB, NO_OP]
        peers = ((KAFKA_STREAMS, kafka_streams.systems), (QUIX_STREAMS, quix_streams), (PYFLINK, pyflink))
        for names, build in peers:
            if set(names) & set(options.only):
                try:
                    systems += build(Path(folder))
                except LookupError as error:
                    left_out.append(f"{' and '.join(names)} left out: {error}")
        figures, wrong = compare([system for system in systems if system.name in options.only], options)
    report(figures, wrong, options, "\n".join(left_out))


if __name__ == "__main__":
    main()
