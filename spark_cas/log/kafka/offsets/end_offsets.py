"""Find the end offsets of partitions, after a barrier if a commit may not be visible yet.

A stale leader returns old end offsets, because a read has no epoch. `proven_bounds` excludes that by a write.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from typing import TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from spark_cas.core.errors import StorageError, UndecidedError
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.plan import Progress
from spark_cas.core.records import records_of_bytes
from spark_cas.log import clock, timing
from spark_cas.log.deadline import Wait, wait_for_others
from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.client_errors import (
    NO_LEADER,
    STALE_LEADER,
    TIMED_OUT,
    Meaning,
    NotPermittedError,
    meaning_of,
    on_topic,
    to_claim,
)
from spark_cas.log.kafka.client.clients import TransactionalProducer
from spark_cas.log.kafka.client.sending import produce
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.log.kafka.topic.topic_settings import describe

_Request = tuple[OffsetSpec, IsolationLevel]

_START: _Request = (OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)  # type: ignore[no-untyped-call] # theirs
_END: _Request = (OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)  # type: ignore[no-untyped-call]
_DECIDED_END: _Request = (OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)  # type: ignore[no-untyped-call]

_NOT_YET_KNOWN = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART})
"""The error of a leader for a partition that was just added. `describe` detects a deleted topic."""

_NO_SUCH_OFFSET = -1
"""The broker's answer if no record is new enough."""

_MOMENTS = 3
"""How many times `stable_ends` retries."""

_Answer = TypeVar("_Answer")
_Entries = tuple[Progress | None, ...]
"""The ledger entries of a job, by partition."""


def start_offset(admin: Admin, at: TopicPartition) -> int:
    """Return the oldest offset that the partition keeps."""
    return _offsets(admin, at, _START)[0]


def high_watermark(admin: Admin, at: TopicPartition) -> int:
    """Return the high watermark: the end of the replicated records, open transactions included."""
    return high_watermarks(admin, [at])[0]


def high_watermarks(admin: Admin, ats: list[TopicPartition]) -> list[int]:
    """Return the high watermarks of several partitions of a topic at once."""
    return [end for (end,) in _all_offsets(admin, ats, _END)]


def last_stable_offset(admin: Admin, at: TopicPartition) -> int:
    """Return the last stable offset: all transactions below it are committed or aborted."""
    return _offsets(admin, at, _DECIDED_END)[0]


def barrier(admin: Admin, at: TopicPartition, timeout_seconds: float, at_least: int = 0) -> Bounds:
    """Return the bounds of one partition as `barriers`. Confirm an end that is lower than ``at_least``."""
    (bounds,) = reaching(admin, at.topic, [at_least], lambda: barriers(admin, [at], timeout_seconds))
    return bounds


def stable_ends(admin: Admin, ats: list[TopicPartition], timeout_seconds: float) -> tuple[Bounds, ...] | None:
    """Return the bounds that several partitions had at one moment, confirmed by a second read with equal end offsets.

    Each transaction over some of the partitions is then in all of them or in none. Return None if other producers
    append without a pause. Raises as `barriers`.
    """
    for _ in range(_MOMENTS):
        result = barriers(admin, ats, timeout_seconds)
        # A transaction visible in one partition at the first read is in all others by now.
        now = _all_offsets(admin, ats, _END)
        if all(end == each.end_offset for (end,), each in zip(now, result, strict=True)):
            return result
    return None


def barriers(admin: Admin, ats: list[TopicPartition], timeout_seconds: float) -> tuple[Bounds, ...]:
    """Return the bounds of partitions of a topic after every transaction that was open at the call has ended.

    Raises:
        UndecidedError: A transaction is still open after the timeout, which covers all partitions.
    """
    doing = f"looking where topic {ats[0].topic} ends" if ats else ""
    durations = timing.current()
    wait = wait_for_others(timeout_seconds, doing, 2 * durations.poll_pause, durations.longest_poll_pause)
    result: dict[TopicPartition, Bounds] = {}
    # Correct in any order: when the last stable offset reaches the target, every transaction below the target has
    # ended.
    requested = _all_offsets(admin, ats, _START, _DECIDED_END, _END)
    targets = {at: target for at, (_, _, target) in zip(ats, requested, strict=True)}
    ends = {at: (start, end) for at, (start, end, _) in zip(ats, requested, strict=True)}
    while True:
        result |= {at: Bounds(*each) for at, each in ends.items() if each[1] >= targets[at]}
        waiting = [at for at in ats if at not in result]
        if not waiting:
            return tuple(result[at] for at in ats)
        if not wait.again(f"a transaction is open in partition {waiting[0].partition}"):
            at, end = waiting[0], ends[waiting[0]][1]
            raise UndecidedError(
                f"partition {at.partition} of topic {at.topic}: a transaction has been open at offset {end} for more "
                f"than {wait.waited:.0f} s, and blocks readers of later records. Wait until it ends, or find its "
                f"writer with kafka-transactions.sh describe-producers and abort it.",
                partition=at.partition,
            )
        again = _all_offsets(admin, waiting, _START, _DECIDED_END)
        ends = {at: (start, end) for at, (start, end) in zip(waiting, again, strict=True)}


def stable_bounds(admin: Admin, at: TopicPartition) -> Bounds:
    """Return the partition's bounds up to the last stable offset, without waiting for open transactions."""
    return all_stable_bounds(admin, [at])[0]


def all_stable_bounds(admin: Admin, ats: list[TopicPartition]) -> tuple[Bounds, ...]:
    """Return the same for several partitions of a topic at once."""
    return tuple(Bounds(*each) for each in _all_offsets(admin, ats, _START, _DECIDED_END))


def reaching(
    admin: Admin,
    topic: str,
    at_least: Sequence[int],
    read: Callable[[], tuple[Bounds, ...]],
    seconds: float | None = None,
) -> tuple[Bounds, ...]:
    """Return bounds in a topic as ``read`` does. Confirm each end that is lower than the one in ``at_least``."""

    def doubt(result: tuple[Bounds, ...]) -> str:
        short = any(each.end_offset < end for each, end in zip(result, at_least, strict=False))
        return "it ends before a known offset" if short else ""

    return admin.confirmed(read, doubt, f"looking where topic {topic} ends", topic=topic, seconds=seconds)


def require_kept(admin: Admin, at: TopicPartition, offsets: OffsetRange) -> None:
    """Raise ValueError unless the partition keeps all of a stable range."""
    seconds = timing.current().metadata_lag
    (bounds,) = reaching(admin, at.topic, [offsets.end_offset], lambda: all_stable_bounds(admin, [at]), seconds)
    bounds.require(offsets)


def bounds_to_high_watermark(admin: Admin, at: TopicPartition) -> Bounds:
    """Return the partition's bounds up to the high watermark, without waiting. Do not use them for a check."""
    return Bounds(*_offsets(admin, at, _START, _END))


def lookup_time(admin: Admin, at: TopicPartition, timestamp_ms: int) -> tuple[int | None, Bounds]:
    """Return the first offset with a timestamp of at least this time, and the partition's stable bounds.

    The offset is None if the broker finds none. It may be the offset of a transaction marker, whose timestamp is the
    wall clock of a broker, or of a record whose transaction was aborted or is open. No committed record as new
    as this has a lower offset. All requests are sent in one round trip.
    """
    spec = _at_time(timestamp_ms), IsolationLevel.READ_UNCOMMITTED
    first, start, end = _offsets(admin, at, spec, _START, _DECIDED_END, absent=_NO_SUCH_OFFSET)
    return (None if first == _NO_SUCH_OFFSET else first), Bounds(start, end)


def dated_since(admin: Admin, at: TopicPartition, timestamp_ms: int) -> tuple[int, int] | None:
    """Return the first offset below the last stable offset with at least this timestamp, and its timestamp.

    Return None if there is none. Transaction markers and aborted records count, as in `lookup_time`.
    """
    offset, record_ms = _dated(admin, at, _at_time(timestamp_ms), IsolationLevel.READ_COMMITTED)
    return None if offset == _NO_SUCH_OFFSET else (offset, record_ms)


def newest_ms(admin: Admin, at: TopicPartition) -> int:
    """Return the highest timestamp in a partition, -1 if it is empty.

    Transaction markers and records of aborted and open transactions count.
    """
    which = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
    return _dated(admin, at, which, IsolationLevel.READ_UNCOMMITTED)[1]


def _at_time(timestamp_ms: int) -> OffsetSpec:
    """Return the request for an offset by time. Negative times have a special meaning, and no record has one."""
    spec: OffsetSpec = OffsetSpec.for_timestamp(max(0, timestamp_ms))
    return spec


def _dated(admin: Admin, at: TopicPartition, which: OffsetSpec, isolation: IsolationLevel) -> tuple[int, int]:
    """Return the offset and the timestamp from the leader, each -1 if there is none."""

    def question() -> tuple[int, int]:
        requested = admin.client.list_offsets(
            {at: which}, isolation_level=isolation, request_timeout=admin.request_seconds
        )
        answer = admin.answer(requested[at])
        return int(answer.offset), int(answer.timestamp)

    return _ask_of_leaders(admin, [at], question, f"looking up a time in topic {at.topic}")


def _offsets(admin: Admin, at: TopicPartition, *wanted: _Request, absent: int = 0) -> list[int]:
    """Return offsets of a partition in the order of the requests, as `_all_offsets`."""
    return _all_offsets(admin, [at], *wanted, absent=absent)[0]


def _all_offsets(admin: Admin, ats: list[TopicPartition], *wanted: _Request, absent: int = 0) -> list[list[int]]:
    """Return the offsets of several partitions of a topic, in the order of the requests.

    All requests are sent at once.

    ``absent`` is the brokers' answer if a request can have no offset.
    """
    if not ats:
        return []

    def question() -> list[list[int]]:
        requested = [
            admin.client.list_offsets(
                dict.fromkeys(ats, which), isolation_level=isolation, request_timeout=admin.request_seconds
            )
            for which, isolation in wanted
        ]
        # Wait for all of them, because one late answer makes all of them doubtful.
        with admin.noticing_late():
            wait([each[at] for each in requested for at in ats], admin.request_seconds)
        offsets = [[int(admin.answer(each[at]).offset) for each in requested] for at in ats]
        if min(map(min, offsets)) < min(0, absent):
            # During a leader change, the client may return an invalid offset without an error.
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
        return offsets

    return _ask_of_leaders(admin, ats, question, f"asking for offsets of topic {ats[0].topic}")


def _ask_of_leaders(admin: Admin, ats: list[TopicPartition], question: Callable[[], _Answer], doing: str) -> _Answer:
    """Send a request as `Admin.ask` to the leaders of partitions of one topic, which the client has to know before.

    After an error, request the leaders again, because librdkafka drops a leader that reports it is none. Confirm the
    answer if a broker answered late (`Admin.waited_recently`).
    """
    topic, numbers = ats[0].topic, [at.partition for at in ats]

    def read() -> _Answer:
        return _of_leaders_now(admin, topic, numbers, question)

    def doubt(_: _Answer) -> str:
        return "a broker answered late" if admin.waited_recently() else ""

    def of_leaders() -> _Answer:
        return admin.confirmed(read, doubt, doing, topic=topic, seconds=timing.current().metadata_lag)

    return admin.ask(of_leaders, doing, on_topic("Describe", topic))


def _of_leaders_now(admin: Admin, topic: str, partitions: list[int], question: Callable[[], _Answer]) -> _Answer:
    """Send the request once. Raises KafkaException, LogNotFoundError, StorageError."""
    if not admin.knows_leaders(topic, partitions):
        # The topic may not exist, or this principal may not see it.
        describe(admin, topic)
        raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
    try:
        return question()
    except KafkaException as error:
        code = error.args[0].code()
        admin.forget_leaders(topic)
        passing = STALE_LEADER | TIMED_OUT | _NOT_YET_KNOWN
        if code == NO_LEADER or (code in passing and admin.ask_leaders(topic)):
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE)) from None
        raise


def at_one_moment(
    admin: Admin,
    ats: list[TopicPartition],
    jobs: Callable[[], Mapping[str, bool]],
    entries: Callable[[str], _Entries],
    timeout_seconds: float,
) -> tuple[Bounds, ...]:
    """Return the bounds of several partitions, such that each atomic load is in all of them or in none.

    Brokers write the marker of a commit to one partition after the other, and do not report which transaction a
    record belongs to. But the ledger of a load lists all of its partitions. If the ledgers are equal before and after
    the bounds are read, no atomic load was committed in between. If the principal may not read the records of loads,
    the bounds may split a load that is being committed.

    ``jobs`` returns all atomic loads, and whether each is complete, and so visible in all partitions. ``entries``
    returns the ledger entries of a load after all transactions that may change them have ended.

    Raises:
        UndecidedError: A transaction is open for longer than the timeout, or loads are committed for as long without
            a pause.
        StorageError: The brokers did not answer.
    """

    def read_ledgers() -> dict[str, _Entries]:
        result = {job: entries(job) for job in sorted(requested)}
        return {job: known for job, known in result.items() if any(known)}

    if len(ats) <= 1:
        return barriers(admin, ats, timeout_seconds)
    result = stable_ends(admin, ats, timeout_seconds)
    if result is not None:
        return result
    doing, pause = "looking where partitions end that loads are committed to as a whole", timing.current().first_pause
    wait = Wait(timeout_seconds, doing, pause, pause)
    try:
        before = jobs()
        requested = {job for job, complete in before.items() if not complete}
        ledgers = read_ledgers()
        while True:
            result = barriers(admin, ats, timeout_seconds)
            requested |= jobs().keys() - before.keys()
            ledgers_before, ledgers = ledgers, read_ledgers()
            if ledgers == ledgers_before:
                return result
            if not wait.again("loads are committed"):
                raise UndecidedError(
                    f"{doing}: for {wait.waited:.0f} s others were committed again and again. Try again when fewer "
                    f"loads are written as a whole at once."
                )
    except NotPermittedError:
        return barriers(admin, ats, timeout_seconds)


def proven_bounds(admin: Admin, spec: KafkaSpec, at: TopicPartition, transactional_id: str) -> Bounds:
    """Return the bounds as `barrier`, but never those of a stale leader, and fence the owner of the transactional id.

    A stale leader cannot acknowledge a record, so a record is written and aborted. No reader sees it. The topic of
    the spec is that of the partition.

    Raises:
        UndecidedError: A transaction is still open after the timeout of the spec.
        StorageError: The brokers did not acknowledge the record, or do not report it.
    """
    doing = f"writing to partition {at.partition} of topic {at.topic}"
    rights = *to_claim(spec), on_topic("Write", at.topic)
    mark = admin.ask(lambda: _mark(spec, at, transactional_id), doing, *rights)
    # The client may still use a stale leader.
    admin.forget_leaders(at.topic)
    bounds = barrier(admin, at, spec.open_transaction_seconds, mark)
    if bounds.end_offset < mark:
        raise StorageError(
            f"{doing}: its leader reports the end offset {bounds.end_offset}, although another broker acknowledged "
            f"offset {mark}. Check that the brokers are well, then run the same command again."
        )
    return bounds


def _mark(spec: KafkaSpec, at: TopicPartition, transactional_id: str) -> int:
    """Append a record, abort it, and return its offset. Raises KafkaException."""
    # Compacted topics reject records without a key.
    record = records_of_bytes([b"end"], [None])
    producer = TransactionalProducer(spec, transactional_id)
    try:
        producer.init(spec.open_transaction_seconds)
        producer.begin()
        try:
            sent = produce(producer, at, record, clock.now_ms(), spec.request_seconds)
        finally:
            producer.abort()
    except KafkaException as error:
        if meaning_of(error.args[0].code()) is not Meaning.FENCED:
            raise
        # Another process does the same at this moment, and completes soon.
        raise KafkaException(KafkaError(KafkaError.CONCURRENT_TRANSACTIONS)) from None
    finally:
        producer.close()
    if sent is None or sent.range is None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 - librdkafka names it so
    return sent.range.base_offset
