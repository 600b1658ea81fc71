"""Settings of the client, from the names that Kafka users know to those that it takes."""
