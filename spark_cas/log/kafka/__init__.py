"""The Kafka backend: conditional append on stock brokers, resting on transactions and delivered offsets."""

from spark_cas.log.kafka.log import KafkaLog

__all__ = ["KafkaLog"]
