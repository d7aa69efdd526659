"""The comparison of inputs, state and updates of a job, and the repair of its updates."""
