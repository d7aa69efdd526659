"""What operators do with a job's data: verify and repair, rebuild, back up, and care for dead letters."""
