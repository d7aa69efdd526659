"""Decisions to leave out entries whose work kills or hangs a Python worker."""
