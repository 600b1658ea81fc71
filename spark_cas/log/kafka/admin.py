"""The client for questions, which knows why there is no answer: librdkafka tells that to a callback only."""

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from spark_cas.log.kafka.codes import TIMED_OUT, why_unreachable

_BACKSTOP_SECONDS = 11.0
"""Every question has its own, shorter time; the client does not always say that it is over."""

Answer = TypeVar("Answer")


class Admin(AdminClient):
    """Asks the brokers.

    librdkafka connects again and again whatever went wrong, refused credentials included: a question then ends as
    timed out. What went wrong meanwhile is remembered until a question is answered.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._troubles: set[int] = set()
        take = self._troubles.add  # and not a method of ours: the client would hold itself
        callbacks: dict[str, Any] = {"error_cb": lambda error: take(error.code())}
        super().__init__({**settings, **callbacks})

    def answer(self, asked: "Future[Answer]") -> Answer:
        """Wait for the answer to a question.

        Raises KafkaException. Its code is what keeps the client from its brokers, where nothing but that is known.
        """
        try:
            answer = asked.result(_BACKSTOP_SECONDS)
        except KafkaException as error:
            if error.args[0].code() not in TIMED_OUT:
                raise
        except TimeoutError:
            pass
        else:
            self.poll(0)
            self._troubles.clear()
            return answer
        self.poll(0)
        raise KafkaException(KafkaError(why_unreachable(self._troubles)))
