"""Messages of a Kafka topic or a Redis stream into a learner: `rarestream consume`, a process of its own."""
