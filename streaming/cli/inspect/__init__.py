"""Verbs that query a running job, and verbs that send events."""
