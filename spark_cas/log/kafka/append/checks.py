"""Check a job in a partition: its ledger entry, its claim, and the expected offsets of its rows."""

from confluent_kafka import TopicPartition

from spark_cas.core.chunks import Chunk
from spark_cas.core.claim import Claim
from spark_cas.core.expected_offsets import check_expected
from spark_cas.core.micro_batch import unexpired_ms
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import Fenced, LayoutChanged, Refusal, is_lost
from spark_cas.core.plan import Plan, Progress, is_complete, progress_expired, resume_offset
from spark_cas.core.row_claims import check_rows
from spark_cas.log import clock, timing
from spark_cas.log.deadline import Wait
from spark_cas.log.kafka.client.kept_clients import ClientSet
from spark_cas.log.kafka.offsets import end_offsets
from spark_cas.log.kafka.offsets.reading import OvertakenError, first_record
from spark_cas.log.kafka.registry.group_metadata import Ledger
from spark_cas.log.kafka.registry.layouts import TopicLayouts
from spark_cas.log.kafka.topic.topic_settings import recent_ledger_kept_ms, require_planned, topic_settings


class Checks:
    """The checks of a job in a partition, from current or recent answers of the brokers. No check fences a writer."""

    def __init__(self, clients: ClientSet, layouts: TopicLayouts, plan: Plan, at: TopicPartition) -> None:
        self.clients, self.admin, self.readers = clients, clients.admin, clients.readers
        self.spec = clients.readers.spec
        self.plan = plan
        self.at = at
        self.ledger = Ledger(clients.members, plan.job)
        self._layouts = layouts
        self._timeout = self.spec.open_transaction_seconds

    def progress(self, timeout_seconds: float | None = None) -> Progress | None:
        """Return the job's ledger entry after all open transactions that can change it have ended.

        Raises UndecidedError if one is still open after the timeout, by default that of the spec.
        """
        timeout = self._timeout if timeout_seconds is None else timeout_seconds
        return self.ledger.read_all([self.at], self.plan.log_id, timeout)[0]

    def fenced_progress(self) -> Progress | None:
        """Return the job's ledger entry after a fence, when no other writer can change it.

        If no offset is expected, or the entry is complete, only the entry shows which rows are in the log. The
        coordinator then has to prove that it is current. Raises UndecidedError, StorageError.
        """
        if resume_offset(self.plan, self.at.partition, None) is not None:
            result = self.progress()
            if not is_complete(result):
                return result
        return self._proven_progress(self._timeout)

    def barrier(self, at_least: int = 0) -> Bounds:
        """Return the partition's bounds after every transaction open in it has ended, as `end_offsets.barrier`.

        Raises LogNotSharedError if the topic ends before ``at_least`` because it was deleted and recreated.
        """
        bounds = end_offsets.barrier(self.admin, self.at, self._timeout, at_least)
        if bounds.end_offset < at_least:
            require_planned(self.admin, self.at.topic, self.plan.log_id)
        return bounds

    def has_record(self, offsets: OffsetRange) -> bool:
        """Return whether a committed record is at one of these offsets, after the open transactions have ended."""
        self.barrier()
        return first_record(self.readers, self.at, offsets) is not None

    def bounds_for(self, claim: Claim, chunk: Chunk) -> Bounds:
        """Return the bounds that an append checks. If it checks no offset, do not wait for open transactions."""
        if not chunk.records.num_rows or not is_checked(claim, chunk):
            return end_offsets.bounds_to_high_watermark(self.admin, self.at)
        return self.barrier()

    def changed(self, plan: Plan) -> LayoutChanged | None:
        """Return a layout change that makes the plan of a claim void, as `TopicLayouts.changed`."""
        return self._layouts.changed(plan)

    def overtaken(self, known: Progress | None, timeout_seconds: float | None = None) -> Fenced | None:
        """Return `Fenced` if another writer of the job has changed its ledger entry since the known one.

        If the entries match, the caller's refusal is final, so the coordinator has to prove that it is current.
        """
        timeout = self._timeout if timeout_seconds is None else timeout_seconds
        return fenced_since(self._proven_progress(timeout), known)

    def forgotten(self, progress: Progress | None, end_offset: int) -> tuple[Progress | None, bool]:
        """Return the job's ledger entry, and whether it has expired while records of the job may exist.

        New records may belong to another attempt, whose entry appears when its transaction commits, or they may be
        aborted.
        """
        suspect = progress_expired(self.plan, self.at.partition, progress, end_offset)
        if not suspect or not self._may_have_expired():
            return progress, False
        planned = self.plan.end_offsets[self.at.partition]
        refusal = self.check_offset(None, planned, self.barrier(planned))
        # Read the entry last: a writer that committed before one of the checks has an entry by now.
        progress = self.progress()
        return progress, refusal is not None and progress is None

    def _may_have_expired(self) -> bool:
        """Return whether a ledger entry under this plan may exist and have expired.

        In the first run, this needs a suspended machine. A batch of a stream checks it itself, by its own time. In a
        rerun of a job that compares by partition, every new record counts as evidence.
        """
        plan = self.plan
        if plan.rejoined and not plan.by_key:
            return True
        if not plan.rejoined and (plan.stream or not plan.pinned_by):
            return False
        return clock.now_ms() - plan.pinned_at_ms >= unexpired_ms(recent_ledger_kept_ms(self.clients))

    def precheck(self, progress: Progress | None, expected: int | None) -> Refusal | None:
        """Return a refusal that needs neither a fence nor a wait for an open transaction.

        In doubt, return None; the append itself checks again. Read ``progress`` again after the check, because a
        record after the expected offset may belong to the same job.
        """
        if expected is None:
            return None
        refusal = self.check_offset(progress, expected, end_offsets.stable_bounds(self.admin, self.at))
        if refusal is None or is_lost(refusal):
            return None
        return self.overtaken(progress, timing.current().best_effort) or refusal

    def check(self, claim: Claim, chunk: Chunk, bounds: Bounds) -> Refusal | None:
        """Check the expected offsets of the claim and of the rows against these bounds, or confirmed higher ones."""
        if not chunk.records.num_rows:
            return None
        refusal = self._check_all(claim, chunk, bounds)
        if is_lost(refusal):
            # The end that the chunk expects. The row of a RowConflict need not be the first of the chunk.
            at_least = bounds.end_offset + refusal.expected - refusal.actual
            refusal = self._check_all(claim, chunk, self.barrier(at_least))
        return refusal

    def why_fenced(self, claim: Claim, chunk: Chunk) -> Refusal | None:
        """Return why a writer was fenced, according to the ledger, the layout and the log.

        The client of the writer does not report the reason. Another job may have claimed the partition, which is a
        conflict after it appends. Return None if no cause is visible.
        """
        cause = self.overtaken(claim.progress) or self.changed(claim.plan)
        if cause is not None or not chunk.records.num_rows:
            return cause
        refusal = self.check(claim, chunk, self.bounds_for(claim, chunk))
        # The new records may belong to the same job, committed after this writer read its ledger entry.
        return self.overtaken(claim.progress) or refusal

    def _proven_progress(self, timeout_seconds: float) -> Progress | None:
        """Return the job's ledger entry from a coordinator that proves it is current.

        If the plan is not recorded, accept any coordinator: no other writer uses the plan, and there may be no
        registry.
        """
        proven = bool(self.plan.pinned_by)
        return self.ledger.read_all([self.at], self.plan.log_id, timeout_seconds, proven=proven)[0]

    def _check_all(self, claim: Claim, chunk: Chunk, bounds: Bounds) -> Refusal | None:
        def nothing_since(offset: int) -> bool:
            return self.check_offset(claim.progress, offset, bounds) is None

        refusal = self.check_offset(claim.progress, claim.expected_offset, bounds)
        return refusal or check_rows(
            chunk, bounds.end_offset, lambda offset: claim.allows_expected_offset(offset, nothing_since)
        )

    def check_offset(self, progress: Progress | None, expected: int | None, bounds: Bounds) -> Refusal | None:
        """Check whether an expected offset matches a partition with these bounds and this progress of the job.

        It matches the end, and a lower offset if no committed record follows it (design rule 3). Transaction markers
        use offsets.
        """
        doing = f"reading the next record of partition {self.at.partition} of topic {self.at.topic}"
        wait = Wait(self.admin.patience_seconds, doing)
        while expected is not None and bounds.start_offset <= expected < bounds.end_offset:
            try:
                next_record = self._next_record(progress, OffsetRange(expected, bounds.end_offset))
            except OvertakenError:
                if not wait.again("records were removed meanwhile"):
                    raise
                bounds = self._trimmed(bounds)
            else:
                # An empty gap matches only if none of its records was trimmed during the read.
                return check_expected(expected, self._trimmed(bounds), next_record)
        return check_expected(expected, bounds, None)

    def _trimmed(self, bounds: Bounds) -> Bounds:
        """Return the remaining part of the bounds after a trim."""
        start = end_offsets.start_offset(self.admin, self.at)
        return Bounds(start, max(start, bounds.end_offset))

    def _next_record(self, progress: Progress | None, gap: OffsetRange) -> int | None:
        """Return the offset of the first record that is or may have been in a gap. None if there never was one.

        Compaction removes tombstones after a while. So in a compacted topic, an empty gap is conclusive only if the
        expected offset is more recent than that. This is known only for the offset that the job's own last chunk
        left.
        """
        result = first_record(self.readers, self.at, gap)
        if result is not None:
            return result
        settings = topic_settings(self.admin, self.at.topic)
        if settings is not None and not settings.compacted:
            return None
        if settings is None or progress is None or gap.base_offset < progress.end_offset:
            return gap.base_offset
        age_ms = clock.now_ms() - progress.committed_at_ms
        return None if age_ms < settings.delete_retention_ms // 2 else gap.base_offset


def is_checked(claim: Claim, chunk: Chunk) -> bool:
    """Return whether the claim or a row of the chunk expects an offset."""
    return claim.expected_offset is not None or chunk.claims is not None


def fenced_by(progress: Progress | None) -> Fenced:
    """Return `Fenced` with the task that wrote a ledger entry."""
    return Fenced(progress.task if progress else None)


def fenced_since(progress: Progress | None, known: Progress | None) -> Fenced | None:
    """Return `Fenced` with the task that wrote an entry, unless it records the same rows as the known entry."""
    return None if same_rows(progress, known) else fenced_by(progress)


def same_rows(progress: Progress | None, known: Progress | None) -> bool:
    """Return whether two entries record the same rows. Their ends may differ by the offset of a marker."""
    if progress is None or known is None:
        return progress is known
    identity, other = ((each.rows, each.digest, each.complete, each.batch) for each in (progress, known))
    return identity == other
