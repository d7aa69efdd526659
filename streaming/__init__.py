"""The service: pattern subscriptions kept expanded by a Spark Structured Streaming job on Kafka."""
