"""The Kafka backend: conditional append on stock brokers, based on transactions and delivery reports.

`KafkaLog` is imported on first use, so that addresses and settings work without the Kafka client.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_cas.log.kafka.kafka_log import KafkaLog

__all__ = ["KafkaLog"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("spark_cas.log.kafka.kafka_log"), name)
