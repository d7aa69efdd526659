"""Dead letters: reading and replay."""
