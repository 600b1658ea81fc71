"""One conditional append: find the end, check the claim, put the chunk under the end's name, read back.

A put on a free name is no check of the tail by itself: an expected offset inside an older chunk, or past the
end, is free too. So the end is found first, the claim must equal it, and the chunk names the one before it.
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
    Unknown,
    says_lost,
)
from spark_cas.core.plan import trimmed_unseen
from spark_cas.core.put_reply import Found, PutReply, PutVerdict, judge_put
from spark_cas.core.records import fill_timestamps
from spark_cas.core.row_claims import check_rows
from spark_cas.log.objects import paths
from spark_cas.log.objects.chunk_file import MAX_CHUNK_BYTES, ChunkHeader, StoredChunk, encode
from spark_cas.log.objects.ledger import Ledger
from spark_cas.log.objects.partition import PartitionChunks, TrimmedMeanwhileError
from spark_cas.log.objects.retry import RetryingStore
from spark_cas.log.objects.trimming import was_in_log
from spark_cas.log.patience import wait_for_others


class Appender:
    """Appends to one partition."""

    def __init__(self, store: RetryingStore, chunks: PartitionChunks, ledger: Ledger) -> None:
        self._store = store
        self._chunks = chunks
        self._ledger = ledger
        self._puts = 0
        """How often a chunk was put since `append` was called."""
        self._ahead = ""
        """The job that was last found in the way, all of whose rows are decided in one step."""

    def append(self, claim: Claim, chunk: Chunk) -> Outcome:
        """Append a chunk at the claim's expected offset, or at whatever the end is where none is expected."""
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
            if outcome is not None:
                return outcome
            if self._ahead:
                if not decided.again(f"job {self._ahead} is not decided"):
                    raise UndecidedError(
                        f"{doing}: job {self._ahead!r} appends as a whole, and did not come to its end for "
                        f"{decided.waited:.0f} s. Nothing of this chunk is in the log. Run the same job again once "
                        f"that one is complete; if nobody runs it any more, 'spark-cas abort {self._ahead}' ends it."
                    )
            elif not wait.again("others were faster"):
                raise StorageError(
                    f"{doing}: others appended or trimmed first, again and again for {wait.waited:.0f} s. Nothing "
                    f"of this chunk is in the log. Run the same job again, with fewer writers at once."
                )

    def _append_rows(self, claim: Claim, chunk: Chunk) -> Outcome | None:
        """One attempt; None when another writer came first and no claim forbids to try again."""
        bounds, newest = self._chunks.find_end()
        refusal = self._check(claim, chunk, bounds, newest)
        if says_lost(refusal):
            # Said only after a second look that trusts nothing this process remembers.
            self._chunks.forget()
            bounds, newest = self._chunks.find_end()
            refusal = self._check(claim, chunk, bounds, newest)
        return refusal or self._put_at_end(claim, chunk, bounds, newest)

    def _check(self, claim: Claim, chunk: Chunk, bounds: Bounds, newest: StoredChunk | None) -> Refusal | None:
        """Whether the claim, and those of the rows, hold at this end of the partition."""
        if newest and newest.header.layout_epoch > claim.plan.layout_epoch:
            return LayoutChanged(claim.plan.layout_epoch, newest.header.layout_epoch)
        closed = self._ledger.closed(claim.plan.job, claim.plan.pinned_by)
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
            chunk, bounds.end_offset, lambda offset: claim.lets_expect(offset, nothing_since)
        )

    def _check_unseen(self, claim: Claim, expected: int | None, bounds: Bounds) -> Fenced | ProgressLost | None:
        """Whether the job has, or may have had, chunks that the claim does not know."""
        if bounds.end_offset <= claim.end_offset:
            return None
        other = self._ledger.newer(claim.plan.job, claim.progress, claim.end_offset, bounds)
        if other is not None:
            return Fenced(other.task)
        if trimmed_unseen(claim.end_offset, expected, bounds.start_offset):
            return ProgressLost(claim.plan.job)
        return None

    def _put_at_end(self, claim: Claim, chunk: Chunk, bounds: Bounds, newest: StoredChunk | None) -> Outcome | None:
        """Put the chunk where the partition ends; None when another writer came first and no claim forbids it."""
        rows = chunk.records.num_rows
        # A chunk that only holds the place has an offset, too: else what comes behind it had the same name.
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
                f"a chunk of {chunk.records.num_rows} rows takes {len(data)} bytes as a file, and the store takes "
                f"{MAX_CHUNK_BYTES}. Lower maxBytesPerChunk."
            )
        verdict, found, why = self._put(claim, data, stored)
        match verdict:
            case PutVerdict.APPENDED | PutVerdict.RESOLVED:
                return self._acknowledge(claim, chunk, stored, resolved=verdict is PutVerdict.RESOLVED)
            case PutVerdict.FENCED:
                return Fenced(found.header.progress.task if found and found.header.progress else None)
            case PutVerdict.LAYOUT_CHANGED:
                return LayoutChanged(claim.plan.layout_epoch, found.header.layout_epoch if found else -1)
            case PutVerdict.CONFLICT:
                return self._overtaken(claim, found)
            case PutVerdict.AGAIN:
                return Unknown(why)

    def _put(self, claim: Claim, data: memoryview, stored: StoredChunk) -> tuple[PutVerdict, StoredChunk | None, str]:
        """Put the same bytes until it is clear what became of them, or patience is over; and why it is not clear."""
        path = paths.chunk(claim.partition, stored.header.base_offset)
        doing = f"writing {self._store.at(path)}"
        wait, first = self._store.wait(doing), self._puts + 1
        while True:
            refused = None
            self._puts += 1
            try:
                reply = self._store.create(path, data)
            except StorageError as error:
                # Its client may have asked before, and may have been heard without being answered.
                reply, refused = PutReply.UNCLEAR, error
            found, whose = (None, Found.ABSENT) if reply is PutReply.CREATED else self._read_back(claim, stored)
            verdict = judge_put(reply, whose)
            if verdict is not PutVerdict.AGAIN:
                return verdict, found, ""
            if refused and self._puts == first and whose is Found.ABSENT:
                raise refused
            # Who may neither write nor read, as when his credentials end, is not let in by waiting.
            barred = refused is not None and whose is Found.UNREADABLE
            if barred or not wait.again("the store did not say whether it took the chunk"):
                return verdict, found, _why_unclear(doing, refused, whose)

    def _read_back(self, claim: Claim, mine: StoredChunk) -> tuple[StoredChunk | None, Found]:
        try:
            found = self._chunks.stored_at(mine.header.base_offset)
            is_void = found is not None and self._chunks.is_gap(found)
        except StorageError:
            return None, Found.UNREADABLE
        if found is None:
            return None, Found.ABSENT
        if found.header.write_id == mine.header.write_id:
            return found, Found.OURS
        if found.header.job == claim.plan.job and not is_void:
            return found, Found.SAME_JOB
        if found.header.layout_epoch > claim.plan.layout_epoch:
            return found, Found.NEWER_LAYOUT
        return found, Found.OTHER

    def _acknowledge(self, claim: Claim, chunk: Chunk, stored: StoredChunk, *, resolved: bool) -> Outcome | None:
        """The chunk is in the log, unless it came so late that it got a name that trimming had freed."""
        try:
            start = self._chunks.start_offset()
            in_log = stored.header.base_offset >= start or was_in_log(self._store, self._chunks, stored)
        except StorageError as error:
            # The chunk is put: from here on, no failure of the store is a definite refusal.
            return Unknown(f"the chunk was put, but then {error.message}")
        if in_log is False:
            return self._conflict(claim)
        if in_log is None:
            return Unknown("the log was trimmed past the chunk, and it cannot be told whether it was in time")
        self._chunks.appended(stored)
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

    def _overtaken(self, claim: Claim, found: StoredChunk | None) -> Conflict | None:
        """Another chunk came first: what becomes of its group, if it has one, decides what this one comes to."""
        if found is None or not self._chunks.is_undecided(found):
            # Of a group that was aborted meanwhile it holds no record, and refuses nobody.
            return None if found and self._chunks.is_gap(found) else self._conflict(claim)
        if found.header.group != claim.plan.group:
            self._ahead = job_of(found.header.group)
            self._chunks.groups.abort_overdue(found)
        return None

    def _conflict(self, claim: Claim) -> Conflict | None:
        """Another writer came first: a refusal where an offset was expected, another try where none was."""
        if claim.expected_offset is None:
            return None
        self._chunks.forget()
        bounds, _ = self._chunks.find_end()
        return Conflict(claim.expected_offset, bounds.end_offset, bounds.start_offset)

    def _close(self, claim: Claim, chunk: Chunk) -> Outcome:
        """Record that the job has no more rows for this partition: no offset moves, so none is expected."""
        bounds, _ = self._chunks.find_end()
        unseen = self._check_unseen(claim, None, bounds)
        if unseen is not None:
            return unseen
        end_offset = bounds.end_offset
        if claim.plan.group and claim.progress is not None:
            end_offset = claim.progress.end_offset  # others may have come behind it since it was committed
        at = OffsetRange(end_offset, end_offset)
        mine = claim.progress_after(chunk, at)
        # What a group holds counts with its outcome alone, which says where it ends.
        if not mine.complete or claim.plan.group:
            return Appended(at, 0, None, bounds.start_offset, has_offset=True, resolved=False)
        recorded = self._ledger.close(mine, claim.plan.pinned_by)
        if (recorded.rows, recorded.digest) != (mine.rows, mine.digest):
            return Fenced(recorded.task)
        return Appended(at, 0, None, bounds.start_offset, has_offset=True, resolved=False)


def _why_unclear(doing: str, refused: StorageError | None, whose: Found) -> str:
    """Why it is not known whether a chunk that was put is in the log, or comes there yet."""
    if whose is Found.UNREADABLE:
        said = refused.message if refused else f"{doing}: the store did not say whether it took the chunk."
        return f"{said} Nor could it be read back"
    if refused:
        return f"{refused.message} The store does not hold the chunk, but may have taken it in an earlier try"
    return f"{doing}: the store neither took the chunk nor holds it"
