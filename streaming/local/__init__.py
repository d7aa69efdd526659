"""What the service needs around it on a machine of its own: a Java, the jars, a real Kafka broker, its topics."""
