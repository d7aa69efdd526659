"""Changes of the relation, and the Kafka records that announce them."""
