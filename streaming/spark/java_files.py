"""Calls of Hadoop's file systems whose refusals are one sentence."""

from collections.abc import Callable
from typing import Any, Final

from py4j.protocol import Py4JJavaError

from streaming.errors import CheckpointUnusable
from streaming.spark.failures import one_line

_EXPECTED: Final = ("FileNotFoundException", "FileAlreadyExistsException")
"""Ends of the names of exceptions that callers handle."""


class JavaFiles:
    """Spark's manager of checkpoint files.

    Args:
        make: makes the manager.
        checkpoint: the checkpoint, for messages.
    """

    def __init__(self, make: Callable[[], Any], checkpoint: str) -> None:
        self._checkpoint = checkpoint
        self._manager = self._call(make)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return a method of the manager."""
        return lambda *arguments: self._call(getattr(self._manager, name), *arguments)

    def _call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return method(*arguments)
        except Py4JJavaError as error:
            kind = str(error.java_exception.getClass().getName())
            if kind.endswith(_EXPECTED):
                raise
            reason = one_line(str(error.java_exception.getMessage() or kind))
            raise CheckpointUnusable(
                f"the checkpoint {self._checkpoint} cannot be used: {reason.rstrip('.')}. Check its address, and that "
                "this user may read and write there."
            ) from None
