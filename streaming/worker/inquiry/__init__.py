"""Questions about the live state of one key, and their answers: pure functions of the state, which change nothing."""
