"""Kafka clients and topic specifications."""
