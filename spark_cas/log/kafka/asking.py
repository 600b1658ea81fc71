"""Asking the brokers something that changes nothing: again while they are between two leaders or coordinators."""

import time
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaException

from spark_cas.log.kafka.codes import PASSING
from spark_cas.log.kafka.plain import plain_error
from spark_cas.log.kafka.rights import Right

REQUEST_SECONDS = 10.0
"""One request ends within this time: that brokers cannot be reached is said by then."""

_FAILOVER_SECONDS = 30.0
"""How long a partition or a coordinator may be without a broker."""

_PAUSE_SECONDS = 0.1

Answer = TypeVar("Answer")


def ask(question: Callable[[], Answer], doing: str, *rights: Right) -> Answer:
    """The answer to a question, asked again while an error is one that passes.

    ``doing`` begins the text of the error: "looking for topic flights"; ``rights`` are what it takes. Raises
    LogNotFoundError, StorageError.
    """
    deadline = time.monotonic() + _FAILOVER_SECONDS
    while True:
        try:
            return question()
        except KafkaException as error:
            if error.args[0].code() not in PASSING or time.monotonic() > deadline:
                raise plain_error(error, doing, *rights) from None
        time.sleep(_PAUSE_SECONDS)
