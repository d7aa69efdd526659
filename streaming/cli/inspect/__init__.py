"""Verbs that look into a running job, and those that write to its inputs by hand."""
