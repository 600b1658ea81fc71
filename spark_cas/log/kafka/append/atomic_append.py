"""Atomic loads: one transaction over all partitions, open from the first chunk until the group commits or aborts.

The process that appends to a group also commits it. Its transactional id contains the job's name. So another run of
the job, or a process that aborts the group, takes over the id and ends the open transaction. The job's ledger entries
of all partitions are part of the transaction, and later show that it was committed.
"""

from collections.abc import Callable

from confluent_kafka import KafkaException, TopicPartition

from spark_cas.core.chunks import Chunk
from spark_cas.core.claim import Claim
from spark_cas.core.errors import ConditionalLogError, TransactionEndedError
from spark_cas.core.group import ABORTED, GroupOutcome, batch_of, takes_place
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import Fenced, Outcome, Refusal, Truncated, error_of
from spark_cas.core.plan import Plan, Progress, resume_offset
from spark_cas.log.deadline import fresh_deadline, within
from spark_cas.log.kafka.append.fence import Fence, ProducerPool
from spark_cas.log.kafka.append.placement import Landed, await_visible
from spark_cas.log.kafka.append.transaction import OPEN_FOR_TOO_LONG, Failed, Transactions
from spark_cas.log.kafka.client.kept_clients import ClientSet
from spark_cas.log.kafka.registry.layouts import TopicLayouts

_NOTHING = "Nothing of the load is visible."


class GroupWriter(Transactions):
    """The commit group of one plan: the chunks that this process appended to it, and its outcome."""

    nothing_appended = _NOTHING

    def __init__(
        self, clients: ClientSet, layouts: TopicLayouts, plan: Plan, *, is_aborted: Callable[[str], bool]
    ) -> None:
        spec = clients.readers.spec
        fence = Fence(ProducerPool(clients), TopicPartition(spec.topic, 0), spec.id_of_atomic_load(plan.job))
        super().__init__(clients, layouts, plan, fence)
        self._is_aborted = is_aborted

    def claim(self, partition: int, plan: Plan) -> Claim | Refusal:
        """Read the job's progress. The first claim ends an earlier run's open transaction. Raises StorageError."""
        self._plan = plan
        checks = self._checks(partition)
        changed = checks.changed(plan)
        if changed is not None:
            return changed
        progress = checks.progress()
        committed = self._is_of_group(progress)
        if committed:
            self._drop()  # another run committed, which ended the transaction of this one
        entry = self.progress(partition)
        if entry is not None:
            return Claim(partition, plan, resume_offset(plan, partition, entry), entry, entry.end_offset)
        if not committed and self._fence.lost:
            # Another run took over. Do not fence it in turn.
            return Fenced(None)
        if not committed and self._fence.producer is None:
            progress, changed = self._take_over(checks, self._fence.put_up_patiently)
            if changed is not None:
                return changed
            # Check after fencing, not before: an abort is recorded first, and then fences the writer.
            try:
                aborted = self._is_aborted(plan.group)
            except ConditionalLogError:
                self._drop()
                raise
            if aborted:
                self._drop()
                self._fence.lost = True
                return Fenced(None)
        return self._claimed(checks, progress)

    def decide(self, wanted: GroupOutcome) -> GroupOutcome:
        """Commit or abort the group, unless it has an outcome. Return the outcome. Raises StorageError."""
        if wanted.committed and self._parts:
            return self._commit_group(wanted)
        if not wanted.committed:
            if self._fence.producer is None:
                # Take over the id, which aborts the transaction of another process.
                self._fence.put_up_patiently()
            self.close()
        return wanted if wanted.committed and not wanted.ends else self.outcome() or ABORTED

    def outcome(self) -> GroupOutcome | None:
        """Return the committed outcome of the group, or None, after the transactions that can change it have ended.

        Raises UndecidedError, StorageError.
        """
        entries = self._entries(range(self._plan.partitions))
        held = tuple((each.partition, each.end_offset) for each in entries if each and self._is_of_group(each))
        return GroupOutcome(committed=True, ends=held) if held else None

    def progress(self, partition: int) -> Progress | None:
        """Return the job's progress in the open transaction for a partition."""
        part = self._parts.get(partition)
        return None if part is None else part.entry

    def close(self) -> None:
        """Try to abort the open transaction, so that readers do not wait for its timeout."""
        self._fence.abort()
        self._drop()

    _end = close

    def _is_of_group(self, progress: Progress | None) -> bool:
        """Return whether a ledger entry is one of the group: any entry of a load, or one of the stream's batch."""
        batch_id = batch_of(self._plan.group)
        if progress is None or batch_id is None:
            return progress is not None
        return progress.batch is not None and progress.batch.id == batch_id

    def _append(self, claim: Claim, chunk: Chunk) -> Outcome:
        """Send a chunk in the open transaction. If that fails, each partition needs a new claim."""
        partition, rows = claim.partition, chunk.records.num_rows
        checks, part = self._checks(partition), self._parts.get(partition)
        reserves = takes_place(self._plan, chunk) and not rows
        if reserves:
            # A transaction reserves no offset without a record, so this is the state shortly before the commit.
            bounds = checks.barrier()
            refusal = checks.check_offset(claim.progress, claim.expected_offset, bounds)
        elif part is None:
            bounds = checks.bounds_for(claim, chunk)
            refusal = checks.check(claim, chunk, bounds)
        else:
            bounds, refusal = Bounds(part.start_offset, part.sent.at.end_offset), None
        if refusal is not None:
            return checks.overtaken(claim.progress) or refusal
        sent = Landed(OffsetRange(bounds.end_offset, bounds.end_offset))
        if reserves:
            return sent.appended(0, bounds.start_offset)
        try:
            failed = self._add(claim, chunk, bounds, last=False)
        except KafkaException as error:
            failed = self._failed(error, partition, chunk)
        if isinstance(failed, Failed):
            return self._overtaken(failed)
        part = self._parts[partition]
        self.known[partition] = part.entry
        return (part.sent if rows else sent).appended(rows, bounds.start_offset)

    def _commit_group(self, wanted: GroupOutcome) -> GroupOutcome:
        entries = [self._parts[each].entry for each in sorted(self._parts)]
        ends = tuple((each.partition, each.end_offset) for each in entries)
        if ends != wanted.ends or self.outcome() is not None:
            # It was committed before: with different rows, or with rows in other partitions, which no claim found.
            self.close()
            return self.outcome() or ABORTED
        with within(self._spec.patience_seconds, extensible=True):
            try:
                changed = self._close() or self._layouts.changed(self._plan)
            except KafkaException as error:
                self._overtaken(self._failed(error))
                return self.outcome() or ABORTED
            except ConditionalLogError:
                self.close()
                raise
        if changed is not None:
            self.close()
            if isinstance(changed, Failed):
                self._overtaken(changed)
            return ABORTED
        parts, unclear = self._parts, self._commit()
        self.known.clear()
        if unclear is not None:
            # Determine the outcome under a fresh deadline.
            with fresh_deadline(self._spec.patience_seconds):
                failed = self._resolve(parts, unclear)
                return wanted if failed is None else self._ended(failed)
        for entry in entries:
            at = OffsetRange(entry.base_offset, entry.end_offset)
            visible = await_visible(self._admin, self._at(entry.partition), at)
            if isinstance(visible, Truncated):
                raise error_of(visible, entry.partition)
        return wanted

    def _ended(self, failed: Failed) -> GroupOutcome:
        """Return the outcome after a commit that did not take place. Raises as `_overtaken`, for a retry."""
        result = self.outcome()
        # Brokers also fence a writer whose transaction they ended.
        lost = failed.fenced and not (failed.timed_out and not self._is_aborted(self._plan.group))
        if result is None and not lost:
            self._overtaken(failed)
        return result or ABORTED

    def _overtaken(self, failed: Failed) -> Fenced:
        """Return Fenced if another run took over. Otherwise raise TransactionEndedError, for a retry."""
        self._fence.lost = failed.fenced and not failed.timed_out
        if self._fence.lost:
            return Fenced(None)
        why = OPEN_FOR_TOO_LONG if failed.timed_out else failed.why
        raise TransactionEndedError(
            f"appending to topic {self._spec.topic} as a whole: {why}. {_NOTHING} Run the same job again."
        )

    def _drop(self) -> None:
        super()._drop()
        self.known.clear()
