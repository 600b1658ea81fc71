"""The Kafka backend: conditional append on stock brokers, resting on transactions and delivered offsets.

The log loads when it is asked for: a topic's address and its settings are known without the client.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_cas.log.kafka.log import KafkaLog

__all__ = ["KafkaLog"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("spark_cas.log.kafka.log"), name)
