"""The job on Spark's defaults where it has chosen otherwise for speed: what that choice gains.

The few shuffle partitions and the short fetches of the source stay: with the defaults of these, nothing could be
compared.
"""

from typing import Any
from unittest.mock import patch

from streaming.cli import main
from streaming.spark import session

CHOSEN = {
    "spark.hadoop.fs.file.impl",
    "spark.python.unix.domain.socket.enabled",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled",
    "spark.sql.streaming.checkpointFileManagerClass",
}

take = session.options


def defaults(*given: Any) -> dict[str, str]:
    """The job's options without the chosen ones."""
    options = take(*given)
    return {name: value for name, value in options.items() if name not in CHOSEN}


if __name__ == "__main__":
    with patch.object(session, "options", defaults):
        main(["run"])
