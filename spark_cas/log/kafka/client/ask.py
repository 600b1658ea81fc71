"""Send a request that is safe to repeat: retry it while its error is transient, and confirm a doubtful answer.

An answer is doubtful if it contradicts an earlier one. A demoted leader or coordinator, or a broker with stale
metadata, does not know that its answer is old. Callers state only the reason for the doubt.
"""

from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from spark_cas.core.errors import LogNotFoundError
from spark_cas.log import timing
from spark_cas.log.deadline import ConfirmingRead, Wait
from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.codes import UNANSWERED, UNREACHABLE, passes
from spark_cas.log.kafka.client.error_text import Right, plain_error

_CONFIRMING_SHARE = 0.5
"""The share of the request timeout that confirming reads take."""

Answer = TypeVar("Answer")


def confirmed(
    admin: Admin,
    read: Callable[[], Answer],
    doubt: Callable[[Answer], str],
    doing: str,
    *,
    topic: str = "",
    seconds: float | None = None,
) -> Answer:
    """Return the result of ``read``. While it is doubtful, read again, for some time.

    Args:
        admin: The client.
        read: Sends the request.
        doubt: Returns the reason to doubt a result, or an empty text.
        doing: The beginning of the log line about a long wait.
        topic: The topic whose leaders answer. Each further read requests its current leaders first.
        seconds: The time. By default it is a share of the request timeout.
    """
    seconds = _CONFIRMING_SHARE * admin.request_seconds if seconds is None else seconds
    wait: ConfirmingRead | None = None
    while reason := doubt(result := read()):
        wait = wait or ConfirmingRead(seconds, doing)
        if not wait.again(reason):
            break
        if topic:
            admin.forget_leaders(topic)
    return result


def read_confirmed(admin: Admin, topic: str, read: Callable[[], Answer], *, made: bool = False) -> Answer:
    """Return the result of ``read``, and retry if a broker with stale metadata does not know the topic.

    Metadata is probably stale if this client has already seen the topic, or if the caller knows it was ``made``. A
    broker that answered late may have stalled since before the topic was created.

    Raises:
        LogNotFoundError: No retry returned the topic.
    """
    wait: ConfirmingRead | None = None
    while True:
        try:
            result = read()
        except LogNotFoundError:
            if wait is None:
                wait = _confirming_read_of(admin, topic, made=made)
            if wait is None or not wait.again("a broker does not know it"):
                admin.forget_topic(topic)
                raise
        else:
            admin.known.add(topic)
            return result


def _confirming_read_of(admin: Admin, topic: str, *, made: bool) -> ConfirmingRead | None:
    doing = f"looking for topic {topic}"
    if topic in admin.known:
        return ConfirmingRead(_CONFIRMING_SHARE * admin.request_seconds, doing)
    # A misspelled topic name is reported after this time.
    return ConfirmingRead(timing.current().metadata_lag, doing) if made or admin.waited_recently() else None


def ask(admin: Admin, question: Callable[[], Answer], doing: str, *rights: Right) -> Answer:
    """Send a request and return its answer. Retry transient errors until the retry timeout of the client.

    Args:
        admin: The client. It supplies the retry timeout, and the reason for a failure.
        question: Sends the request and waits for its answer.
        doing: The beginning of the error text, such as "looking for topic flights".
        rights: The permissions that the request needs. The error names them if the broker denies the request.

    Raises:
        LogNotFoundError: The topic does not exist.
        StorageError: The error is permanent, or the retry timeout is over.
    """
    wait = Wait(admin.patience_seconds, doing)
    while True:
        try:
            return question()
        except KafkaException as error:
            code = error.args[0].code()
            if not passes(code, reached=admin.reached) or not wait.again(admin.reason_of(code)):
                if code in UNREACHABLE:
                    raise admin.unreachable(code) from None
                raise plain_error(error, doing, *rights) from None
            # No broker closed the connection or denied access, so it has stalled. A firewall that drops packets has
            # the same effect.
            admin.reached |= code == KafkaError._TIMED_OUT  # noqa: SLF001 - librdkafka names it so
        # Send this after the error handler has ended. confluent-kafka (2.16) never frees the error that `list_topics`
        # raises. That error would keep the handled error alive, and through its frames the client.
        if code in UNANSWERED:
            admin.ask_brokers(wait.left)
