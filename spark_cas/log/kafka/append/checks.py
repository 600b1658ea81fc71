"""Check a job in a partition: its ledger entry, its claim, and the expected offsets of its rows."""

from dataclasses import dataclass

from confluent_kafka import TopicPartition

from spark_cas.core.chunks import Chunk
from spark_cas.core.claim import Claim
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import Fenced, LayoutChanged, Refusal, is_lost
from spark_cas.core.plan import BatchProgress, Plan, Progress, is_complete, progress_expired, resume_offset
from spark_cas.core.row_claims import check_rows
from spark_cas.log import timing
from spark_cas.log.kafka.append.gap import check_gap
from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.kept_clients import ClientSet
from spark_cas.log.kafka.client.readers import Readers
from spark_cas.log.kafka.offsets import end_offsets
from spark_cas.log.kafka.offsets.reading import first_record
from spark_cas.log.kafka.registry.group_ledger import Ledger
from spark_cas.log.kafka.registry.layouts import TopicLayouts
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.log.kafka.topic.topic_settings import require_planned


@dataclass(frozen=True, slots=True)
class Checks:
    """The checks of a job in a partition, from current or recent answers of the brokers. No check fences a writer."""

    clients: ClientSet
    layouts: TopicLayouts
    plan: Plan
    at: TopicPartition

    @property
    def spec(self) -> KafkaSpec:
        """Return the spec of the log."""
        return self.readers.spec

    @property
    def admin(self) -> Admin:
        """Return the admin client."""
        return self.clients.admin

    @property
    def readers(self) -> Readers:
        """Return the readers."""
        return self.clients.readers

    @property
    def ledger(self) -> Ledger:
        """Return the ledger of the job."""
        return Ledger(self.clients.members, self.plan.job)

    def progress(self, timeout_seconds: float | None = None) -> Progress | None:
        """Return the job's ledger entry after all open transactions that can change it have ended.

        Raises:
            UndecidedError: A transaction is still open after the timeout (seconds; by default the spec's).
        """
        timeout = self._timeout if timeout_seconds is None else timeout_seconds
        return self.ledger.read(self.at, self.plan.log_id, timeout)

    def fenced_progress(self) -> Progress | None:
        """Return the job's ledger entry after a fence, when no other writer can change it.

        If no offset is expected, or the entry is complete, only the entry shows which rows are in the log. The
        coordinator then has to prove that it is current.

        Raises:
            UndecidedError: A transaction is still open after the timeout.
            StorageError: The coordinator did not answer.
        """
        if resume_offset(self.plan, self.at.partition, None) is not None:
            result = self.progress()
            if not is_complete(result):
                return result
        return self._proven_progress(self._timeout)

    def barrier(self, at_least: int = 0) -> Bounds:
        """Return the partition's bounds after every transaction open in it has ended, as `end_offsets.barrier`.

        Raises:
            UndecidedError: A transaction is still open after the timeout.
            LogNotSharedError: The topic ends before ``at_least`` because it was deleted and recreated.
            LogNotFoundError, StorageError: The brokers did not answer.
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
        """Return a layout change that makes a plan void, as `TopicLayouts.changed`.

        A claim may have an earlier plan.
        """
        return self.layouts.changed(plan)

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
        if not progress_expired(self.plan, self.at.partition, progress, end_offset):
            return progress, False
        planned = self.plan.end_offsets[self.at.partition]
        refusal = self.check_offset(None, planned, self.barrier(planned))
        # Read the entry last: a writer that committed before one of the checks has an entry by now.
        progress = self.progress()
        return progress, refusal is not None and progress is None

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
        return self.ledger.read(self.at, self.plan.log_id, timeout_seconds, proven=proven)

    def _check_all(self, claim: Claim, chunk: Chunk, bounds: Bounds) -> Refusal | None:
        def nothing_since(offset: int) -> bool:
            return self.check_offset(claim.progress, offset, bounds) is None

        refusal = self.check_offset(claim.progress, claim.expected_offset, bounds)
        return refusal or check_rows(
            chunk, bounds.end_offset, lambda offset: claim.allows_expected_offset(offset, nothing_since)
        )

    def check_offset(self, progress: Progress | None, expected: int | None, bounds: Bounds) -> Refusal | None:
        """Check whether an expected offset matches a partition with these bounds and this progress of the job."""
        return check_gap(self.readers, self.admin, self.at, expected, bounds, progress=progress)

    @property
    def _timeout(self) -> float:
        return self.spec.open_transaction_wait_ms / 1000


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
    return _identity(progress) == _identity(known)


def _identity(progress: Progress) -> tuple[int, str, bool, BatchProgress | None]:
    return progress.rows, progress.digest, progress.complete, progress.batch
