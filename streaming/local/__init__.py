"""Surroundings of the service on one machine: Java, jars, a Kafka broker, a Spark cluster."""
