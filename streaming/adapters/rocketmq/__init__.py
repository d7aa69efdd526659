"""RocketMQ as a source of topic events: its remoting protocol, its parents and groups, its lite topics."""
