"""`reexpand advise`: how many shards, which route depth, how many partitions, from the topics and patterns there are.

| module | what it does |
|---|---|
| `sources` | reads the records of the job's input topics, or lines of files |
| `inventory` | folds them to the topics and patterns that are there now |
| `placement` | which shard would hold what, at any route depth and number of shards |
| `rule` | which of these to take, and why |
| `report` | says so to people and to programs |
"""
