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
        failure = KafkaError(KafkaError._TIMED_OUT)  # noqa: SLF001 - librdkafka's own errors are named so
        try:
            answer = asked.result(_BACKSTOP_SECONDS)
        except KafkaException as error:
            failure = error.args[0]
        except TimeoutError:
            pass
        else:
            self.poll(0)
            self._troubles.clear()
            return answer
        finally:
            # The question keeps its error, and that this frame: held by it, the client would live on.
            del asked
        self.poll(0)
        if failure.code() in TIMED_OUT:
            failure = KafkaError(why_unreachable(self._troubles))
        raise KafkaException(failure)
