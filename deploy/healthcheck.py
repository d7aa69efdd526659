# ruff: noqa: INP001 - a script of the image, no package
"""Says whether the job of this container works: exit code 0, or 1 and a line that says what is wrong.

It works when a micro-batch has been committed, none has been running for more than `STALLED_SECONDS`, and the job
holds a connection to Kafka, which it has only while its query runs. That no records arrive is no fault.

REEXPAND_CHECKPOINT and REEXPAND_BOOTSTRAP_SERVERS are read as `reexpand run` reads them.
"""

import os
import sys
import time
from pathlib import Path

STALLED_SECONDS = 120
"""Longer than any micro-batch should take; the largest have `max_offsets_per_trigger` records."""

_CONNECTIONS = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED = "01"


def complaint(checkpoint: Path, bootstrap_servers: str) -> str | None:
    """What is wrong, or None."""
    planned, committed = newest(checkpoint / "query/offsets"), newest(checkpoint / "query/commits")
    if planned is None or committed is None:
        return "no micro-batch has been committed yet"
    running = time.time() - planned.stat().st_mtime
    if int(planned.name) > int(committed.name) and running > STALLED_SECONDS:
        return f"micro-batch {planned.name} has been running for {running:.0f} s"
    if not ports(bootstrap_servers) & connected_ports():
        return f"no connection to Kafka at {bootstrap_servers}"
    return None


def newest(log: Path) -> Path | None:
    """The last entry of one of Spark's logs: a file a micro-batch, named by its number."""
    return max(
        (entry for entry in log.glob("[0-9]*") if entry.name.isdecimal()), key=lambda e: int(e.name), default=None
    )


def ports(bootstrap_servers: str) -> set[int]:
    """The ports of `host:port[,host:port...]`."""
    return {int(server.rpartition(":")[2]) for server in bootstrap_servers.split(",")}


def connected_ports() -> set[int]:
    """Remote ports of the connections that processes of this container hold."""
    lines = [line.split() for table in _CONNECTIONS if table.exists() for line in table.read_text().splitlines()[1:]]
    return {int(remote.rpartition(":")[2], 16) for _, _, remote, state, *_ in lines if state == _ESTABLISHED}


if __name__ == "__main__":
    sys.exit(complaint(Path(os.environ["REEXPAND_CHECKPOINT"]), os.environ["REEXPAND_BOOTSTRAP_SERVERS"]))
