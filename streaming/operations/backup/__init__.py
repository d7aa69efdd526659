"""Backup and restore of local checkpoints, also beside a running job."""
