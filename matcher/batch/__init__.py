"""Indexes for whole batches, in flat numpy arrays; numpy must be installed."""

try:
    from matcher.batch.patterns import FlatPatterns
    from matcher.batch.topics import FlatTopics
except ModuleNotFoundError as error:
    if error.name != "numpy":
        raise
    raise ModuleNotFoundError("matcher.batch needs numpy 2 or later: pip install numpy", name="numpy") from None

__all__ = ["FlatPatterns", "FlatTopics"]
