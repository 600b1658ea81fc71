"""Where a partition ends: read behind a barrier, because a commit returns before its marker is visible."""

import time

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from spark_cas.core.errors import StorageError
from spark_cas.core.offsets import Bounds
from spark_cas.log.kafka.admin import Admin
from spark_cas.log.kafka.asking import REQUEST_SECONDS, ask
from spark_cas.log.kafka.codes import NO_LEADER, STALE_LEADER, TIMED_OUT
from spark_cas.log.kafka.rights import on_topic
from spark_cas.log.kafka.topic_settings import describe

_Asked = tuple[OffsetSpec, IsolationLevel]

_START: _Asked = (OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)  # type: ignore[no-untyped-call] # theirs
_END: _Asked = (OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)  # type: ignore[no-untyped-call]
_DECIDED_END: _Asked = (OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)  # type: ignore[no-untyped-call]

_NO_SUCH_OFFSET = -1
"""What brokers answer when no record is as new as was asked for."""

_METADATA_SECONDS = 3.0
_FIRST_PAUSE_SECONDS = 0.001
_LONGEST_PAUSE_SECONDS = 0.1


def start_offset(admin: Admin, at: TopicPartition) -> int:
    """The oldest offset that the partition keeps."""
    return _offsets(admin, at, _START)[0]


def high_watermark(admin: Admin, at: TopicPartition) -> int:
    """The end of what is replicated, decided or not."""
    return _offsets(admin, at, _END)[0]


def committed_end(admin: Admin, at: TopicPartition) -> int:
    """The end of what is decided (the last stable offset)."""
    return _offsets(admin, at, _DECIDED_END)[0]


def barrier(admin: Admin, at: TopicPartition, timeout_seconds: float) -> Bounds:
    """The partition's bounds once all that was in it when this was called is decided.

    Raises StorageError when someone's open transaction outlasts the timeout: a stale answer is never given.
    """
    deadline = time.monotonic() + timeout_seconds
    pause = _FIRST_PAUSE_SECONDS
    # Whichever is read first: a decided end that has reached the target proves all below the target decided.
    start, target, end = _offsets(admin, at, _START, _END, _DECIDED_END)
    while end < target:
        if time.monotonic() > deadline:
            raise StorageError(
                f"partition {at.partition} of topic {at.topic}: a transaction has been open from offset {end} on for "
                f"more than {timeout_seconds:.0f} s, so what lies behind it is undecided. Nothing was appended. Wait "
                f"until it ends, or find its writer with kafka-transactions.sh describe-producers and abort it."
            )
        time.sleep(pause)
        pause = min(_LONGEST_PAUSE_SECONDS, pause * 2)
        start, end = _offsets(admin, at, _START, _DECIDED_END)
    return Bounds(start, end)


def decided_now(admin: Admin, at: TopicPartition) -> Bounds:
    """The partition's bounds without waiting: records of transactions that are open lie behind them."""
    return Bounds(*_offsets(admin, at, _START, _DECIDED_END))


def undecided(admin: Admin, at: TopicPartition) -> Bounds:
    """The partition's bounds without waiting, records of open transactions included: no check may rest on them."""
    return Bounds(*_offsets(admin, at, _START, _END))


def offset_since(admin: Admin, at: TopicPartition, timestamp_ms: int) -> int | None:
    """The first offset that is not older than a time; None when every decided one is older.

    What lies there may be a marker or a record of an aborted transaction: they have times too. No committed record
    that is as new lies before it.
    """
    # Below 0 the protocol has names for ends, and no records.
    asked = OffsetSpec.for_timestamp(max(0, timestamp_ms)), IsolationLevel.READ_COMMITTED
    (found,) = _offsets(admin, at, asked, absent=_NO_SUCH_OFFSET)
    return None if found == _NO_SUCH_OFFSET else found


def newest_ms(admin: Admin, at: TopicPartition) -> int:
    """The highest timestamp in a partition, -1 when it is empty. What has it may be undecided or no record."""
    which = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]

    def question() -> int:
        return int(admin.answer(admin.list_offsets({at: which}, request_timeout=REQUEST_SECONDS)[at]).timestamp)

    return ask(question, f"asking for the newest time of topic {at.topic}", on_topic("Describe", at.topic))


def _offsets(admin: Admin, at: TopicPartition, *wanted: _Asked, absent: int = 0) -> list[int]:
    """Offsets of a partition, in the order in which they are named. They are asked for at once.

    ``absent`` is what the brokers answer where there may be none.
    """

    def question() -> list[int]:
        asked = [
            admin.list_offsets({at: which}, isolation_level=isolation, request_timeout=REQUEST_SECONDS)[at]
            for which, isolation in wanted
        ]
        try:
            offsets = [int(admin.answer(each).offset) for each in asked]
        except KafkaException as error:
            if error.args[0].code() in STALE_LEADER | TIMED_OUT and _asks_who_leads(admin, at):
                raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE)) from None
            if error.args[0].code() != NO_LEADER:
                raise
            # It may as well not be there, or not be ours to see.
            describe(admin, at.topic)
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE)) from None
        if min(offsets) < min(0, absent):
            # Between two leaders the client may give an invalid offset, and no error with it.
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
        return offsets

    return ask(question, f"asking for offsets of topic {at.topic}", on_topic("Describe", at.topic))


def _asks_who_leads(admin: Admin, at: TopicPartition) -> bool:
    """Let the client ask again who leads a partition: until then it keeps to whom it once learnt of, dead or not."""
    try:
        admin.list_topics(at.topic, _METADATA_SECONDS)
    except KafkaException:
        return False
    return True
