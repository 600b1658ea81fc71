"""One transaction up to its commit: a chunk's records and the job's ledger entry, where the claim wants them."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException

from spark_cas.core.chunks import Chunk
from spark_cas.core.claim import Claim
from spark_cas.core.errors import ConditionalLogError
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import LayoutChanged
from spark_cas.log.kafka.append.checks import Checks, is_checked
from spark_cas.log.kafka.append.fence import Fence
from spark_cas.log.kafka.append.placement import Landed, landed
from spark_cas.log.kafka.append.sending import Sending
from spark_cas.log.kafka.topic_settings import require_planned

INTERLEAVED = "other writers interleaved and then aborted"
OPEN_FOR_TOO_LONG = "the brokers ended the transaction, which was open for too long"

_OVERDUE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Again:
    """Nothing of the chunk is visible, now or later, and another attempt may append it."""

    why: str
    """In plain words, as part of a sentence."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A chunk under its claim; each `prepare` is a transaction of its own."""

    checks: Checks
    fence: Fence
    claim: Claim
    chunk: Chunk

    def prepare(self, bounds: Bounds) -> Landed | LayoutChanged | Again:
        """Have all of it in an open transaction, or abort that. Raises KafkaException, ConditionalLogError."""
        self.fence.begin()
        try:
            sent = self._send(bounds) if self.chunk.records.num_rows else self._close(bounds)
        except ConditionalLogError:
            self.fence.abort()
            raise
        if not isinstance(sent, Landed):
            self.fence.abort()
        return sent

    def _close(self, bounds: Bounds) -> Landed | Again:
        at = OffsetRange(bounds.end_offset, bounds.end_offset)
        self._entering(at)()
        partitions = self._partitions_now()
        return partitions if isinstance(partitions, Again) else Landed(at, has_offset=True, time_ms=None)

    def _send(self, bounds: Bounds) -> Landed | LayoutChanged | Again:
        checks, rows = self.checks, self.chunk.records.num_rows
        wanted = OffsetRange(bounds.end_offset, bounds.end_offset + rows)
        sending = Sending(self.fence.instance, checks.at, self.chunk.records, self.chunk.time_ms)
        # Beside the records, not after them: nearly always they land where it says.
        entered = self._entering(wanted)
        try:
            arrived = sending.arrive(checks.spec.delivery_seconds + _OVERDUE_SECONDS)
            # After the records landed: the end of another topic of this name may have fitted just as well.
            partitions = self._partitions_now() if arrived and not sending.refused else 0
        except KafkaException:
            # The transaction can be aborted only once the client is done with it, where anybody would hear of that.
            if not self.fence.instance.stranded:
                with suppress(KafkaException):
                    entered()
            raise
        except ConditionalLogError:
            # That this writer is fenced goes before what became of the topic.
            if not self.fence.instance.stranded:
                entered()
            raise
        entered()
        if not arrived:
            return Again("the brokers did not acknowledge the records in time")
        if isinstance(partitions, Again):
            return partitions
        checked = is_checked(self.claim, self.chunk)
        sent = landed(checks, sending.delivered(), rows, bounds.end_offset, checked=checked)
        if sent is None:
            return Again(INTERLEAVED)
        if sent.at != wanted:
            self._entering(sent.at)()
        # Another tool shuts nobody out. Fewer than planned are only what this broker knows yet.
        planned = self.claim.plan.layout_epoch
        return sent if partitions <= planned else LayoutChanged(planned, partitions)

    def _partitions_now(self) -> int | Again:
        """How many the topic has, as the broker tells that took the records, or any where that does not answer.

        Raises LogNotFoundError, LogNotSharedError where it is not the planned one, StorageError; KafkaException once
        the instance is stranded.
        """
        admin, at, plan, instance = self.checks.admin, self.checks.at, self.claim.plan, self.fence.instance
        asked_at, told = time.monotonic(), None
        with suppress(KafkaException), admin.noticing_late():
            told = instance.describe()
        if instance.stranded:
            raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))  # noqa: SLF001 - it is public
        if told is not None and told[0] == plan.log_id and told[1] >= plan.layout_epoch:
            admin.was_told(asked_at, at.topic, *told)
            return told[1]
        partitions = len(require_planned(admin, at.topic, plan.log_id).partitions)
        if told is None or told[0] == plan.log_id:
            return partitions
        # Of the two that are told the records may be in either.
        return Again("the brokers do not agree which topic has its name")

    def _entering(self, at: OffsetRange) -> Callable[[], None]:
        """Begin to put the job's ledger entry into the open transaction, in place of one that is there."""
        progress = self.claim.progress_after(self.chunk, at)
        return self.checks.ledger.adding(
            self.fence.instance, self.checks.at.topic, self.claim.plan.log_id, [progress]
        )
