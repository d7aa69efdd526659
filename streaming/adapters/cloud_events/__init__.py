"""CloudEvents 1.0 as inputs and outputs of the job, by the official SDK."""
