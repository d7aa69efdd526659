"""Spark's daemon of Python workers with all their imports done: each worker is a fork of it, and begins at once.

Spark starts it by the option `spark.python.daemon.module`.
"""

import socket

import pyspark.worker  # noqa: F401 - as below
from pyspark import daemon

import streaming.spark.expand  # noqa: F401 - imports of each worker, Arrow included
from streaming.spark import arrow

_worker = daemon.worker


def _quiet_worker(sock: socket.socket, authenticated: bool) -> int:  # noqa: FBT001 - called by PySpark
    """Run a worker; one whose JVM has gone away ends without a traceback."""
    try:
        return _worker(sock, authenticated)
    except BrokenPipeError:
        return 1


if __name__ == "__main__":
    arrow.install()
    daemon.worker = _quiet_worker
    daemon.manager()
