"""Backup and restore of local checkpoints, also while the job runs."""
