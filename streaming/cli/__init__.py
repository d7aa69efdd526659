"""The `reexpand` command, with a module for each group of verbs."""

from streaming.cli import adapters, checkpoint, entries, lists, local, match, run, send, status, top
from streaming.cli.root import main

__all__ = ["adapters", "checkpoint", "entries", "lists", "local", "main", "match", "run", "send", "status", "top"]
