"""Real Kafka brokers on 127.0.0.1 for tests and experiments. They run Kafka's own jars and keep no data."""

from tools.kafka_broker.cluster import KafkaBroker, KafkaCluster
from tools.kafka_broker.node import KafkaNode

__all__ = ["KafkaBroker", "KafkaCluster", "KafkaNode"]
