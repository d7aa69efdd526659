"""A job of several shards on several state partitions."""

OPTIONS = ("--shards", "p=4", "--route-depth", "0", "--shuffle-partitions", "2")
PARTITION_OF_SHARD = (0, 1, 0, 1)
"""Of the parent `p` with these options: what `pmod(hash('p', shard), 2)` is in Spark's SQL."""
