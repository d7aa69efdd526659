"""Rebuild of a checkpoint for an existing updates topic, with minimal updates."""
