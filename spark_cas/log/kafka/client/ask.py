"""Asking the brokers for something that may be asked for twice: again, as long as what is wrong passes."""

from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from spark_cas.core.errors import LogNotFoundError
from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.codes import UNANSWERED, UNREACHABLE, passes
from spark_cas.log.kafka.client.error_text import plain_error
from spark_cas.log.kafka.client.rights import Right
from spark_cas.log.patience import SecondLook, Wait

_SECOND_LOOK_SHARE = 0.5
"""Of the time of a question."""
_HEARD_SECONDS = 1.0
"""Brokers hear of a new topic sooner. A user who misspelt its name waits as long."""

Answer = TypeVar("Answer")


def second_look(admin: Admin, doing: str) -> SecondLook:
    """For what is definite by one broker: it may lag behind, or be deposed and not know it, so it is asked again."""
    return SecondLook(_SECOND_LOOK_SHARE * admin.request_seconds, doing)


def looked_for(admin: Admin, topic: str, look: Callable[[], Answer], *, made: bool = False) -> Answer:
    """What a look at a topic finds: where a broker does not know it that may lag behind, another look.

    That it does is likely of a topic that was `seen`, or ``made`` by somebody, and of a broker that answered late: it
    may have stood still since before the topic was made. Raises LogNotFoundError, what ``look`` does.
    """
    wait: SecondLook | None = None
    while True:
        try:
            found = look()
        except LogNotFoundError:
            if wait is None:
                wait = _look_for_it_again(admin, topic, made=made)
            if wait is None or not wait.again("a broker does not know it"):
                admin.missed(topic)
                raise
        else:
            admin.seen.add(topic)
            return found


def _look_for_it_again(admin: Admin, topic: str, *, made: bool) -> SecondLook | None:
    doing = f"looking for topic {topic}"
    if topic in admin.seen:
        return second_look(admin, doing)
    return SecondLook(_HEARD_SECONDS, doing) if made or admin.waited_lately() else None


def ask(admin: Admin, question: Callable[[], Answer], doing: str, *rights: Right) -> Answer:
    """The answer to a question, asked again while an error is one that passes, up to the patience of the client.

    ``doing`` begins the text of the error: "looking for topic flights"; ``rights`` are what it takes. Raises
    LogNotFoundError, StorageError.
    """
    wait = Wait(admin.patience_seconds, doing)
    while True:
        try:
            return question()
        except KafkaException as error:
            code = error.args[0].code()
            if not passes(code, met=admin.met) or not wait.again(admin.reason_of(code)):
                if code in UNREACHABLE:
                    raise admin.unreachable(code) from None
                raise plain_error(error, doing, *rights) from None
            # Nobody hung up or said no: a broker that stands still. A firewall that drops everything looks the same.
            admin.met |= code == KafkaError._TIMED_OUT  # noqa: SLF001 - librdkafka names it so
        # Not while the error is handled: what `list_topics` raises confluent-kafka (2.16) keeps for ever, with the
        # error that was being handled, and in its frames the client.
        if code in UNANSWERED:
            admin.ask_brokers(wait.left)
