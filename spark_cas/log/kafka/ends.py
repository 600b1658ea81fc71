"""Where a partition ends: read behind a barrier, because a commit returns before its marker is visible."""

import time

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from spark_cas.core.errors import StorageError
from spark_cas.core.offsets import Bounds
from spark_cas.log.kafka.admin import Admin
from spark_cas.log.kafka.asking import REQUEST_SECONDS, ask
from spark_cas.log.kafka.codes import NO_LEADER, STALE_LEADER
from spark_cas.log.kafka.rights import on_topic
from spark_cas.log.kafka.topic_settings import describe

_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call] # confluent-kafka leaves it out
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]

_FIRST_PAUSE_SECONDS = 0.001
_LONGEST_PAUSE_SECONDS = 0.1


def start_offset(admin: Admin, at: TopicPartition) -> int:
    """The oldest offset that the partition keeps."""
    return _offset(admin, at, _EARLIEST, IsolationLevel.READ_UNCOMMITTED)


def high_watermark(admin: Admin, at: TopicPartition) -> int:
    """The end of what is replicated, decided or not."""
    return _offset(admin, at, _LATEST, IsolationLevel.READ_UNCOMMITTED)


def committed_end(admin: Admin, at: TopicPartition) -> int:
    """The end of what is decided (the last stable offset)."""
    return _offset(admin, at, _LATEST, IsolationLevel.READ_COMMITTED)


def barrier(admin: Admin, at: TopicPartition, timeout_seconds: float) -> Bounds:
    """The partition's bounds once all that was in it when this was called is decided.

    Raises StorageError when someone's open transaction outlasts the timeout: a stale answer is never given.
    """
    target = high_watermark(admin, at)
    deadline = time.monotonic() + timeout_seconds
    pause = _FIRST_PAUSE_SECONDS
    while (end := committed_end(admin, at)) < target:
        if time.monotonic() > deadline:
            raise StorageError(
                f"partition {at.partition} of topic {at.topic}: a transaction has been open from offset {end} on for "
                f"more than {timeout_seconds:.0f} s, so what lies behind it is undecided. Nothing was appended. Wait "
                f"until it ends, or find its writer with kafka-transactions.sh describe-producers and abort it."
            )
        time.sleep(pause)
        pause = min(_LONGEST_PAUSE_SECONDS, pause * 2)
    return Bounds(start_offset(admin, at), end)


def decided_now(admin: Admin, at: TopicPartition) -> Bounds:
    """The partition's bounds without waiting: records of transactions that are open lie behind them."""
    return Bounds(start_offset(admin, at), committed_end(admin, at))


def undecided(admin: Admin, at: TopicPartition) -> Bounds:
    """The partition's bounds without waiting, records of open transactions included: no check may rest on them."""
    return Bounds(start_offset(admin, at), high_watermark(admin, at))


def _offset(admin: Admin, at: TopicPartition, spec: OffsetSpec, isolation: IsolationLevel) -> int:
    def question() -> int:
        asked = admin.list_offsets({at: spec}, isolation_level=isolation, request_timeout=REQUEST_SECONDS)
        try:
            return int(admin.answer(asked[at]).offset)
        except KafkaException as error:
            if error.args[0].code() in STALE_LEADER:
                # The client keeps what it once learnt of the partition's leader until it is made to ask again.
                admin.list_topics(at.topic, REQUEST_SECONDS)
            if error.args[0].code() != NO_LEADER:
                raise
            # It may as well not be there, or not be ours to see.
            describe(admin, at.topic)
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE)) from None

    return ask(question, f"asking for offsets of topic {at.topic}", on_topic("Describe", at.topic))
