"""Conditional append: find the end offset, check the claim, put the chunk under that offset, read it back.

A put under a free name does not verify the end by itself. An expected offset inside an older chunk, or past the end,
is also a free name. The appender therefore finds the end first and requires the expected offset to match. Each chunk
names its predecessor.

Nothing overwrites an object, because that could replace the chunk of another writer.
"""

import uuid

from spark_cas.core.chunks import Chunk
from spark_cas.core.claim import Claim
from spark_cas.core.errors import RecordTooLargeError, StorageError, UndecidedError, UnknownOutcomeError
from spark_cas.core.expected_offsets import check_expected
from spark_cas.core.group import job_of, takes_place
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import (
    Appended,
    Conflict,
    Fenced,
    LayoutChanged,
    Outcome,
    ProgressLost,
    Refusal,
    RowConflict,
    Unknown,
    is_lost,
)
from spark_cas.core.plan import Layout, Plan, trimmed_unseen
from spark_cas.core.records import fill_timestamps
from spark_cas.core.row_claims import check_rows
from spark_cas.log import clock
from spark_cas.log.deadline import wait_for_others
from spark_cas.log.objects import paths
from spark_cas.log.objects.chunk_file import MAX_CHUNK_BYTES, ChunkHeader, StoredChunk, encode
from spark_cas.log.objects.ledger import Ledger
from spark_cas.log.objects.partition import PartitionChunks, TrimmedMeanwhileError
from spark_cas.log.objects.store import RetryingStore
from spark_cas.log.objects.store_replies import Existing, PutReply


class Appender:
    """Append chunks to one partition."""

    def __init__(self, store: RetryingStore, chunks: PartitionChunks, ledger: Ledger | None) -> None:
        self._store = store
        self._chunks = chunks
        self._ledger = ledger
        """None for a job that appends one chunk and never resumes."""
        self._puts = 0
        """Number of puts since `append` was called."""
        self._ahead = ""
        """The job whose uncommitted chunk blocks this append. Its rows commit or abort together."""

    def append(self, claim: Claim, chunk: Chunk) -> Outcome:
        """Append a chunk at the claim's expected offset, or at the current end if the claim expects none.

        The outcome is Unknown if the store did not report whether it has stored the chunk.

        Raises:
            RecordTooLargeError: if the chunk exceeds `MAX_CHUNK_BYTES`
            UndecidedError: if an uncommitted atomic load blocked the append until the deadline
            StorageError: if other writers won each attempt until the deadline, or the store failed
        """
        self._puts, self._ahead = 0, ""
        attempt = self._append_rows if takes_place(claim.plan, chunk) else self._close
        doing = f"appending to {self._store.at(paths.partition(claim.partition))}"
        wait = self._store.wait(doing)
        decided = wait_for_others(self._store.patience_seconds, doing)
        while True:
            try:
                outcome = attempt(claim, chunk)
            except TrimmedMeanwhileError:
                outcome = None
            except UnknownOutcomeError as error:
                return Unknown(error.message)
            if (
                isinstance(outcome, Conflict | RowConflict)
                and claim.plan.group
                and self._chunks.groups.outcome(claim.plan.group)
            ):
                # The new records may be of another attempt, which has not noticed that the load ended.
                return Fenced(None)
            if outcome is not None:
                return outcome
            if self._ahead:
                if not decided.again(f"job {self._ahead} is not decided"):
                    raise UndecidedError(
                        f"{doing}: the atomic load of job {self._ahead!r} was open for {decided.waited:.0f} s. "
                        f"No row of this chunk is in the log. Run the same job again after the load is complete. If "
                        f"the load does not run any more, abort it: spark-cas abort {self._ahead}."
                    )
            elif not wait.again("others were faster"):
                raise StorageError(
                    f"{doing}: others appended or trimmed first, again and again for {wait.waited:.0f} s. Nothing "
                    f"of this chunk is in the log. Run the same job again, with fewer writers at once."
                )

    def _append_rows(self, claim: Claim, chunk: Chunk) -> Outcome | None:
        """Try to append once. Return None if another writer won and the claim permits a retry."""
        bounds, newest = self._chunks.find_end()
        refusal = self._check(claim, chunk, bounds, newest)
        if is_lost(refusal):
            # Confirm lost progress with a second read that does not use cached chunks.
            self._chunks.forget()
            bounds, newest = self._chunks.find_end()
            refusal = self._check(claim, chunk, bounds, newest)
        return refusal or self._put_at_end(claim, chunk, bounds, newest)

    def _check(self, claim: Claim, chunk: Chunk, bounds: Bounds, newest: StoredChunk | None) -> Refusal | None:
        """Check the expected offsets of the claim and its rows against this end of the partition."""
        if newest and newest.header.layout_epoch > claim.plan.layout_epoch:
            return LayoutChanged(claim.plan.layout_epoch, newest.header.layout_epoch)
        closed = self._ledger.closed(claim.plan.job, claim.plan.pinned_by) if self._ledger else None
        if closed is not None and closed != claim.progress:
            return Fenced(closed.task)
        unseen = self._check_unseen(claim, claim.expected_offset, bounds)
        if unseen is not None:
            return unseen
        expected = claim.expected_offset
        next_record = None
        if expected is not None and expected < bounds.end_offset:
            next_record = expected if expected < self._chunks.records_end(newest) else None
        refusal = check_expected(expected, bounds, next_record)

        def nothing_since(offset: int) -> bool:
            return offset >= self._chunks.records_end(newest)

        return refusal or check_rows(
            chunk, bounds.end_offset, lambda offset: claim.allows_expected_offset(offset, nothing_since)
        )

    def _check_unseen(self, claim: Claim, expected: int | None, bounds: Bounds) -> Fenced | ProgressLost | None:
        """Check whether the job has, or may have had, chunks that are missing from the claim."""
        if self._ledger is None or bounds.end_offset <= claim.end_offset:
            return None
        other = self._ledger.newer(claim.plan.job, claim.progress, claim.end_offset, bounds)
        if other is not None:
            return Fenced(other.task)
        plan, known_end = claim.plan, claim.end_offset
        if trimmed_unseen(known_end, expected, bounds.start_offset) and self._ledger.may_be_trimmed(
            plan.job, plan.pinned_by, known_end, bounds
        ):
            return ProgressLost(plan.job)
        return None

    def _put_at_end(self, claim: Claim, chunk: Chunk, bounds: Bounds, newest: StoredChunk | None) -> Outcome | None:
        """Put the chunk at the end. Return None if another writer won and the claim permits a retry."""
        rows = chunk.records.num_rows
        # A chunk without records occupies one offset. Otherwise the next chunk would get the same name.
        at = OffsetRange(bounds.end_offset, bounds.end_offset + max(1, rows))
        header = ChunkHeader(
            log_id=claim.plan.log_id,
            partition=claim.partition,
            base_offset=at.base_offset,
            end_offset=at.end_offset,
            write_id=uuid.uuid4().hex,
            layout_epoch=claim.plan.layout_epoch,
            previous=newest.id if newest else None,
            progress=claim.progress_after(chunk, at) if rows else None,
            group=claim.plan.group,
            decide_by_ms=claim.plan.decide_by_ms,
        )
        data, stored = encode(header, fill_timestamps(chunk.records, chunk.time_ms))
        if len(data) > MAX_CHUNK_BYTES:
            raise RecordTooLargeError(
                f"partition {claim.partition}: a chunk of {chunk.records.num_rows} rows takes {len(data)} bytes as a "
                f"file, and the store takes {MAX_CHUNK_BYTES}. Nothing of this chunk was appended. Lower option "
                f"maxBytesPerChunk (--max-bytes-per-chunk of a bulk load).",
                partition=claim.partition,
            )
        whose, result, why = self._put(claim, data, stored)
        match whose:
            case Existing.OURS:
                return self._acknowledge(claim, chunk, stored, resolved=result is not None)
            case Existing.SAME_JOB:
                return Fenced(result.header.progress.task if result and result.header.progress else None)
            case Existing.NEWER_LAYOUT:
                return LayoutChanged(claim.plan.layout_epoch, result.header.layout_epoch if result else -1)
            case Existing.OTHER:
                return self._overtaken(claim, result)
            case Existing.ABSENT | Existing.UNREADABLE:
                return Unknown(why)

    def _put(self, claim: Claim, data: memoryview, stored: StoredChunk) -> tuple[Existing, StoredChunk | None, str]:
        """Put the same bytes until the result is clear or the deadline passes.

        Return the writer of the chunk at the offset, that chunk if it was read back, and the reason if the result is
        unknown.
        """
        path = paths.chunk(claim.partition, stored.header.base_offset)
        doing = f"writing {self._store.at(path)}"
        wait, first = self._store.wait(doing), self._puts + 1
        while True:
            refused = None
            self._puts += 1
            try:
                reply = self._store.create(path, data)
            except StorageError as error:
                # The client may have sent the request before, and the store may have executed it without a reply.
                reply, refused = PutReply.UNCLEAR, error
            if reply is PutReply.CREATED:
                return Existing.OURS, None, ""
            result, whose = self._read_back(claim, stored)
            if whose not in (Existing.ABSENT, Existing.UNREADABLE):
                return whose, result, ""
            if refused and self._puts == first and whose is Existing.ABSENT:
                raise refused
            # If the store permits neither writes nor reads, as with expired credentials, a retry cannot succeed.
            barred = refused is not None and whose is Existing.UNREADABLE
            if barred or not wait.again("the store did not report whether it stored the chunk"):
                return whose, None, _why_unclear(doing, refused, whose)

    def _read_back(self, claim: Claim, own: StoredChunk) -> tuple[StoredChunk | None, Existing]:
        try:
            result = self._chunks.stored_at(own.header.base_offset)
            known = result and self._chunks.groups.visible(result, claim.plan.group)
        except StorageError:
            return None, Existing.UNREADABLE
        if result is None:
            return None, Existing.ABSENT
        if result.header.write_id == own.header.write_id:
            return result, Existing.OURS
        # An open group of a forgotten plan with this name does not fence the writers of the new plan.
        if known is not None and known.header.job == claim.plan.job:
            return result, Existing.SAME_JOB
        if result.header.layout_epoch > claim.plan.layout_epoch:
            return result, Existing.NEWER_LAYOUT
        return result, Existing.OTHER

    def _acknowledge(self, claim: Claim, chunk: Chunk, stored: StoredChunk, *, resolved: bool) -> Outcome | None:
        """Return Appended if the chunk is in the log. A late put may have reused a name that trimming freed."""
        try:
            start = self._chunks.start_offset()
            in_log = stored.header.base_offset >= start or self._chunks.was_in_log(stored)
        except StorageError as error:
            # The chunk is stored. From this point, a failure of the store does not prove that it is not.
            return Unknown(f"the chunk was put, but then {error.message}")
        if in_log is False:
            return self._conflict(claim)
        if in_log is None:
            return Unknown("the log was trimmed past the chunk, which may have been stored before or after")
        self._chunks.appended(stored)
        if self._ledger:
            self._ledger.appended(stored)
        return Appended(
            range=OffsetRange(stored.header.base_offset, stored.header.end_offset),
            count=chunk.records.num_rows,
            timestamp_ms=chunk.time_ms if chunk.records.column("timestamp").null_count else None,
            start_offset=start,
            has_offset=True,
            resolved=resolved,
            attempts=self._puts,
        )

    def _overtaken(self, claim: Claim, result: StoredChunk | None) -> Conflict | None:
        """Handle a put that lost to another chunk. If that chunk is uncommitted, the append waits for its group."""
        if result is None or not self._chunks.is_undecided(result):
            # A chunk of an aborted group holds no record, so it causes no conflict.
            return None if result and self._chunks.is_gap(result) else self._conflict(claim)
        if result.header.group != claim.plan.group:
            self._ahead = job_of(result.header.group)
            if clock.now_ms() >= result.header.decide_by_ms:
                self._chunks.groups.abort(result.header.group)
        return None

    def _conflict(self, claim: Claim) -> Conflict | None:
        """Return a conflict if the claim expects an offset. Otherwise return None, so that the caller retries."""
        if claim.expected_offset is None:
            return None
        self._chunks.forget()
        bounds, _ = self._chunks.find_end()
        return Conflict(claim.expected_offset, bounds.end_offset, bounds.start_offset)

    def _close(self, claim: Claim, chunk: Chunk) -> Outcome:
        """Record that the job has no more rows in this partition.

        The end offset does not change, so no expected offset is checked.
        """
        bounds, _ = self._chunks.find_end()
        unseen = self._check_unseen(claim, None, bounds)
        if unseen is not None:
            return unseen
        end_offset = bounds.end_offset
        if claim.plan.group and claim.progress is not None:
            end_offset = claim.progress.end_offset  # other writers may have appended since the commit
        at = OffsetRange(end_offset, end_offset)
        own = claim.progress_after(chunk, at)
        # For a group, the commit record stores the end offset.
        if self._ledger and own.complete and not claim.plan.group:
            recorded = self._ledger.close(own, claim.plan.pinned_by)
            if (recorded.rows, recorded.digest) != (own.rows, own.digest):
                return Fenced(recorded.task)
        return Appended(at, 0, None, bounds.start_offset, has_offset=True, resolved=False)


def append_blind(store: RetryingStore, chunks: PartitionChunks, layout: Layout, chunk: Chunk) -> Outcome:
    """Append a chunk at the current end of a partition, as a job of its own. LayoutChanged is the only rejection.

    If the store loses a reply, the chunk is still stored once. If the caller repeats the append, the rows are stored
    twice.
    """
    nothing = (None,) * layout.partitions
    plan = Plan(uuid.uuid4().hex, layout.log_id, layout.epoch, nothing, (0,) * layout.partitions)
    claim = Claim(chunks.number, plan, expected_offset=None, progress=None, end_offset=0)
    return Appender(store, chunks, ledger=None).append(claim, chunk)


def _why_unclear(doing: str, refused: StorageError | None, whose: Existing) -> str:
    if whose is Existing.UNREADABLE:
        text = refused.message if refused else f"{doing}: the store did not report whether it stored the chunk."
        return f"{text} It could not be read back"
    if refused:
        return f"{refused.message} The store does not have the chunk, but may have stored it in an earlier try"
    return f"{doing}: the store neither took the chunk nor holds it"
