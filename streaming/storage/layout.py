"""Names within the folder of a checkpoint."""

from typing import Final

IDENTITY: Final = "reexpand.json"
"""File with the settings that are fixed for the life of the checkpoint."""

QUERY: Final = "query"
"""Folder in which Spark keeps the query's progress and state."""

SIZES: Final = "monitor/sizes.json"
"""File with the sizes of the shards, for the metrics of the next driver."""

PARTS: Final = "parts"
"""Folder with the larger part of the states."""
