"""Real Kafka brokers for tests and for trying things out: Kafka's own jars, on 127.0.0.1, gone when closed."""

from spark_cas.testing.kafka_broker.cluster import KafkaBroker, KafkaCluster
from spark_cas.testing.kafka_broker.node import KafkaNode

__all__ = ["KafkaBroker", "KafkaCluster", "KafkaNode"]
