"""Where a chunk's records landed, before the commit and behind it."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from confluent_kafka import KafkaException, TopicPartition

from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import Truncated
from spark_cas.log.kafka import ends
from spark_cas.log.kafka.append.checks import Checks
from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.ask import second_look
from spark_cas.log.kafka.client.clients import TransactionalProducer
from spark_cas.log.kafka.client.reports import Reports
from spark_cas.log.kafka.reading import OvertakenError, first_record

_VISIBLE_SECONDS = 2.0
_PAUSE_SECONDS = 0.0005


@dataclass(frozen=True, slots=True)
class Landed:
    """Where the records of an open transaction lie, and what the brokers said of it."""

    at: OffsetRange
    has_offset: bool
    """Whether they said it; else it was concluded from the partition's end."""
    time_ms: int | None
    """The time of the records that had none, or of all where the topic gives it; None where each has its own."""


def landed(checks: Checks, delivered: Reports, rows: int, end_offset: int, *, checked: bool) -> Landed | None:
    """Where the records of an open transaction lie; None when that is not known, or not where the claim wants them.

    A claim that is ``checked`` wants them right behind ``end_offset``, or with nothing committed in between. A record
    acknowledged without an offset (KIP-192) is placed by the partition's end: when that moved by just the number of
    records, each of them was acknowledged and nobody else's is there.
    """
    wanted = OffsetRange(end_offset, end_offset + rows)
    reported = delivered.range
    found = reported
    if found is None and ends.high_watermark(checks.admin, checks.at) == wanted.end_offset:
        found = wanted
    if found is None:
        return None
    if checked and found != wanted:
        if len(found) != rows or found.base_offset < end_offset:
            return None
        if not _only_aborted(checks, OffsetRange(end_offset, found.base_offset)):
            return None
    return Landed(found, reported is not None, delivered.given_ms)


def _only_aborted(checks: Checks, between: OffsetRange) -> bool:
    """Whether what came between the check and our records, which follow one another, was aborted.

    Our open transaction holds the decided end at our first record, once all that lies before it is decided.
    """
    deadline = time.monotonic() + _VISIBLE_SECONDS
    while ends.last_stable_offset(checks.admin, checks.at) < between.end_offset:
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE_SECONDS)
    try:
        return first_record(checks.readers, checks.at, between) is None
    except OvertakenError:
        return False


def await_visible(
    admin: Admin, at: TopicPartition, records: OffsetRange, writer: TransactionalProducer | None = None
) -> Bounds | Truncated:
    """Wait until readers can see records that were committed, and return the bounds of what is decided behind them.

    The decided end stays below the records' end while an open transaction of another writer holds it back. ``writer``
    is the instance that committed, if it can still be asked.
    """
    if writer is not None:
        with suppress(KafkaException):
            decided = _decided_behind(lambda: writer.decided_bounds(at.partition), records)
            if decided.end_offset >= records.end_offset:
                return decided
    wait = second_look(admin, f"looking for what was committed to partition {at.partition}")
    decided = stable_bounds_behind(admin, at, records)
    while decided.end_offset < records.end_offset and ends.high_watermark(admin, at) < records.end_offset:
        # A broker that was deposed, and does not know it yet, answers as of then.
        admin.forget_leaders(at.topic)
        if not wait.again("it is not there"):
            return Truncated(records.end_offset, decided.end_offset)
        decided = stable_bounds_behind(admin, at, records)
    return decided


def stable_bounds_behind(admin: Admin, at: TopicPartition, records: OffsetRange) -> Bounds:
    """The bounds of what is decided, once that covers records, or when somebody else's transaction holds it."""
    return _decided_behind(lambda: ends.stable_bounds(admin, at), records)


def _decided_behind(ask: Callable[[], Bounds], records: OffsetRange) -> Bounds:
    deadline = time.monotonic() + _VISIBLE_SECONDS
    while True:
        bounds = ask()
        end = bounds.end_offset
        # Held below our records, it is held by somebody who wrote before us: no marker of ours moves it.
        if end >= records.end_offset or end < records.base_offset or time.monotonic() > deadline:
            return bounds
        time.sleep(_PAUSE_SECONDS)
