"""Operation of a job: advice on shards, verification, repair, rebuild, backup and dead letters."""
