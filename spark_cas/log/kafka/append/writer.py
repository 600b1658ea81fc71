"""The writer of one partition for one job: its claim, and its appends with retries of transient failures."""

from contextlib import suppress
from dataclasses import replace

from confluent_kafka import KafkaException

from spark_cas.core.chunks import Chunk
from spark_cas.core.claim import Claim
from spark_cas.core.errors import ConditionalLogError, LogNotFoundError, StorageError, UndecidedError
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import Appended, Fenced, Outcome, ProgressLost, Refusal, Truncated, Unknown
from spark_cas.core.plan import Progress, progress_lost, resume_offset
from spark_cas.log import timing
from spark_cas.log.deadline import Wait, fresh_deadline, within
from spark_cas.log.kafka.append.checks import Checks, fenced_by, fenced_since, same_rows
from spark_cas.log.kafka.append.chunk_transaction import INTERLEAVED, OPEN_FOR_TOO_LONG, Again, Attempt
from spark_cas.log.kafka.append.fence import Fence
from spark_cas.log.kafka.append.placement import Landed, await_visible
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
from spark_cas.log.kafka.client.sending import refuse_unsendable
from spark_cas.log.kafka.offsets import end_offsets
from spark_cas.log.kafka.topic.topic_settings import recent_settings, require_planned

_TRIES = 6
"""An append fails after this many attempts in which other writers interleaved and then aborted."""

_NOTHING = "No row of this chunk is in the log. Earlier chunks of the job stay."


class PartitionWriter:
    """Appends the chunks of one job to one partition.

    It holds at most one fence, and knows the last ledger entry that it wrote. With both, it detects any other writer
    of the job before a commit.
    """

    def __init__(self, checks: Checks, fence: Fence) -> None:
        self._checks = checks
        self._fence = fence
        self._spec = checks.spec
        self._admin = checks.admin
        self._at = checks.at
        self._known: Progress | None = None
        self._aborted_rows = 0
        """Rows sent and then aborted since the last acknowledged chunk."""

    def claim(self) -> Claim | Refusal:
        """Read the job's progress, and fence earlier writers unless the next append would be rejected anyway.

        Raises LogNotFoundError, LogNotSharedError, UndecidedError, StorageError.
        """
        with self._fence.approaching():
            return self._checks.changed(self._checks.plan) or self._claim()

    def _claim(self) -> Claim | Refusal:
        checks, plan, partition = self._checks, self._checks.plan, self._at.partition
        progress, precheck = None, False
        try:
            progress = checks.progress(timing.current().best_effort)
            precheck = checks.precheck(progress, resume_offset(plan, partition, progress)) is not None
        except UndecidedError:
            pass
        if precheck:
            # Fence no writer for an append that will be rejected. The claim can still close the job.
            bounds = end_offsets.stable_bounds(self._admin, self._at)
        else:
            self._fence.put_up_patiently()
            changed = checks.changed(plan)
            if changed is not None:
                return changed
            progress = checks.fenced_progress()
            if resume_offset(plan, partition, progress) is None:
                bounds = end_offsets.bounds_to_high_watermark(self._admin, self._at)
            else:
                self._fence.left = bounds = checks.barrier()
        expected = resume_offset(plan, partition, progress)
        # Trimming removes records, not ledger entries. Without a check, only expiry can have removed the job's entry.
        if expected is None:
            progress, lost = checks.forgotten(progress, bounds.end_offset)
        else:
            lost = progress_lost(plan, partition, progress, bounds.start_offset)
        if lost:
            return ProgressLost(plan.job)
        self.know(progress)
        return Claim(partition, plan, expected, progress, bounds.end_offset)

    def know(self, progress: Progress | None) -> None:
        """Adopt the ledger entry of a claim. It was read under this writer's fence, if the writer holds one."""
        self._known = progress
        self._fence.knows_entry = self._fence.producer is not None

    def append(self, claim: Claim, chunk: Chunk) -> Outcome:
        """Append a chunk, or close the job if the chunk has no records.

        Until the deadline, the writer retries an attempt that failed before its commit. If a commit got no reply, it
        reads the outcome from the ledger. Raises SchemaError, StorageError: nothing of the chunk is visible.
        """
        refuse_unsendable(chunk.records)
        attempt = Attempt(self._checks, self._fence, claim, chunk)
        with within(self._spec.patience_seconds, extensible=True):
            # If the topic is not found, the append itself checks whether it was deleted.
            with suppress(LogNotFoundError):
                require_acceptable(self._checks.clients, self._at, chunk)
            return attempt.prove() if claim.covers(chunk) else self._append(attempt)

    def _append(self, attempt: Attempt) -> Outcome:
        self._fence.mark_used()
        if not same_rows(attempt.claim.progress, self._known):
            return fenced_by(self._known)
        if self._fence.lost and attempt.chunk.records.num_rows:
            why = self._why_fenced(attempt, timed_out=False)
            return Fenced(None) if isinstance(why, Again) else why
        doing = f"appending to partition {self._at.partition} of topic {self._at.topic}"
        wait = Wait(self._spec.patience_seconds, doing, timing.current().abort_pause)
        attempts = interleaved = 0
        while True:
            attempts += 1
            try:
                outcome = self._try(attempt)
            except StorageError as error:
                raise error.with_message(f"{error.message} {_NOTHING}") from None
            if isinstance(outcome, Appended):
                aborted_rows, self._aborted_rows = self._aborted_rows, 0
                return replace(outcome, attempts=attempts, aborted_rows=aborted_rows)
            if not isinstance(outcome, Again):
                return outcome
            interleaved += outcome.why == INTERLEAVED
            if interleaved == _TRIES:
                raise StorageError(
                    f"{doing}: in all {_TRIES} attempts {INTERLEAVED}. {_NOTHING} "
                    f"Smaller chunks (maxRecordsPerChunk) find a gap between them sooner."
                )
            if not wait.again(outcome.why):
                raise StorageError(
                    f"{doing}: {outcome.why}. It was tried again for {wait.waited:.0f} s. {_NOTHING} Check that the "
                    f"brokers are well, then run the same job again."
                )

    def _try(self, attempt: Attempt) -> Outcome | Again:
        """Run one transaction."""
        claim, chunk = attempt.claim, attempt.chunk
        try:
            refusal = self._ready(attempt)
            if refusal is not None:
                return refusal
            bounds = self._bounds_for(attempt)
            refusal = self._checks.check(claim, chunk, bounds)
            if refusal is not None:
                return self._checks.overtaken(claim.progress) or refusal
            sent = attempt.prepare(bounds)
        except KafkaException as error:
            return self._failed_before_commit(attempt, error)
        if not isinstance(sent, Landed):
            self._aborted_rows += chunk.records.num_rows if isinstance(sent, Again) else 0
            return sent
        try:
            self._fence.instance.commit()
        except KafkaException as error:
            # Determine the outcome under a fresh deadline.
            with fresh_deadline(self._spec.patience_seconds):
                return self._resolve(attempt, sent, error)
        return self._acknowledge(attempt, sent, bounds)

    def _ready(self, attempt: Attempt) -> Refusal | None:
        """Ensure an instance whose next transaction is safe, and a ledger entry read under its fence.

        A new instance fences other writers. So the writer first checks whether the append would be rejected anyway.
        After fencing, it checks whether another writer of the job was active meanwhile.
        """
        fence, checks, claim = self._fence, self._checks, attempt.claim
        if fence.is_clean:
            return None
        if fence.producer is None:
            refusal: Refusal | None = None
            try:
                refusal = fenced_since(checks.progress(timing.current().best_effort), claim.progress)
                if refusal is None and attempt.chunk.records.num_rows:
                    refusal = checks.precheck(claim.progress, claim.expected_offset)
            except UndecidedError:
                refusal = None
            if refusal is not None:
                return refusal
        fence.put_up()
        # Check after fencing, not before: an expansion first records its intent, and then fences the writers.
        refusal = fenced_since(checks.fenced_progress(), claim.progress) or checks.changed(claim.plan)
        fence.knows_entry = refusal is None
        return refusal

    def _bounds_for(self, attempt: Attempt) -> Bounds:
        """Return the bounds that an append relies on.

        Directly after the instance's claim or last append, this sends no request. Records that land exactly at the
        known end prove that no other record was appended in between. If they do not, the next attempt requests the
        bounds. In a topic that is or may be compacted, this always requests them: if compaction has removed other
        records since then, the gap would look like one of aborted records.
        """
        claim, chunk = attempt.claim, attempt.chunk
        left, self._fence.left = self._fence.left, None
        if chunk.records.num_rows and left is not None and left.end_offset == claim.expected_offset:
            settings = recent_settings(self._checks.clients, self._at.topic)
            if settings is not None and not settings.compacted:
                return left
        return self._checks.bounds_for(claim, chunk)

    def _failed_before_commit(self, attempt: Attempt, error: KafkaException) -> Outcome | Again:
        """Handle a failure before the commit request, so nothing of the chunk is or becomes visible."""
        timed_out = self._fence.timed_out
        code = self._fence.code_of(error)
        meaning = meaning_of(code)
        if meaning is Meaning.REFUSED:
            self._fence.end_refused()
        self._fence.drop()
        if meaning is Meaning.FENCED:
            self._fence.lost = True
            return self._why_fenced(attempt, timed_out=timed_out)
        rejected = too_large(self._checks.clients, self._at, attempt.chunk) if code == TOO_LARGE else None
        if rejected is not None:
            raise rejected from None
        if meaning is Meaning.REFUSED and code not in NOT_FOUND:
            raise plain_error(error, f"appending to topic {self._at.topic}", *to_append(self._spec)) from None
        if code in NOT_FOUND:
            # A new leader may not know the topic yet, but the topic may also have been deleted.
            require_planned(self._admin, self._at.topic, attempt.claim.plan.log_id)
        return Again(reason_of(code))

    def _why_fenced(self, attempt: Attempt, *, timed_out: bool) -> Outcome | Again:
        """Return why this writer was fenced, or a retry.

        Without a sign of another writer, it claims the partition again in two cases. One is to close the job, which
        does not depend on an offset. The other is a transaction that was open for too long, because the brokers
        report its end by the same error. In neither case can two writers keep fencing each other.
        """
        cause = self._checks.why_fenced(attempt.claim, attempt.chunk)
        if cause is not None:
            return cause
        if not attempt.chunk.records.num_rows:
            return Again("another writer claimed the partition")
        return Again(OPEN_FOR_TOO_LONG) if timed_out else Fenced(None)

    def _resolve(self, attempt: Attempt, sent: Landed, error: KafkaException) -> Outcome | Again:
        """Resolve a commit that got no reply, or was rejected."""
        timed_out, fenced = self._fence.timed_out, meaning_of(self._fence.code_of(error)) is Meaning.FENCED
        self._fence.drop()
        result = attempt.resolve(sent, fenced=fenced)
        if isinstance(result, Bounds):
            return self._acknowledge(attempt, sent, result, resolved=True)
        if result is not None:
            return result
        self._aborted_rows += attempt.chunk.records.num_rows
        if fenced:
            return self._why_fenced(attempt, timed_out=timed_out)
        return Again("the commit failed, and the ledger has no entry of it")

    def _acknowledge(self, attempt: Attempt, sent: Landed, bounds: Bounds, *, resolved: bool = False) -> Outcome:
        """Wait until readers can see a committed chunk, and return its outcome. The commit uses up the claim.

        If the partition ends one offset past the records, that offset can only be the transaction's own marker, and
        the returned range includes it. Otherwise the offset may be another writer's record, and the range ends after
        the last record of the chunk. That end matches as long as the gap up to the partition's end holds no record.
        """
        chunk, at = attempt.chunk, sent.at
        self._known = attempt.claim.progress_after(chunk, at)
        decided: Bounds | Truncated | None = None
        try:
            if chunk.records.num_rows:
                decided = await_visible(self._admin, self._at, at, self._fence.producer)
        except ConditionalLogError:
            self._fence.drop()
            return Unknown("the chunk was committed, but the brokers did not report whether the log still has it")
        if chunk.complete:
            # Release the instance, because a process may run thousands of jobs.
            self._fence.drop()
        if decided is None:
            return sent.appended(0, bounds.start_offset, resolved=resolved)
        if isinstance(decided, Truncated):
            return decided
        own = decided.end_offset == at.end_offset + 1 and self._ends_at(decided.end_offset)
        self._fence.left = decided if own and self._fence.producer is not None else None
        sent = replace(sent, at=OffsetRange(at.base_offset, decided.end_offset if own else at.end_offset))
        return sent.appended(chunk.records.num_rows, decided.start_offset, resolved=resolved)

    def _ends_at(self, stable_end: int) -> bool:
        """Return whether a last stable offset, requested before, is the end of the partition.

        It is below the end if another transaction is open. Then the marker of this writer may be above it.
        """
        try:
            return end_offsets.high_watermark(self._admin, self._at) == stable_end
        except ConditionalLogError:
            return False
