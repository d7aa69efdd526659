"""Names within the folder of a checkpoint."""

from typing import Final

IDENTITY: Final = "reexpand.json"
"""File with the settings that are fixed for the life of the checkpoint."""

QUERY: Final = "query"
"""Folder in which Spark keeps the query's progress and state."""

PARTS: Final = "parts"
"""Folder with the larger part of the states."""
