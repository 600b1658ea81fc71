"""One transaction of a chunk: its records, their offsets and the job's ledger entry, up to a commit without reply."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException

from spark_cas.core.chunks import Chunk
from spark_cas.core.claim import Claim
from spark_cas.core.errors import ConditionalLogError
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import Fenced, LayoutChanged, Outcome, Unknown
from spark_cas.log import timing
from spark_cas.log.kafka.append.checks import Checks, fenced_since, is_checked
from spark_cas.log.kafka.append.fence import Fence
from spark_cas.log.kafka.append.placement import Landed, landed
from spark_cas.log.kafka.client.sending import Sending
from spark_cas.log.kafka.offsets import end_offsets
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

        Raises as `require_planned`, and KafkaException if the instance has no brokers left.
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

    def resolve(self, sent: Landed, *, fenced: bool) -> Bounds | Fenced | Unknown | None:
        """Find out from the ledger whether a commit without a reply took place.

        Return the bounds of the partition if it did, and None if it did not and may be retried. Return `Fenced` if
        another writer of the job changed the ledger entry, and Unknown if the ledger cannot be read. ``fenced`` is
        whether the commit was rejected because a newer writer holds the fence. The instance is unusable either way.
        """
        checks, claim, chunk = self.checks, self.claim, self.chunk
        try:
            if not fenced:
                # A new instance aborts or completes the transaction of the old one. If fenced, the newer writer has
                # done that.
                self.fence.put_up_patiently()
            progress = checks.progress()
            bounds = end_offsets.bounds_to_high_watermark(checks.admin, checks.at)
            # Require an exact match, because another attempt at the same chunk leaves the same rows at other offsets.
            # An entry that differs may be older than the commit.
            if progress == claim.progress_after(chunk, sent.at) or self._is_visible(sent.at):
                return bounds
        except ConditionalLogError:
            return Unknown("the reply to the commit was lost, and the ledger could not be read")
        return fenced_since(progress, claim.progress)

    def _is_visible(self, at: OffsetRange) -> bool:
        """Return whether a committed record is at these offsets. Offsets are never reused, so it is of this chunk.

        If no offset was checked, records of others may be between the first and the last offset.
        """
        rows = self.chunk.records.num_rows
        if not rows:
            return False
        first, end = at.base_offset, at.end_offset
        ours = [at] if len(at) == rows else [OffsetRange(first, first + 1), OffsetRange(end - 1, end)]
        return any(map(self.checks.has_record, ours))

    def prove(self) -> Outcome:
        """Verify that the claim is still the newest: commit a transaction that moves no offset.

        The coordinator commits it only for the newest producer of the transactional id, and only if its replicas
        agree. Then the result is `Appended`, and otherwise `Fenced`, for any reason. A new producer is not tried,
        because it would fence other writers itself. Raises StorageError.
        """
        if not self.fence.is_clean:
            return Fenced(None)
        self.fence.mark_used()
        end_offset = self.claim.end_offset
        try:
            shown = isinstance(self.prepare(Bounds(0, end_offset)), Landed)
            if shown:
                self.fence.instance.commit()
        except KafkaException:
            shown = False
        if not shown:
            self.fence.give_way()
            return Fenced(None)
        return Landed(OffsetRange(end_offset, end_offset), has_offset=True, time_ms=None).appended(0, 0)
