"""Durable state values: journals, and the archive of their parts."""
