"""The writer of one partition for one job: its claim, and its appends with retries of transient failures."""

from contextlib import suppress
from dataclasses import replace

from confluent_kafka import KafkaException, TopicPartition

from spark_cas.core.chunks import Chunk
from spark_cas.core.claim import Claim
from spark_cas.core.errors import ConditionalLogError, StorageError, UndecidedError, UnreadableRecordError
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import Appended, Fenced, LayoutChanged, Outcome, Refusal, Truncated, Unknown
from spark_cas.core.plan import Plan, resume_offset
from spark_cas.log import timing
from spark_cas.log.deadline import Wait, fresh_deadline
from spark_cas.log.kafka.append.checks import Checks, fenced_since
from spark_cas.log.kafka.append.placement import await_visible
from spark_cas.log.kafka.append.transaction import INTERLEAVED, OPEN_FOR_TOO_LONG, Failed, Part, Transactions
from spark_cas.log.kafka.offsets import end_offsets
from spark_cas.log.kafka.topic.topic_settings import recent_settings

_TRIES = 6
"""An append fails after this many attempts in which other writers interleaved and then aborted."""

_NOTHING = "No row of this chunk is in the log. Earlier chunks of the job stay."


class PartitionWriter(Transactions):
    """Appends the chunks of one job to one partition, each in a transaction of its own."""

    _aborted_rows = 0
    """Rows sent and then aborted since the last acknowledged chunk."""

    def claim(self, partition: int, plan: Plan) -> Claim | Refusal:
        """Read the job's progress, and fence earlier writers unless the next append would be rejected anyway.

        Raises LogNotFoundError, LogNotSharedError, UndecidedError, StorageError.
        """
        checks, precheck = self._checks(partition), False
        with self._fence.approaching():
            changed = checks.changed(plan)
            if changed is not None:
                return changed
            try:
                progress = checks.progress(timing.current().best_effort)
                precheck = checks.precheck(progress, resume_offset(plan, partition, progress)) is not None
            except UndecidedError:
                pass
            if precheck:
                # Fence no writer for an append that will be rejected. The claim can still close the job.
                return self._claimed(checks, progress, end_offsets.stable_bounds(self._admin, checks.at))
            progress, changed = self._take_over(checks, self._fence.put_up_patiently)
            return changed or self._claimed(checks, progress)

    def _append(self, claim: Claim, chunk: Chunk) -> Outcome:
        """Retry an attempt that failed before its commit, until the deadline."""
        if claim.covers(chunk):
            return self._prove(claim, chunk)
        if self._fence.lost and chunk.records.num_rows:
            why = self._why_failed(claim, chunk, Failed("", fenced=True))
            return Fenced(None) if isinstance(why, Failed) else why
        doing = f"appending to partition {claim.partition} of topic {self._spec.topic}"
        wait = Wait(self._spec.patience_seconds, doing, timing.current().abort_pause)
        attempts = interleaved = 0
        while True:
            attempts += 1
            try:
                outcome = self._try(claim, chunk)
            except (StorageError, UnreadableRecordError) as error:
                raise error.with_message(f"{error.message} {_NOTHING}") from None
            if isinstance(outcome, Appended):
                aborted_rows, self._aborted_rows = self._aborted_rows, 0
                return replace(outcome, attempts=attempts, aborted_rows=aborted_rows)
            if not isinstance(outcome, Failed):
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

    def _try(self, claim: Claim, chunk: Chunk) -> Outcome | Failed:
        """Run one transaction."""
        try:
            bounds = self._ready(claim, chunk)
            if not isinstance(bounds, Bounds):
                return bounds
            failed = self._add(claim, chunk, bounds, last=True)
        except KafkaException as error:
            return self._why_failed(claim, chunk, self._failed(error, claim.partition, chunk))
        if failed is None:
            part = self._parts[claim.partition]
            unclear = self._commit()
            if unclear is None:
                return self._acknowledge(part)
            # Determine the outcome under a fresh deadline.
            with fresh_deadline(self._spec.patience_seconds):
                return self._resolved(claim, chunk, part, unclear)
        if isinstance(failed, LayoutChanged):
            return failed
        self._aborted_rows += chunk.records.num_rows
        return self._why_failed(claim, chunk, failed)

    def _resolved(self, claim: Claim, chunk: Chunk, part: Part, error: KafkaException) -> Outcome | Failed:
        """Return the outcome of a commit that got no reply, or was rejected."""
        try:
            failed = self._resolve({claim.partition: part}, error)
        except ConditionalLogError:
            return Unknown("the reply to the commit was lost, and the ledger could not be read")
        if failed is None:
            return self._acknowledge(part, resolved=True)
        other = fenced_since(failed.entries[0], claim.progress)
        if other is not None:
            return other
        self._aborted_rows += chunk.records.num_rows
        return self._why_failed(claim, chunk, failed)

    def _ready(self, claim: Claim, chunk: Chunk) -> Bounds | Refusal:
        """Ensure an instance whose next transaction is safe, and return the bounds that the append relies on.

        A new instance fences other writers. So the writer first checks whether the append would be rejected anyway.
        After fencing, it checks whether another writer of the job was active meanwhile.
        """
        fence, checks = self._fence, self._checks(claim.partition)
        refusal: Refusal | None = None
        if not fence.is_clean:
            try:
                if fence.producer is None:
                    refusal = fenced_since(checks.progress(timing.current().best_effort), claim.progress)
                    if refusal is None and chunk.records.num_rows:
                        refusal = checks.precheck(claim.progress, claim.expected_offset)
            except UndecidedError:
                pass
            if refusal is None:
                progress, changed = self._take_over(checks, fence.put_up)
                refusal = fenced_since(progress, claim.progress) or changed
        if refusal is None:
            bounds = self._bounds_for(checks, claim, chunk)
            refusal = checks.check(claim, chunk, bounds)
            if refusal is None:
                return bounds
            refusal = checks.overtaken(claim.progress) or refusal
        return refusal

    def _bounds_for(self, checks: Checks, claim: Claim, chunk: Chunk) -> Bounds:
        """Return the bounds that an append relies on.

        Directly after the instance's claim or last append, this sends no request. Records that land exactly at the
        known end prove that no other record was appended in between. If they do not, the next attempt requests the
        bounds. In a topic that is or may be compacted, this always requests them: if compaction has removed other
        records since then, the gap would look like one of aborted records.
        """
        left, self._fence.left = self._fence.left, None
        if chunk.records.num_rows and left is not None and left.end_offset == claim.expected_offset:
            settings = recent_settings(self._clients, self._spec.topic)
            if settings is not None and not settings.compacted:
                return left
        return checks.bounds_for(claim, chunk)

    def _why_failed(self, claim: Claim, chunk: Chunk, failed: Failed) -> Outcome | Failed:
        """Return why this writer was fenced, or a failure for a retry.

        Without a sign of another writer, it claims the partition again in two cases. One is to close the job, which
        does not depend on an offset. The other is a transaction that was open for too long, because the brokers
        report its end by the same error. In neither case can two writers keep fencing each other.
        """
        if not failed.fenced:
            return failed
        cause = self._checks(claim.partition).why_fenced(claim, chunk)
        if cause is not None:
            return cause
        if not chunk.records.num_rows:
            return Failed("another writer claimed the partition")
        return Failed(OPEN_FOR_TOO_LONG) if failed.timed_out else Fenced(None)

    def _prove(self, claim: Claim, chunk: Chunk) -> Outcome:
        """Verify that the claim is still the newest: commit a transaction that moves no offset.

        The coordinator commits it only for the newest producer of the transactional id, and only if its replicas
        agree. Then the result is `Appended`, and otherwise `Fenced`, for any reason. A new producer is not tried,
        because it would fence other writers itself. Raises StorageError.
        """
        if not self._fence.is_clean:
            return Fenced(None)
        with suppress(KafkaException):
            if self._add(claim, chunk, Bounds(0, claim.end_offset), last=True) is None:
                part = self._parts.pop(claim.partition)
                self._fence.instance.commit()
                return part.sent.appended(0, 0)
        self._parts.clear()
        self._fence.give_way()
        return Fenced(None)

    def _acknowledge(self, part: Part, *, resolved: bool = False) -> Outcome:
        """Wait until readers can see a committed chunk, and return its outcome. The commit uses up the claim.

        If the partition ends one offset past the records, that offset can only be the transaction's own marker, and
        the returned range includes it. Otherwise the offset may be another writer's record, and the range ends after
        the last record of the chunk. That end matches as long as the gap up to the partition's end holds no record.
        """
        place, sent, at = self._at(part.entry.partition), part.sent, part.sent.at
        self.known[place.partition] = part.entry
        decided: Bounds | Truncated | None = None
        try:
            if part.rows:
                decided = await_visible(self._admin, place, at, self._fence.producer)
        except ConditionalLogError:
            self._fence.drop()
            return Unknown("the chunk was committed, but the brokers did not report whether the log still has it")
        if part.entry.complete:
            # Release the instance, because a process may run thousands of jobs.
            self._fence.drop()
        if decided is None:
            return sent.appended(0, part.start_offset, resolved=resolved)
        if isinstance(decided, Truncated):
            return decided
        own = decided.end_offset == at.end_offset + 1 and self._ends_at(place, decided.end_offset)
        self._fence.left = decided if own and self._fence.producer is not None else None
        sent = replace(sent, at=OffsetRange(at.base_offset, decided.end_offset if own else at.end_offset))
        return sent.appended(part.rows, decided.start_offset, resolved=resolved)

    def _ends_at(self, at: TopicPartition, stable_end: int) -> bool:
        """Return whether a last stable offset, requested before, is the end of the partition.

        It is below the end if another transaction is open. Then the marker of this writer may be above it.
        """
        try:
            return end_offsets.high_watermark(self._admin, at) == stable_end
        except ConditionalLogError:
            return False
