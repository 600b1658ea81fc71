"""Ledger: the progress of a job in a partition, from the header of the job's newest chunk there."""

import random
from dataclasses import asdict

from spark_cas.core.errors import StorageError
from spark_cas.core.offsets import Bounds
from spark_cas.core.plan import Progress
from spark_cas.core.recorded_fields import from_fields, in_format
from spark_cas.log.objects import documents, paths
from spark_cas.log.objects.chunk_file import StoredChunk
from spark_cas.log.objects.partition import PartitionChunks, TrimmedMeanwhileError
from spark_cas.log.objects.store import RetryingStore

_HINT_EVERY_CHUNKS = 8
"""Interval between hints, in chunks. A walk from a hint passes at most this many chunks of the job, or about as many
jobs of one chunk."""

_MOST_JOBS = 100
"""How many jobs to cache. For other jobs, the ledger reads the chunks since the plan again."""

_CHANCE = random.SystemRandom()


class Ledger:
    """Progress of the jobs in one partition."""

    def __init__(self, store: RetryingStore, chunks: PartitionChunks) -> None:
        self._store = store
        self._chunks = chunks
        self._known: dict[str, tuple[Progress | None, int]] = {}
        """Per job, the last known progress and the offset up to which chunks were checked. The newest job is last."""
        self._settled_upto = 0
        """File names of chunks below this offset are synced to disk."""

    def progress(self, job: str, pinned_by: str, planned_end: int) -> tuple[Bounds, Progress | None]:
        """Return the bounds of the partition, and the ledger entry of a job or None.

        ``pinned_by`` identifies the plan of the job. The job has no chunk below ``planned_end``, the end offset in
        that plan. Raises StorageError if concurrent trimming interrupted each attempt until the deadline.
        """
        doing = f"looking for job {job!r} in {self._store.at(paths.partition(self._chunks.number))}"
        wait = self._store.wait(doing)
        while True:
            bounds, _ = self._chunks.find_end()
            try:
                result = self._progress_within(bounds, job, pinned_by, planned_end)
            except TrimmedMeanwhileError:
                self._known.pop(job, None)
            else:
                if result is not None:
                    self._settle(result, bounds)
                return bounds, result
            if not wait.again("the log was trimmed meanwhile"):
                raise StorageError(
                    f"{doing}: the log was trimmed again and again for {wait.waited:.0f} s. Run the same job again "
                    f"later."
                )

    def _settle(self, result: Progress, bounds: Bounds) -> None:
        """Sync an entry to disk before other chunks depend on it. Its writer may have crashed before it did so."""
        if result.end_offset > self._settled_upto:
            self._store.settle(paths.chunk(self._chunks.number, result.base_offset))
            self._settled_upto = bounds.end_offset

    def _progress_within(self, bounds: Bounds, job: str, pinned_by: str, planned_end: int) -> Progress | None:
        closed = self.closed(job, pinned_by)
        if closed is not None:
            return closed
        since = max(bounds.start_offset, planned_end)
        if bounds.end_offset <= since:
            return None  # the partition has no chunk since the plan was made
        result, upto = self._known.get(job) or self._hinted(job, since) or (None, planned_end)
        if upto < since or (result is not None and result.base_offset < planned_end):
            # The entry was trimmed, or a forgotten job of the same name wrote it.
            result, upto = None, since
        result, upto = self._newest_from(job, upto, bounds, result)
        self._remember(job, result, upto)
        if result and result.end_offset > bounds.start_offset:
            return result
        result = self._trimmed(job, planned_end, bounds)
        return result if result and result.base_offset >= planned_end else None

    def newer(self, job: str, known: Progress | None, unseen_from: int, bounds: Bounds) -> Progress | None:
        """Return the job's newest entry in the chunks from an offset on; None if it is not newer than ``known``."""
        result, _ = self._newest_from(job, max(unseen_from, bounds.start_offset), bounds, None)
        result = result or self._trimmed(job, unseen_from, bounds)
        return result if result and result.rows > (known.rows if known else 0) else None

    def may_be_trimmed(self, job: str, pinned_by: str, known_end: int, bounds: Bounds) -> bool:
        """Return whether a trim may have removed an entry of a job that `progress` and `newer` do not find.

        The caller knows all rows of the job below ``known_end``.
        """
        if self._chunks.trimmed_ledger(bounds.start_offset).known_from > known_end:
            return True
        # A trim does not keep the entries of a finished job. Read its state after the record of the trim.
        return not self._chunks.is_unfinished(job, pinned_by)

    def _trimmed(self, job: str, known_end: int, bounds: Bounds) -> Progress | None:
        """Return the job's newest entry in the trimmed chunks; None if no row after ``known_end`` was trimmed."""
        if bounds.start_offset <= known_end:
            return None
        ledger = self._chunks.trimmed_ledger(bounds.start_offset).ledger
        return next((each for each in ledger if each.job == job and each.end_offset > known_end), None)

    def closed(self, job: str, pinned_by: str) -> Progress | None:
        """Return the entry with which a job ended without more rows under a plan; None if there is none."""
        if self._chunks.group:
            return None  # a group ends with its outcome and has no such entry
        path = paths.closed(job, pinned_by, self._chunks.number)
        result = self._store.get(path)
        if result is None:
            return None
        self._store.settle(path)
        return self._decode(result, job)

    def close(self, progress: Progress, pinned_by: str) -> Progress:
        """Record the entry with which a job ended without more rows, unless it has one. Return the recorded entry."""
        path = paths.closed(progress.job, pinned_by, self._chunks.number)
        return self._decode(self._store.put_once(path, documents.encode(asdict(progress))), progress.job)

    def appended(self, stored: StoredChunk) -> None:
        """Note that this process has appended a chunk, and write a hint for later readers at intervals.

        If a job is complete after one chunk, it gets no hint of its own, because a walk from its plan finds that
        chunk first.
        """
        progress = stored.header.progress
        if progress is None:
            return
        self._remember(progress.job, progress, stored.header.end_offset)
        at_once = progress.complete and progress.chunks == 1
        if at_once and _CHANCE.randrange(_HINT_EVERY_CHUNKS):
            return
        if progress.complete or progress.chunks % _HINT_EVERY_CHUNKS == 1:
            self._chunks.write_hint(paths.end_hint(self._chunks.number), stored)
            if not at_once:
                self._chunks.write_hint(paths.job_hint(progress.job, self._chunks.number), stored)

    def _remember(self, job: str, result: Progress | None, upto: int) -> None:
        self._known.pop(job, None)
        self._known[job] = result, upto
        if len(self._known) > _MOST_JOBS:
            del self._known[next(iter(self._known))]

    def _newest_from(
        self, job: str, upto: int, bounds: Bounds, result: Progress | None
    ) -> tuple[Progress | None, int]:
        if result and result.complete:
            return result, upto
        for stored in self._chunks.chunks_from(upto, bounds.end_offset):
            if stored.header.job == job:
                result = stored.header.progress
            upto = stored.header.end_offset
            if result and result.complete:
                break
        if self._chunks.start_offset() > bounds.start_offset:
            # A chunk below the start need not be part of the log.
            raise TrimmedMeanwhileError
        return result, upto

    def _hinted(self, job: str, start: int) -> tuple[Progress, int] | None:
        stored = self._chunks.read_hint(paths.job_hint(job, self._chunks.number))
        # A chunk below the start need not be part of the log.
        if stored is None or stored.header.base_offset < start:
            return None
        progress = stored.header.progress
        return (progress, stored.header.end_offset) if progress is not None and progress.job == job else None

    def _decode(self, data: bytes | memoryview, job: str) -> Progress:
        subject = f"the closing of job {job!r} in {paths.partition(self._chunks.number)}"
        with in_format(subject):
            return from_fields(Progress, documents.decode(data, subject))
