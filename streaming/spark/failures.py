"""Messages about failures of Spark: one sentence, with advice if there is any."""

import re

from pyspark.errors import StreamingQueryException

from streaming.config import Settings
from streaming.spark.route import MICRO_BATCH_BYTES

_WORKER_GONE = "Python worker exited unexpectedly"
"""Spark's text about a killed worker; if an entry kills it, this is detected before (see `quarantine`)."""

_NO_SPACE = "No space left on device"
"""Text of Linux about a full disk, in errors of Java and Python."""

_OUT_OF_MEMORY = 52
"""Exit code with which Spark ends a JVM that has run out of memory."""


def explained(failure: str, settings: Settings) -> str:
    """Return the message about a failure, given Spark's text."""
    folder = settings.checkpoint
    told = re.search(r"StateCorrupted: (.+)", failure)
    if told:  # by a worker, which names the file and the remedy, or the entry
        return told[1].strip()
    if "DirectByteBufferOutputStream cannot grow" in failure or "OutOfMemory" in failure:
        return _no_room(settings)
    sentences = {
        "CHECKPOINT_MISSING_METADATA_FILE": (
            f"{folder}/query/metadata is missing, and Spark does not go on without it. "
            "Restore a copy of the checkpoint, or start over with a new one."
        ),
        _NO_SPACE: (
            f"a disk is full: that of the checkpoint {folder}, or of Spark's temporary files (spark.local.dir, by "
            "default /tmp). Free some space there. The next start repeats the micro-batch; nothing is lost."
        ),
        _WORKER_GONE: (
            "Python workers were killed several times, outside of the work on a key: look whether the machine or the "
            "container has run out of memory. The next start goes on where this one has stopped."
        ),
    }
    if sentence := next((sentence for mark, sentence in sentences.items() if mark in failure), None):
        return sentence
    if "CANNOT_LOAD_STATE_STORE" not in failure:
        return _cut(failure)
    return (
        f"Spark cannot read the state in {folder}/query/state: a file there is missing or damaged. "
        f"Restore a copy of the checkpoint, or start over with a new one. {_cut(failure)}"
    )


def end_of_java(code: int, settings: Settings) -> str:
    """Return the message about a JVM that has ended by itself, given its exit code."""
    if code == _OUT_OF_MEMORY:
        return _no_room(settings)
    return (
        f"Spark's JVM has ended (exit code {code}); -9 is SIGKILL, which Linux sends when memory runs out. "
        "The next start goes on where this one has stopped."
    )


def _no_room(settings: Settings) -> str:
    fewer = max(1, min(MICRO_BATCH_BYTES // settings.max_value_bytes, settings.max_offsets_per_trigger // 2))
    return (
        "Spark had no room for the records of this micro-batch: all must fit into Java's memory (heap_bytes), and "
        "those of one shard into 2 GB. The next start reads the same records, huge ones in part. If it has no room "
        "either, make a checkpoint that reads fewer at once: reexpand rebuild --from-state "
        f"--former {settings.checkpoint} --checkpoint NEW --max-offsets-per-trigger {fewer}. "
        "Start the job there with the same number, until it has caught up."
    )


def text_of(error: StreamingQueryException) -> str:
    """Return Spark's text of an error without the query's plan."""
    return one_line(str(error).partition("=== Streaming Query ===")[0].strip())


def _cut(text: str, limit: int = 4_000) -> str:
    """Return a text without its middle if it is long: the cause is at the end of a Python traceback."""
    return text if len(text) <= limit else f"{text[: limit // 2]} ... {text[-limit // 2 :]}"


def one_line(text: str) -> str:
    """Return Spark's text of an error without the stacks of Java, in one line; a Python traceback stays as it is."""
    without = re.sub(r"\n\s*(at |\.\.\. \d+ more|Driver stacktrace:).*", "", text)
    return without if "Traceback" in without else " ".join(without.split())
