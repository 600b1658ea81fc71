"""The offsets that the records of a transaction got: check them before the commit, and await them after it."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from confluent_kafka import KafkaException, TopicPartition

from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import Appended, Truncated
from spark_cas.log import timing
from spark_cas.log.kafka.append.checks import Checks
from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.clients import TransactionalProducer
from spark_cas.log.kafka.client.sending import Reports
from spark_cas.log.kafka.offsets import end_offsets
from spark_cas.log.kafka.offsets.reading import OvertakenError, first_record


@dataclass(frozen=True, slots=True)
class Landed:
    """The offsets of the records of an open transaction, and the brokers' report of them."""

    at: OffsetRange
    has_offset: bool = True
    """Whether the brokers reported the offsets. If not, they are derived from the partition's end."""
    time_ms: int | None = None
    """The timestamp of the records that had none, or of all if the topic assigns it. None if each has its own."""

    def appended(self, count: int, start_offset: int, *, resolved: bool = False) -> Appended:
        """Return the outcome of an append of these records to a partition with this start."""
        return Appended(self.at, count, self.time_ms, start_offset, has_offset=self.has_offset, resolved=resolved)


def landed(checks: Checks, delivered: Reports, rows: int, end_offset: int, *, checked: bool) -> Landed | None:
    """Return the offsets of the records of an open transaction, None if unknown or not at the expected offset.

    If the claim is ``checked``, the records must start at ``end_offset``, or follow only aborted records. A record
    acknowledged without an offset (KIP-192) is located by the partition's end. If the end moved by exactly the number
    of records, the broker appended all of them and no others.
    """
    wanted = OffsetRange(end_offset, end_offset + rows)
    result = delivered.range
    if result is None and end_offsets.high_watermark(checks.admin, checks.at) == wanted.end_offset:
        result = wanted
    if result is None:
        return None
    if checked and result != wanted:
        if len(result) != rows or result.base_offset < end_offset:
            return None
        if not _only_aborted(checks, OffsetRange(end_offset, result.base_offset)):
            return None
    return Landed(result, delivered.range is not None, delivered.explicit_ms)


def _only_aborted(checks: Checks, between: OffsetRange) -> bool:
    """Return whether all records between the check and the records of this transaction were aborted.

    This open transaction holds the last stable offset at its first record after all earlier transactions have ended.
    """
    if _stable_bounds_after(checks.admin, checks.at, between).end_offset < between.end_offset:
        return False
    try:
        return first_record(checks.readers, checks.at, between) is None
    except OvertakenError:
        return False


def await_visible(
    admin: Admin, at: TopicPartition, records: OffsetRange, writer: TransactionalProducer | None = None
) -> Bounds | Truncated:
    """Wait until readers can see committed records. Return the bounds up to the last stable offset.

    An earlier open transaction of another writer can hold the last stable offset below the end of the records.
    ``writer`` is the producer that committed, if it is still usable.
    """
    if writer is not None:
        with suppress(KafkaException):
            decided = _decided_after(lambda: writer.decided_bounds(at.partition), records)
            if decided.end_offset >= records.end_offset:
                return decided

    def read() -> Bounds | Truncated:
        decided = _stable_bounds_after(admin, at, records)
        if decided.end_offset >= records.end_offset or end_offsets.high_watermark(admin, at) >= records.end_offset:
            return decided
        return Truncated(records.end_offset, decided.end_offset)

    def doubt(result: Bounds | Truncated) -> str:
        return "it is not there" if isinstance(result, Truncated) else ""

    doing = f"reading the committed records of partition {at.partition}"
    return admin.confirmed(read, doubt, doing, topic=at.topic)


def _stable_bounds_after(admin: Admin, at: TopicPartition, records: OffsetRange) -> Bounds:
    return _decided_after(lambda: end_offsets.stable_bounds(admin, at), records)


def _decided_after(read: Callable[[], Bounds], records: OffsetRange) -> Bounds:
    """Return the stable bounds when they cover the records, an earlier transaction is open, or time is over."""
    deadline = time.monotonic() + timing.current().visible
    while True:
        bounds = read()
        end = bounds.end_offset
        # If it is below the records, an earlier writer's transaction holds it. A marker of this writer cannot move
        # it.
        if end >= records.end_offset or end < records.base_offset or time.monotonic() > deadline:
            return bounds
        time.sleep(timing.current().poll_pause)
