"""The demo: a scenario on a local broker and the job, with a check of the result."""
