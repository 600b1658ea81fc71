"""One transaction up to its commit: a chunk's records, and the job's ledger entry."""

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
from spark_cas.log import timing
from spark_cas.log.kafka.append.checks import Checks, is_checked
from spark_cas.log.kafka.append.fence import Fence
from spark_cas.log.kafka.append.placement import Landed, landed
from spark_cas.log.kafka.client.sending import Sending
from spark_cas.log.kafka.topic.topic_settings import require_planned

INTERLEAVED = "other writers interleaved and then aborted"
OPEN_FOR_TOO_LONG = "the brokers ended the transaction, which was open for too long"


@dataclass(frozen=True, slots=True)
class Again:
    """The transaction failed. Nothing of the chunk is or becomes visible, and another attempt may append it."""

    why: str
    """The reason, as part of a sentence."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A chunk with its claim. Each call of `prepare` uses a transaction of its own."""

    checks: Checks
    fence: Fence
    claim: Claim
    chunk: Chunk

    def prepare(self, bounds: Bounds) -> Landed | LayoutChanged | Again:
        """Send the chunk in an open transaction, or abort it. Raises KafkaException, ConditionalLogError."""
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
        # Add the entry in parallel to the records. They nearly always get the expected offsets.
        entered = self._entering(wanted)
        try:
            arrived = sending.arrive(checks.spec.delivery_seconds + timing.current().overdue)
            # Check after the records have arrived: a recreated topic may have the same end offset.
            partitions = self._partitions_now() if arrived and not sending.refused else 0
        except KafkaException:
            # The client can abort only after this call has ended. Without brokers, the call never ends.
            if not self.fence.instance.stranded:
                with suppress(KafkaException):
                    entered()
            raise
        except ConditionalLogError:
            # If this writer is fenced, report that rather than the state of the topic.
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
        # Another tool that adds partitions does not fence writers. No tool removes partitions.
        planned = self.claim.plan.layout_epoch
        return sent if partitions <= planned else LayoutChanged(planned, partitions)

    def _partitions_now(self) -> int | Again:
        """Return the partition count from the broker that took the records, or from any broker if it does not answer.

        Raises:
            LogNotFoundError: The topic does not exist.
            LogNotSharedError: The topic is not the planned one.
            StorageError: The brokers did not answer.
            KafkaException: The instance has no brokers left.
        """
        admin, at, plan, instance = self.checks.admin, self.checks.at, self.claim.plan, self.fence.instance
        requested_at, described = time.monotonic(), None
        with suppress(KafkaException), admin.noticing_late():
            described = instance.describe()
        if instance.stranded:
            raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))  # noqa: SLF001 - it is public
        if described is not None and described[0] == plan.log_id and described[1] >= plan.layout_epoch:
            admin.cache_topic(requested_at, at.topic, *described)
            return described[1]
        partitions = len(require_planned(admin, at.topic, plan.log_id).partitions)
        if described is None or described[0] == plan.log_id:
            return partitions
        # The records may be in either of the two topics.
        return Again("the brokers do not agree which topic has its name")

    def _entering(self, at: OffsetRange) -> Callable[[], None]:
        """Start adding the job's ledger entry to the open transaction. It replaces an entry added earlier."""
        progress = self.claim.progress_after(self.chunk, at)
        return self.checks.ledger.adding(
            self.fence.instance, self.checks.at.topic, self.claim.plan.log_id, [progress]
        )
