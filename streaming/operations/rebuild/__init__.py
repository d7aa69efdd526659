"""A new checkpoint for an updates topic that is there: made from the inputs, with true differences only."""
