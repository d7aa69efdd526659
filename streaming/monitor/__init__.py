"""Metrics and health of a running job, and the HTTP server that provides them. No Spark in here."""
