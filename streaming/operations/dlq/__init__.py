"""Dead letters: what was rejected and why, and its way back into the inputs."""
