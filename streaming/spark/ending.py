"""End of a job within a limited time, even if Kafka or Spark do not respond."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from subprocess import Popen

STOP_SECONDS: Final = 15
"""Time in seconds within which a running micro-batch may end; then it is interrupted, and the next start repeats it."""

LIMIT_SECONDS: Final = 22
"""Time in seconds after which Spark's JVM is killed; orchestrators kill the job itself after 30 s."""

_GONE_SECONDS: Final = 5

log = logging.getLogger("reexpand")


class Ending:
    """Limit for the end of a job.

    Attributes:
        has_killed: Spark's JVM was killed, so calls into it fail.
    """

    def __init__(self) -> None:
        self.has_killed = False
        self._jvm: Popen[bytes] | None = None

    def watch(self, spark: SparkSession) -> None:
        """Set the JVM to kill to a session's; under spark-submit it is not ours."""
        gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - PySpark shows no more
        self._jvm = getattr(gateway, "proc", None)

    def kill(self) -> None:
        """Kill the JVM."""
        if self._jvm is not None:
            log.warning("the job does not end within %d s: its JVM is killed; nothing is lost", LIMIT_SECONDS)
            self.has_killed = True
            self._jvm.kill()
            self._jvm.wait(_GONE_SECONDS)


@contextmanager
def limited(stop: threading.Event, seconds: float = LIMIT_SECONDS) -> Iterator[Ending]:
    """End a job within some seconds after `stop` is set; ignore failures caused by killing its JVM.

    Args:
        stop: set when the job is to end.
        seconds: the limit.
    """
    ending, is_over = Ending(), threading.Event()

    def watch() -> None:
        stop.wait()
        if not is_over.wait(seconds):
            ending.kill()

    threading.Thread(target=watch, name="ending", daemon=True).start()
    try:
        yield ending
    except Exception:
        if not ending.has_killed:
            raise
    finally:
        is_over.set()
