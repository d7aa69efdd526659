"""Job with several shards on several state partitions."""

OPTIONS = ("--shards", "p=4", "--route-depth", "0", "--shuffle-partitions", "2")
PARTITION_OF_SHARD = (0, 1, 0, 1)
"""State partitions of the shards of parent `p`: `pmod(hash('p', shard), 2)` in Spark's SQL."""
