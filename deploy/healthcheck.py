# ruff: noqa: INP001 - a script of the image, no package
"""Check the job of this container: exit code 0 when it works, 1 and a line with the fault when it does not.

The job works when a micro-batch has been committed, no micro-batch has been running for more than `STALLED_SECONDS`,
and the job holds a connection to Kafka, which it has only while its query runs. An absence of records is no fault.

REEXPAND_CHECKPOINT and REEXPAND_BOOTSTRAP_SERVERS have the meaning that they have for `reexpand run`.
"""

import os
import sys
import time
from pathlib import Path

STALLED_SECONDS = 120
"""Seconds after which a micro-batch counts as stalled; the largest ones have `max_offsets_per_trigger` records."""

_CONNECTIONS = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED = "01"
"""State of an open connection in these tables."""


def find_fault(checkpoint: Path, bootstrap_servers: str) -> str | None:
    """Return the fault in words, None when the job works."""
    planned, committed = newest_entry(checkpoint / "query/offsets"), newest_entry(checkpoint / "query/commits")
    if planned is None or committed is None:
        return "no micro-batch has been committed yet"
    running = time.time() - planned.stat().st_mtime
    if int(planned.name) > int(committed.name) and running > STALLED_SECONDS:
        return f"micro-batch {planned.name} has been running for {running:.0f} s"
    if not ports(bootstrap_servers) & connected_ports():
        return f"no connection to Kafka at {bootstrap_servers}"
    return None


def newest_entry(log: Path) -> Path | None:
    """Return the last entry of one of Spark's logs: one file for each micro-batch, named by its number."""
    return max(
        (entry for entry in log.glob("[0-9]*") if entry.name.isdecimal()), key=lambda e: int(e.name), default=None
    )


def ports(bootstrap_servers: str) -> set[int]:
    """Return the ports of `host:port[,host:port...]`."""
    return {int(server.rpartition(":")[2]) for server in bootstrap_servers.split(",")}


def connected_ports() -> set[int]:
    """Return the remote ports of all open connections of this container."""
    lines = [line.split() for table in _CONNECTIONS if table.exists() for line in table.read_text().splitlines()[1:]]
    return {int(remote.rpartition(":")[2], 16) for _, _, remote, state, *_ in lines if state == _ESTABLISHED}


if __name__ == "__main__":
    sys.exit(find_fault(Path(os.environ["REEXPAND_CHECKPOINT"]), os.environ["REEXPAND_BOOTSTRAP_SERVERS"]))
