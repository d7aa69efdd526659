"""RocketMQ: a watcher of lite topics, a consumer with patterns, a local server and a demo."""
