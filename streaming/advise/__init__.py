"""`reexpand advise`: number of shards, route depth and number of partitions for the existing topics and patterns.

| module | purpose |
|---|---|
| `sources` | read the records of the job's input topics, or lines of files |
| `inventory` | fold them to the existing topics and patterns |
| `placement` | compute the contents of each shard, at any route depth and number of shards |
| `rule` | choose among these, with reasons |
| `report` | present the choice to people and programs |
"""
