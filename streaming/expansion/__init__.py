"""The rules: how a micro-batch of events changes who receives which topic on one shard."""
