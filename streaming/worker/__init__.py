"""The work on one state key in one micro-batch: rows and state in, rows and state out."""

from streaming.worker.rows import InputRow, InputRows, Output, OutputKind
from streaming.worker.worker import Worker, WorkerConfig

__all__ = ["InputRow", "InputRows", "Output", "OutputKind", "Worker", "WorkerConfig"]
