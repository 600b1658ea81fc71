"""Atomic loads: one transaction over all partitions, open from the first chunk until the group commits or aborts.

The process that appends to a group also commits it. Its transactional id contains the job's name. So another run of
the job, or a process that aborts the group, takes over the id and ends the open transaction. The job's ledger entries
of all partitions are part of the transaction, and later show that it was committed.
"""

from collections.abc import Callable
from typing import NoReturn

from confluent_kafka import KafkaException, TopicPartition

from spark_cas.core.chunks import Chunk
from spark_cas.core.claim import Claim
from spark_cas.core.errors import ConditionalLogError, TransactionEndedError
from spark_cas.core.group import ABORTED, GroupOutcome, batch_of, takes_place
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import Fenced, LayoutChanged, Outcome, ProgressLost, Refusal, Truncated, error_of
from spark_cas.core.plan import Plan, Progress, progress_lost, resume_offset
from spark_cas.log import timing
from spark_cas.log.deadline import fresh_deadline, within
from spark_cas.log.kafka.append.checks import Checks, fenced_by, is_checked, same_rows
from spark_cas.log.kafka.append.chunk_transaction import INTERLEAVED, OPEN_FOR_TOO_LONG
from spark_cas.log.kafka.append.fence import Fence, ProducerPool
from spark_cas.log.kafka.append.placement import Landed, await_visible, landed
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

_NOTHING = "Nothing of the load is visible."


class WholeAppends:
    """The commit group of one plan: the chunks that this process appended to it, and its outcome."""

    def __init__(
        self, clients: ClientSet, layouts: TopicLayouts, plan: Plan, *, is_aborted: Callable[[str], bool]
    ) -> None:
        self._clients = clients
        self._admin = clients.admin
        self._spec = spec = clients.readers.spec
        self._timeout = spec.open_transaction_seconds
        self._layouts = layouts
        self._plan = plan
        self._is_aborted = is_aborted
        self._fence = Fence(ProducerPool(clients), self._at(0), spec.id_of_atomic_load(plan.job))
        self._claimed: set[int] = set()
        """Partitions claimed under the current fence."""
        self._entries: dict[int, Progress] = {}
        """The job's progress in the open transaction, by partition."""
        self._kept: dict[int, Bounds] = {}
        """The bounds of each of these partitions, including the records of the transaction."""
        self._begun = False
        self._lost = False
        """Whether another run took over. This run then does not fence it."""

    def claim(self, partition: int, plan: Plan) -> Claim | Refusal:
        """Read the job's progress. The first claim ends an earlier run's open transaction. Raises StorageError."""
        self._plan = plan
        checks = self._checks(partition)
        progress = checks.progress()
        committed = self._is_of_group(progress)
        if committed:
            self._drop()  # another run committed, which ended the transaction of this one
        entry = self._entries.get(partition)
        if entry is not None:
            return Claim(partition, plan, resume_offset(plan, partition, entry), entry, entry.end_offset)
        if not committed and self._lost:
            return Fenced(None)
        if not committed and self._fence.producer is None:
            result = self._take_over(checks, plan)
            if isinstance(result, LayoutChanged | Fenced):
                return result
            progress = result
        expected = resume_offset(plan, partition, progress)
        if expected is None:
            bounds = end_offsets.bounds_to_high_watermark(self._admin, checks.at)
            progress, lost = checks.forgotten(progress, bounds.end_offset)
        else:
            bounds = checks.barrier()
            lost = progress_lost(plan, partition, progress, bounds.start_offset)
        if lost:
            return ProgressLost(plan.job)
        self._claimed.add(partition)
        return Claim(partition, plan, expected, progress, bounds.end_offset)

    def _take_over(self, checks: Checks, plan: Plan) -> Progress | LayoutChanged | Fenced | None:
        """Acquire the fence, and read the job's progress under it. Keep the fence only if that succeeds.

        Otherwise the next claim would find a fence, and skip these checks.
        """
        self._forget()
        known = False
        try:
            self._fence.put_up_patiently()
            changed = checks.changed(plan)
            if changed is not None:
                return changed
            # Check after fencing, not before: an abort is recorded first, and then fences the writer.
            if self._is_aborted(plan.group):
                self._lost = True
                return Fenced(None)
            progress = checks.fenced_progress()
            known = True
            return progress
        finally:
            if not known:
                self._drop()

    def append(self, claim: Claim, chunk: Chunk) -> Outcome:
        """Send a chunk in the transaction, and check that it lands where its claim expects it.

        Raises SchemaError, StorageError. After a StorageError the transaction has ended, and each partition needs a
        new claim.
        """
        refuse_unsendable(chunk.records)
        at = claim.partition
        if at not in self._claimed or (at in self._entries and not same_rows(claim.progress, self._entries[at])):
            return fenced_by(self._entries.get(at))
        self._fence.mark_used()
        with within(self._spec.patience_seconds, extensible=True):
            require_acceptable(self._clients, self._at(at), chunk)
            try:
                return self._append(claim, chunk)
            except KafkaException as error:
                code = self._fence.code_of(error)
                rejected = too_large(self._clients, self._at(at), chunk, _NOTHING) if code == TOO_LARGE else None
                if rejected is None:
                    return self._failed(error)
                self._end()
                raise rejected from None

    def decide(self, wanted: GroupOutcome) -> GroupOutcome:
        """Commit or abort the group, unless it has an outcome. Return the outcome. Raises StorageError."""
        if wanted.committed and self._begun:
            return self._commit(wanted)
        if not wanted.committed:
            self._end()
        return wanted if wanted.committed and not wanted.ends else self.outcome() or ABORTED

    def outcome(self) -> GroupOutcome | None:
        """Return the committed outcome of the group, or None, after the transactions that can change it have ended.

        Raises UndecidedError, StorageError.
        """
        ats = [self._at(each) for each in range(self._plan.partitions)]
        result = Ledger(self._clients.members, self._plan.job).read_all(ats, self._plan.log_id, self._timeout)
        held = tuple(
            (each.partition, each.end_offset) for each in result if each is not None and self._is_of_group(each)
        )
        return GroupOutcome(committed=True, ends=held) if held else None

    def progress(self, partition: int) -> Progress | None:
        """Return the job's progress in the open transaction for a partition."""
        return self._entries.get(partition)

    def close(self) -> None:
        """Try to abort the open transaction, so that readers do not wait for its timeout."""
        if self._begun and self._fence.producer is not None:
            self._fence.abort()
        self._drop()

    def _is_of_group(self, progress: Progress | None) -> bool:
        """Return whether a ledger entry is one of the group: any entry of a load, or one of the stream's batch."""
        batch_id = batch_of(self._plan.group)
        if progress is None or batch_id is None:
            return progress is not None
        return progress.batch is not None and progress.batch.id == batch_id

    def _append(self, claim: Claim, chunk: Chunk) -> Outcome:
        partition, checks = claim.partition, self._checks(claim.partition)
        if not takes_place(self._plan, chunk) or chunk.records.num_rows:
            bounds = self._kept.get(partition) or checks.bounds_for(claim, chunk)
            refusal = None if partition in self._kept else checks.check(claim, chunk, bounds)
        else:
            # A transaction reserves no offset without a record, so this is the state shortly before the commit.
            bounds = checks.barrier()
            refusal = checks.check_offset(claim.progress, claim.expected_offset, bounds)
        if refusal is not None:
            return checks.overtaken(claim.progress) or refusal
        if chunk.records.num_rows:
            sent = self._send(claim, chunk, bounds)
        else:
            sent = Landed(OffsetRange(bounds.end_offset, bounds.end_offset), has_offset=True, time_ms=None)
        if chunk.records.num_rows or chunk.complete:
            self._entries[partition] = claim.progress_after(chunk, sent.at)
            self._kept[partition] = Bounds(bounds.start_offset, sent.at.end_offset)
        return sent.appended(chunk.records.num_rows, bounds.start_offset)

    def _send(self, claim: Claim, chunk: Chunk, bounds: Bounds) -> Landed:
        if not self._begun:
            self._fence.begin()
            self._begun = True
        at = self._at(claim.partition)
        sending = Sending(self._fence.instance, at, chunk.records, chunk.time_ms)
        if not sending.arrive(self._spec.delivery_seconds + timing.current().overdue):
            self._give_up("the brokers did not acknowledge the records in time")
        checked = is_checked(claim, chunk)
        delivered, rows = sending.delivered(), chunk.records.num_rows
        sent = landed(self._checks(claim.partition), delivered, rows, bounds.end_offset, checked=checked)
        if sent is None:
            self._give_up(INTERLEAVED)
        return sent

    def _commit(self, wanted: GroupOutcome) -> GroupOutcome:
        plan, entries = self._plan, [self._entries[each] for each in sorted(self._entries)]
        if tuple((each.partition, each.end_offset) for each in entries) != wanted.ends:
            # It was committed before, with different rows.
            self._end()
            return self.outcome() or ABORTED
        held = self.outcome()
        if held is not None:
            # By another run, whose rows are in other partitions, so no claim of this run found them.
            self._end()
            return held
        with within(self._spec.patience_seconds, extensible=True):
            try:
                topic = require_planned(self._admin, self._spec.topic, plan.log_id)
                if len(topic.partitions) > plan.layout_epoch or self._layouts.changed(plan):
                    self._end()
                    return ABORTED
                adding = Ledger(self._clients.members, plan.job).adding
                adding(self._fence.instance, self._spec.topic, plan.log_id, entries)()
            except KafkaException as error:
                self._failed(error)
                return self.outcome() or ABORTED
            except ConditionalLogError:
                self._end()
                raise
        try:
            self._fence.instance.commit()
        except KafkaException as error:
            # Determine the outcome under a fresh deadline.
            with fresh_deadline(self._spec.patience_seconds):
                return self._resolved(wanted, error)
        self._forget()
        for each in entries:
            at = OffsetRange(each.base_offset, each.end_offset)
            result = await_visible(self._admin, self._at(each.partition), at)
            if isinstance(result, Truncated):
                raise error_of(result, each.partition)
        return wanted

    def _resolved(self, wanted: GroupOutcome, error: KafkaException) -> GroupOutcome:
        """Resolve an unanswered or rejected commit from the ledger, after a new claim ended the transaction."""
        timed_out, fenced = self._fence.timed_out, meaning_of(self._fence.code_of(error)) is Meaning.FENCED
        ends = {at: entry.end_offset for at, entry in sorted(self._entries.items()) if entry.rows}
        self._drop()
        if not fenced:
            self._fence.put_up_patiently()
        result = self.outcome()
        if result is None and any(self._checks(at).has_record(OffsetRange(end - 1, end)) for at, end in ends.items()):
            # The ledger entry is older than the commit. An offset is assigned once, so the record is of this load.
            result = wanted
        self._drop()
        if result is None and not fenced:
            raise TransactionEndedError(
                f"{self._doing}: the commit failed, and the ledger has no entry of it. {_NOTHING}"
            )
        # Brokers also fence a writer whose transaction they ended.
        if result is None and timed_out and not self._is_aborted(self._plan.group):
            raise TransactionEndedError(f"{self._doing}: {OPEN_FOR_TOO_LONG}. {_NOTHING} Run the same job again.")
        return result or ABORTED

    def _failed(self, error: KafkaException) -> Fenced:
        """Handle a failure before the commit: nothing is or becomes visible. Raises StorageError unless fenced."""
        code = self._fence.code_of(error)
        meaning = meaning_of(code)
        if meaning is Meaning.REFUSED:
            self._fence.end_refused()
        timed_out = self._fence.timed_out
        self._drop()
        if meaning is Meaning.FENCED and not timed_out:
            self._lost = True
            return Fenced(None)
        if code in NOT_FOUND:
            require_planned(self._admin, self._spec.topic, self._plan.log_id)
        elif meaning is Meaning.REFUSED:
            raise plain_error(error, self._doing, *to_append(self._spec)) from None
        why = OPEN_FOR_TOO_LONG if timed_out else reason_of(code)
        raise TransactionEndedError(f"{self._doing}: {why}. {_NOTHING} Run the same job again.")

    def _give_up(self, why: str) -> NoReturn:
        self._end()
        raise TransactionEndedError(f"{self._doing}: {why}. {_NOTHING} Run the same job again.")

    def _end(self) -> None:
        """Abort the open transaction, of this process or, by taking over the id, of another one."""
        if self._begun:
            self._fence.abort()
        elif self._fence.producer is None:
            self._fence.put_up_patiently()
        self._drop()

    def _drop(self) -> None:
        self._fence.drop()
        self._forget()

    def _forget(self) -> None:
        """Reset the state of a transaction that has ended."""
        self._begun = False
        self._claimed.clear()
        self._entries.clear()
        self._kept.clear()

    @property
    def _doing(self) -> str:
        return f"appending to topic {self._spec.topic} as a whole"

    def _checks(self, partition: int) -> Checks:
        return Checks(self._clients, self._layouts, self._plan, self._at(partition))

    def _at(self, partition: int) -> TopicPartition:
        return TopicPartition(self._spec.topic, partition)
