"""Comparison of inputs, state and updates of a job, and repair of its updates."""
