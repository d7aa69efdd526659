"""Advice on shards, route depth and partitions, from the topics and patterns in the inputs (`reexpand advise`)."""
