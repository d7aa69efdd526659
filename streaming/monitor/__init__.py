"""Metrics and health of a running job, and the HTTP server that shows them; no Spark in here."""
