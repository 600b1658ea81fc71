"""One partition of the in-memory log: its chunks, and the uncommitted chunks at its end."""

from dataclasses import dataclass, field

import pyarrow as pa

from spark_cas.core.chunks import Chunk
from spark_cas.core.claim import Claim
from spark_cas.core.group import GroupOutcome
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import Appended
from spark_cas.core.plan import Progress
from spark_cas.core.records import fill_timestamps


@dataclass(frozen=True)
class Entry:
    """A chunk of an uncommitted group, or the completion of its job in a partition."""

    range: OffsetRange
    records: pa.Table
    progress: Progress | None
    """None if the entry has no records and only occupies an offset."""


@dataclass
class Undecided:
    """Uncommitted chunks at the end of a partition. Only the writers of their group can read them."""

    group: str
    decide_by_ms: int
    base_offset: int
    entries: list[Entry] = field(default_factory=list)


@dataclass
class Partition:
    """The chunks of a partition, its layout epoch, and the progress of each job."""

    start_offset: int = 0
    end_offset: int = 0
    """The end offset, including uncommitted chunks."""
    layout_epoch: int = 0
    """The newest epoch that ended this partition. Claims of earlier epochs cannot append."""
    chunks: list[tuple[int, pa.Table]] = field(default_factory=list)
    """(base offset, records), in offset order."""
    undecided: Undecided | None = None
    ledger: dict[str, Progress] = field(default_factory=dict)

    def of(self, group: str) -> Undecided | None:
        """Return the uncommitted chunks if they belong to this group."""
        return self.undecided if self.undecided and self.undecided.group == group else None

    def bounds(self, group: str = "") -> Bounds:
        """Return the bounds of the partition as the writers of a group read them."""
        hidden = self.undecided if self.of(group) is None else None
        return Bounds(self.start_offset, hidden.base_offset if hidden else self.end_offset)

    def progress(self, job: str, group: str = "") -> Progress | None:
        """Return the progress of a job as the writers of a group read it."""
        own = self.of(group)
        result = [each.progress for each in own.entries if each.progress] if own else []
        return result[-1] if result else self.ledger.get(job)

    def records_end(self, group: str = "") -> int:
        """Return the end offset of the last record. Offsets after it may hold no record."""
        own = self.of(group)
        ours = [each.range.end_offset for each in own.entries if each.records.num_rows] if own else []
        if ours:
            return ours[-1]
        return self.chunks[-1][0] + self.chunks[-1][1].num_rows if self.chunks else self.start_offset

    def append(self, chunk: Chunk) -> Appended:
        count, base = chunk.records.num_rows, self.end_offset
        if count:
            self.chunks.append((base, fill_timestamps(chunk.records, chunk.time_ms)))
        return self._appended(chunk, base)

    def append_undecided(self, claim: Claim, chunk: Chunk) -> Appended:
        """Append a chunk of a group. It becomes readable when the group commits."""
        plan, base = claim.plan, self.end_offset
        appended = self._appended(chunk, base)
        self.undecided = self.undecided or Undecided(plan.group, plan.decide_by_ms, base)
        records = fill_timestamps(chunk.records, chunk.time_ms)
        progress = claim.progress_after(chunk, appended.range) if chunk.complete or records.num_rows else None
        if progress is None:
            self.end_offset += 1
        entry = Entry(appended.range, records, progress)
        self.undecided.entries.append(entry)
        return appended

    def decide(self, number: int, group: str, outcome: GroupOutcome) -> None:
        """Apply the outcome of a group. Keep the committed chunks and drop the others."""
        own = self.of(group)
        if own is None:
            return
        self.undecided = None
        for each in own.entries:
            if each.progress and outcome.holds(number, each.range.end_offset):
                self.ledger[each.progress.job] = each.progress
                if len(each.range):
                    self.chunks.append((each.range.base_offset, each.records))

    def _appended(self, chunk: Chunk, base: int) -> Appended:
        count = chunk.records.num_rows
        self.end_offset = base + count
        return Appended(
            range=OffsetRange(base, base + count),
            count=count,
            timestamp_ms=chunk.time_ms if chunk.records.column("timestamp").null_count else None,
            start_offset=self.start_offset,
            has_offset=True,
            resolved=False,
        )
