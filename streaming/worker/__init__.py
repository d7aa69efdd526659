"""The work on one state key in one micro-batch: rows and state in, rows and state out.

The names are imported on first use: questions and answers in `streaming.worker.inquiry` need no numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streaming.worker.rows import InputRow, InputRows, Output, OutputKind
    from streaming.worker.worker import Worker, WorkerConfig

__all__ = ["InputRow", "InputRows", "Output", "OutputKind", "Worker", "WorkerConfig"]


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> Any:
        """Import a public name."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = "worker" if name.startswith("Worker") else "rows"
        return getattr(import_module(f"{__name__}.{home}"), name)
