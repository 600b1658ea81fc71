"""Real Kafka brokers on 127.0.0.1 for tests and experiments. They run Kafka's own jars and keep no data."""

from spark_cas.testing.kafka_broker.cluster import KafkaBroker, KafkaCluster
from spark_cas.testing.kafka_broker.node import KafkaNode

__all__ = ["KafkaBroker", "KafkaCluster", "KafkaNode"]
