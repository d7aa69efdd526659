"""The work on one state key in one micro-batch: rows and state in, rows and state out."""
