"""Translate client settings from the names of Kafka's Java client to those of librdkafka."""
