"""Transactions: each holds chunks and the ledger entries of their partitions, which become visible in one step.

A `PartitionWriter` commits each chunk at once. A `GroupWriter` keeps the chunks of all partitions in one open
transaction until it commits or aborts them.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from spark_cas.core.chunks import Chunk
from spark_cas.core.claim import Claim
from spark_cas.core.errors import ConditionalLogError, LogNotFoundError
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import LayoutChanged, Outcome, ProgressLost
from spark_cas.core.plan import Plan, Progress, progress_lost, resume_offset
from spark_cas.log import timing
from spark_cas.log.deadline import within
from spark_cas.log.kafka.append.checks import Checks, fenced_by, is_checked, same_rows
from spark_cas.log.kafka.append.fence import Fence
from spark_cas.log.kafka.append.placement import Landed, landed
from spark_cas.log.kafka.append.row_checks import require_acceptable, too_large
from spark_cas.log.kafka.client.client_errors import (
    NOT_FOUND,
    TOO_LARGE,
    Meaning,
    meaning_of,
    plain_error,
    reason_of,
    to_append,
)
from spark_cas.log.kafka.client.kept_clients import ClientSet
from spark_cas.log.kafka.client.sending import Sending, refuse_unsendable
from spark_cas.log.kafka.offsets import end_offsets
from spark_cas.log.kafka.registry.group_metadata import Ledger
from spark_cas.log.kafka.registry.layouts import TopicLayouts
from spark_cas.log.kafka.topic.topic_settings import require_planned

INTERLEAVED = "other writers interleaved and then aborted"
OPEN_FOR_TOO_LONG = "the brokers ended the transaction, which was open for too long"


@dataclass(frozen=True, slots=True)
class Failed:
    """A failed transaction. Nothing of it is or becomes visible, and another attempt may append its chunks."""

    why: str
    """The reason, as part of a sentence."""
    fenced: bool = False
    """Whether the brokers report a newer producer. They also do if they ended the transaction (`timed_out`)."""
    timed_out: bool = False
    entries: tuple[Progress | None, ...] = ()
    """The job's ledger entries, read after a commit that did not take place."""


@dataclass(frozen=True, slots=True)
class Part:
    """The newest chunk of a partition in a transaction."""

    entry: Progress
    """The ledger entry of the job with this chunk."""
    sent: Landed
    """The newest records. A later chunk without records changes only the entry."""
    rows: int
    start_offset: int


class Transactions(ABC):
    """The transactions of one job under one transactional id, one after the other.

    With the fence and the last ledger entry of each partition, a writer detects any other writer of the job before a
    commit.
    """

    nothing_appended = "Nothing of this chunk was appended."
    """The end of an error of a rejected record."""

    def __init__(self, clients: ClientSet, layouts: TopicLayouts, plan: Plan, fence: Fence) -> None:
        self._clients = clients
        self._admin = clients.admin
        self._spec = clients.readers.spec
        self._layouts = layouts
        self._plan = plan
        self._fence = fence
        self._ledger = Ledger(clients.members, plan.job)
        self._parts: dict[int, Part] = {}
        """The open transaction, by partition. Empty if none is open."""
        self.known: dict[int, Progress | None] = {}
        """The job's ledger entry in each claimed partition, with the rows of an open transaction."""

    def append(self, claim: Claim, chunk: Chunk) -> Outcome:
        """Append a chunk, or close the job if the chunk has no records.

        Raises SchemaError, StorageError: nothing of this chunk is or becomes visible.
        """
        refuse_unsendable(chunk.records)
        self._plan = claim.plan
        with within(self._spec.patience_seconds, extensible=True):
            # If the topic is not found, the append itself checks whether it was deleted.
            with suppress(LogNotFoundError):
                require_acceptable(self._clients, self._at(claim.partition), chunk)
            self._fence.mark_used()
            known = self.known.get(claim.partition)
            if claim.partition not in self.known or not same_rows(claim.progress, known):
                return fenced_by(known)
            return self._append(claim, chunk)

    @abstractmethod
    def _append(self, claim: Claim, chunk: Chunk) -> Outcome:
        """Append a chunk of a claim that has the known ledger entry."""

    def _take_over(self, checks: Checks, put_up: Callable[[], None]) -> tuple[Progress | None, LayoutChanged | None]:
        """Fence earlier writers, and read the job's ledger entry under the fence.

        Keep the fence only if that succeeds. Otherwise the next append would find a fence, and skip these checks.
        """
        known = False
        try:
            put_up()
            # Check after fencing, not before: an expansion first records its intent, and then fences the writers.
            progress, changed = checks.fenced_progress(), checks.changed(self._plan)
            self.known[checks.at.partition] = progress
            known = changed is None
            return progress, changed
        finally:
            if not known:
                self._drop()

    def _claimed(
        self, checks: Checks, progress: Progress | None, bounds: Bounds | None = None
    ) -> Claim | ProgressLost:
        """Return the claim of a partition in which the job has this ledger entry."""
        plan, partition = self._plan, checks.at.partition
        expected = resume_offset(plan, partition, progress)
        if bounds is None and expected is None:
            bounds = end_offsets.bounds_to_high_watermark(self._admin, checks.at)
        elif bounds is None:
            self._fence.left = bounds = checks.barrier()
        # Trimming removes records, not ledger entries. Without a check, only expiry can have removed the job's entry.
        if expected is None:
            progress, lost = checks.forgotten(progress, bounds.end_offset)
        else:
            lost = progress_lost(plan, partition, progress, bounds.start_offset)
        if lost:
            return ProgressLost(plan.job)
        self.known[partition] = progress
        return Claim(partition, plan, expected, progress, bounds.end_offset)

    def _add(self, claim: Claim, chunk: Chunk, bounds: Bounds, *, last: bool) -> LayoutChanged | Failed | None:
        """Send a chunk in the open transaction, or in a new one. If that fails, end the transaction.

        Raises KafkaException: then call `_failed`. Raises ConditionalLogError.
        """
        if not self._parts:
            self._fence.begin()
        try:
            failed = self._send(claim, chunk, bounds, last=last)
        except ConditionalLogError:
            self._end()
            raise
        if failed is not None:
            self._end()
        return failed

    def _send(self, claim: Claim, chunk: Chunk, bounds: Bounds, *, last: bool) -> LayoutChanged | Failed | None:
        """Send a chunk in the open transaction. With the ``last`` one, also do the steps of `_close`, in parallel.

        A chunk without records only changes the ledger entry. Raises KafkaException, ConditionalLogError.
        """
        partition, rows, instance = claim.partition, chunk.records.num_rows, self._fence.instance
        wanted = OffsetRange(bounds.end_offset, bounds.end_offset + rows)
        part = Part(claim.progress_after(chunk, wanted), Landed(wanted), rows, bounds.start_offset)
        if not rows:
            # Records of an earlier chunk may have to prove the commit.
            self._parts[partition] = replace(self._parts.get(partition, part), entry=part.entry)
            changed = self._close() if last else None
            return changed if isinstance(changed, Failed) else None
        sending = Sending(instance, self._at(partition), chunk.records, chunk.time_ms)
        # The records nearly always get the expected offsets.
        entered = self._entering([part]) if last else lambda: None
        try:
            arrived = sending.arrive(self._spec.delivery_seconds + timing.current().overdue)
            # Check after the records have arrived: a recreated topic may have the same end offset.
            changed = self._changed_now() if last and arrived and not sending.refused else None
        except (KafkaException, ConditionalLogError) as error:
            # The client can abort only after this call has ended. Without brokers, the call never ends. If this
            # writer is fenced, report that rather than the state of the topic.
            if not instance.stranded:
                with suppress(KafkaException) if isinstance(error, KafkaException) else nullcontext():
                    entered()
            raise
        entered()
        if not arrived:
            return Failed("the brokers did not acknowledge the records in time")
        if isinstance(changed, Failed):
            return changed
        checks, checked = self._checks(partition), is_checked(claim, chunk)
        sent = landed(checks, sending.delivered(), rows, bounds.end_offset, checked=checked)
        if sent is None:
            return Failed(INTERLEAVED)
        self._parts[partition] = part = Part(claim.progress_after(chunk, sent.at), sent, rows, bounds.start_offset)
        if last and sent.at != wanted:
            self._entering([part])()
        return changed

    def _close(self) -> LayoutChanged | Failed | None:
        """Add the ledger entries to the open transaction, and check the topic. Raises as `_send`."""
        self._entering(self._parts.values())()
        return self._changed_now()

    def _entering(self, parts: Iterable[Part]) -> Callable[[], None]:
        """Start adding ledger entries to the open transaction. They replace entries added earlier."""
        entries = [part.entry for part in parts]
        return self._ledger.adding(self._fence.instance, self._spec.topic, self._plan.log_id, entries)

    def _changed_now(self) -> LayoutChanged | Failed | None:
        """Check the topic's id and partition count, as the broker that took the records reports them.

        If it does not answer, any broker counts. Another tool that adds partitions does not fence writers. No tool
        removes partitions. Raises as `require_planned`, and KafkaException if the instance has no brokers left.
        """
        admin, topic, plan, instance = self._admin, self._spec.topic, self._plan, self._fence.instance
        requested_at, described = time.monotonic(), None
        with suppress(KafkaException), admin.noticing_late():
            described = instance.describe()
        if instance.stranded:
            raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))  # noqa: SLF001 - it is public
        if described is not None and described[0] == plan.log_id and described[1] >= plan.layout_epoch:
            admin.cache_topic(requested_at, topic, *described)
            partitions = described[1]
        else:
            partitions = len(require_planned(admin, topic, plan.log_id).partitions)
            if described is not None and described[0] != plan.log_id:
                # The records may be in either of the two topics.
                return Failed("the brokers do not agree which topic has its name")
        return LayoutChanged(plan.layout_epoch, partitions) if partitions > plan.layout_epoch else None

    def _failed(self, error: KafkaException, partition: int = 0, chunk: Chunk | None = None) -> Failed:
        """Handle a failure before the commit request: nothing of the transaction is or becomes visible.

        Raises an error if a retry cannot succeed.
        """
        timed_out, code = self._fence.timed_out, self._fence.code_of(error)
        meaning = meaning_of(code)
        if meaning is Meaning.REFUSED:
            # Readers would wait for rejected records until the transaction times out.
            self._fence.abort()
        self._drop()
        if meaning is Meaning.FENCED:
            self._fence.lost = True
            return Failed(reason_of(code), fenced=True, timed_out=timed_out)
        if code == TOO_LARGE and chunk is not None:
            rejected = too_large(self._clients, self._at(partition), chunk, self.nothing_appended)
            if rejected is not None:
                raise rejected from None
        if code in NOT_FOUND:
            # A new leader may not know the topic yet, but the topic may also have been deleted.
            require_planned(self._admin, self._spec.topic, self._plan.log_id)
        elif meaning is Meaning.REFUSED:
            raise plain_error(error, f"appending to topic {self._spec.topic}", *to_append(self._spec)) from None
        return Failed(reason_of(code))

    def _commit(self) -> KafkaException | None:
        """Commit the open transaction. Return the error of a commit that got no reply, or was rejected.

        Then call `_resolve` with the parts of the transaction, under a fresh deadline.
        """
        self._parts = {}
        try:
            self._fence.instance.commit()
        except KafkaException as error:
            return error
        return None

    def _resolve(self, parts: dict[int, Part], error: KafkaException) -> Failed | None:
        """Find out from the ledger whether a commit that got no reply, or was rejected, took place.

        Return None if it did. The fence is dropped either way. Raises ConditionalLogError: the outcome is unknown.
        """
        timed_out, fenced = self._fence.timed_out, meaning_of(self._fence.code_of(error)) is Meaning.FENCED
        self._fence.drop()
        if not fenced:
            # A new instance aborts or completes the transaction of the old one. If fenced, the newer writer has done
            # that.
            self._fence.put_up_patiently()
            self._fence.drop()
        # Require an exact match, because another attempt at the same chunk leaves the same rows at other offsets.
        # An entry that differs may be older than the commit.
        entries = self._entries(parts)
        entered = any(each == parts[each.partition].entry for each in entries if each is not None)
        if entered or any(self._is_visible(partition, part) for partition, part in parts.items()):
            return None
        return Failed("the commit failed, and the ledger has no entry of it", fenced, fenced and timed_out, entries)

    def _is_visible(self, partition: int, part: Part) -> bool:
        """Return whether a committed record is at these offsets. Offsets are never reused, so it is of this chunk.

        If no offset was checked, records of others may be between the first and the last offset.
        """
        if not part.rows:
            return False
        first, end, ours = part.sent.at.base_offset, part.sent.at.end_offset, [part.sent.at]
        if end - first != part.rows:
            ours = [OffsetRange(first, first + 1), OffsetRange(end - 1, end)]
        return any(map(self._checks(partition).has_record, ours))

    def _entries(self, partitions: Iterable[int]) -> tuple[Progress | None, ...]:
        """Return the job's ledger entries, after the transactions that can change them have ended."""
        ats = [self._at(each) for each in partitions]
        return self._ledger.read_all(ats, self._plan.log_id, self._spec.open_transaction_seconds)

    def _end(self) -> None:
        """Abort the open transaction."""
        self._fence.abort()
        self._parts.clear()

    def _drop(self) -> None:
        """Close the instance. The open transaction is aborted later."""
        self._fence.drop()
        self._parts.clear()

    def _checks(self, partition: int) -> Checks:
        return Checks(self._clients, self._layouts, self._plan, self._at(partition))

    def _at(self, partition: int) -> TopicPartition:
        return TopicPartition(self._spec.topic, partition)
