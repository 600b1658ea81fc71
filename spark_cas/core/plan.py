"""The state of a load as data: its `Plan`, its `Progress` per partition, and its `Completion`."""

from dataclasses import dataclass, field, replace

from spark_cas.core.errors import JobMismatchError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.guarantee import EXACTLY_ONCE
from spark_cas.core.outcome import NO_TOTALS, Appends

BY_PARTITION = "partition"
BY_KEY = "key"


MOST_PARTITIONS = 100_000
"""The maximum partition count of a log that is created or expanded. It limits the damage of a typo, because a plan
reads the end offset of every partition."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The partition count of a log; ``epoch`` increases with each expansion (KIP-253)."""

    log_id: str
    """The unique id of the log. A log that is recreated under the same name has another id."""
    epoch: int
    partitions: int

    def require(self, partition: int) -> None:
        if not 0 <= partition < self.partitions:
            raise ValueError(
                f"partition {partition} was named, but the log has {self.partitions} (0 to {self.partitions - 1})"
            )


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """The rows of one micro-batch of a streaming query in a partition."""

    query: str
    """The id of the streaming query, which is stored in its checkpoint."""
    id: int
    """The number of the micro-batch, which the query counts from 0."""
    rows: int
    """The number of rows of the batch in the partition."""
    digest: str
    """The `multiset_digest` of those rows, hexadecimal."""
    complete: bool
    """Whether the partition has all of its rows of the batch."""
    begun_after_ms: int = 0
    """A time before the first append of the batch in any partition, milliseconds since 1970; 0 if not known."""
    uncertain_from: int | None = None
    """The offset from which on the log may have rows of the batch, if the task that appended them did not know
    whether they were all. They may be any rows of the batch; a replay appends the rest. None if the task knew it."""
    first_offset: int = 0
    """An offset that is not above that of the batch's first row in the partition."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The ledger entry of a job in a partition, written atomically with the rows that it counts."""

    job: str
    partition: int
    rows: int
    """The number of rows of the job in the partition."""
    digest: str
    """The `RunningDigest` of those rows, hexadecimal; for a stream, their `multiset_digest`."""
    base_offset: int
    """The offset of the job's first row."""
    end_offset: int
    """The offset that the job's next chunk expects."""
    chunks: int
    layout_epoch: int
    complete: bool
    """Whether the rows include the job's last row in this partition."""
    committed_at_ms: int
    """The time of the newest chunk, milliseconds since 1970."""
    task: str
    """The run and task that appended the newest chunk."""
    batch: BatchProgress | None = None
    """The newest batch of a stream. None for a load, and at the start of a stream. An entry of a stream is never
    ``complete`` itself."""
    least_expected: int | None = None
    """The lowest offset that the job's next row may expect if no other writer appends. It increases by one for each
    row after the claim, and ignores gaps. None if nothing was claimed."""
    own_ranges: tuple[tuple[int, int], ...] = ()
    """For conditions by key: the offsets of the job's newest rows, half-open. Chunks without another writer's records
    between them share a range. These rows do not conflict with the job."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """An expected offset that a user gave in a re-run of a job; it applies to the row after ``rows``."""

    partition: int
    rows: int
    expected_offset: int | None


@dataclass(frozen=True, slots=True)
class EarlierRows:
    """The rows that a load appended under an earlier plan, before an expansion: a prefix in each partition."""

    job: str
    """The name under which that plan is recorded."""
    rows: tuple[int, ...]
    """The number of rows in each partition of that plan's layout."""
    digests: tuple[str, ...]
    """The `RunningDigest` of these rows by partition, hexadecimal; empty if there are none."""
    complete: tuple[bool, ...]
    """Whether these are all rows of the input in the partition, by partition."""

    @property
    def partitions(self) -> int:
        """The partition count of that plan's layout."""
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class Plan:
    """The expectations of a job about the log at its start.

    The registry keeps the first plan of a job permanently.
    """

    job: str
    log_id: str
    layout_epoch: int
    expected_offsets: tuple[int | None, ...]
    """The expected offset of each partition; None for no check (KIP-27's -1)."""
    end_offsets: tuple[int, ...]
    """The end offset of each partition at plan time. No row of the job has an offset below it."""
    replaced: tuple[Replacement, ...] = ()
    stream: bool = False
    """Whether the job is a stream. If so, the ledger counts by batch, and the job never completes."""
    pinned_by: str = ""
    """A random id of the run that made the plan. If two runs plan the job at once, the registry keeps one plan, and
    the other run rejoins it."""
    pinned_at_ms: int = 0
    """The time of the plan, milliseconds since 1970; 0 in plans of older versions."""
    compare: str = BY_PARTITION
    """The scope of the expected offsets: the partition, or (`BY_KEY`) the keys of the rows."""
    round_of: str = ""
    """The name of the job if it is a call of `append_if_unchanged`; empty for any other job. In plans of older
    versions, ``job`` is the name of one round of it."""
    continues: str = ""
    """The load that this plan continues after an expansion; empty for any other plan."""
    earlier: tuple[EarlierRows, ...] = ()
    """The rows that the load appended under earlier plans, oldest first. The input of each plan excludes the rows of
    the previous ones."""
    named: tuple[int, ...] = ()
    """The partitions with an explicit expected offset, with or without rows. In plans of older versions, only those
    that a re-run names."""
    whole: bool = False
    """Whether the load is atomic: the rows of all partitions become visible in one step."""
    input: str = ""
    """The digest of the bulk load's input list (`spark_cas.core.input_list`), or the partition of an `append_once`.
    Empty for any other write."""
    partitioner: str = ""
    """The partitioner that assigned the rows to partitions (`spark_cas.core.partitioner`). Empty if it was not
    recorded, or if the caller assigned the rows."""
    topics: tuple[str, ...] = ()
    """All topics of a load without the option topic, sorted; empty for any other write."""
    rejoined: bool = field(default=False, compare=False)
    """Whether an earlier run may have appended under this plan; False for the run that recorded it."""
    group: str = field(default="", compare=False)
    """The commit group of this run (`spark_cas.core.group`); empty if each chunk becomes visible on its own."""
    decide_by_ms: int = field(default=0, compare=False)
    """The time from which other writers may abort a group that blocks them, milliseconds since 1970."""

    @property
    def by_key(self) -> bool:
        """Whether the expected offsets apply to keys, so that no partition is claimed."""
        return self.compare == BY_KEY

    @property
    def partitions(self) -> int:
        """The partition count at plan time."""
        return len(self.expected_offsets)

    def claims(self, partition: int) -> bool:
        """Return whether the plan has an expected offset for the partition itself; False for one added since."""
        return partition < self.partitions and self.expected_offsets[partition] is not None and not self.by_key

    @property
    def display_name(self) -> str:
        return self.continues or self.job

    @property
    def earlier_rows(self) -> int:
        """The number of rows that the load appended before an expansion."""
        return sum(sum(each.rows) for each in self.earlier)

    @property
    def checked(self) -> bool:
        """Whether any partition has an expected offset."""
        return any(expected is not None for expected in self.expected_offsets)


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """The result of a run in one partition, and the ledger entry of the job there."""

    progress: Progress
    resumed_rows: int | None
    """The number of rows that earlier attempts or runs had committed; None while the job is running."""
    resolved: int | None
    """The number of lost responses whose outcome the log proved; None while the job is running."""
    appends: Appends = NO_TOTALS
    """The totals of the task that completed. Empty while the job is running, and in completions of older versions."""
    guarantee: str = EXACTLY_ONCE
    """The guarantee that applied to the rows. Older versions knew only the default."""
    null_keys: int | None = None
    """The number of rows without a key; None if the task did not count them."""


@dataclass(frozen=True, slots=True)
class Completion:
    """The permanent record that a job is complete, with its result. Partitions without rows are not listed."""

    job: str
    log_id: str
    layout_epoch: int
    partitions: tuple[PartitionResult, ...]
    completed_at_ms: int

    @property
    def rows(self) -> int:
        return sum(result.progress.rows for result in self.partitions)


def input_entry(job: str, digest: str) -> str:
    """Return the registry key of a job's input list with a digest."""
    return f"{job}/{digest}"


def resume_offset(plan: Plan, partition: int, progress: Progress | None) -> int | None:
    """Return the offset that the job's next chunk in a partition must expect; None for no check."""
    if plan.by_key:
        return None
    expected = plan.expected_offsets[partition]
    for replacement in plan.replaced:
        if replacement.partition == partition and replacement.rows <= _rows(progress):
            if replacement.rows == _rows(progress):
                return replacement.expected_offset
            expected = replacement.expected_offset
    return expected if expected is None or progress is None else progress.end_offset


def claim_of_keys(plan: Plan, partition: int) -> int | None:
    """Return the default expected offset for the keys of a partition's rows; None for no check."""
    values = [each.expected_offset for each in plan.replaced if each.partition == partition]
    return values[-1] if values else plan.expected_offsets[partition]


def progress_lost(plan: Plan, partition: int, progress: Progress | None, start_offset: int) -> bool:
    """Return whether the log may have trimmed rows of the job that no ledger entry and no expected offset can reveal.

    An expected offset below ``start_offset`` reveals the trim by itself, with a Conflict.
    """
    expected = resume_offset(plan, partition, progress)
    return progress is None and trimmed_unseen(plan.end_offsets[partition], expected, start_offset)


def progress_expired(plan: Plan, partition: int, progress: Progress | None, end_offset: int) -> bool:
    """Return whether records may be those of a job whose ledger entry has expired, for ledgers that expire entries.

    An expected offset reveals this by itself: existing rows of the job cause a Conflict. Without one, rows of the job
    cannot be distinguished from other rows. So any record appended since the plan may be one of them, if an earlier
    attempt may have appended under the plan.
    """
    unchecked = resume_offset(plan, partition, progress) is None
    return unchecked and progress is None and end_offset > plan.end_offsets[partition]


def trimmed_unseen(known_end: int, expected: int | None, start_offset: int) -> bool:
    """Return whether the log may have trimmed rows of a job that has no ledger entry.

    The writer knows all rows of the job below ``known_end``. An expected offset below ``start_offset`` reveals the
    trim by itself, with a Conflict.
    """
    return start_offset > known_end and (expected is None or expected >= start_offset)


def rejoin(first: Plan, wanted: ExpectedOffsets, progress: tuple[Progress | None, ...]) -> Plan:
    """Return the plan of a re-run: the job's first plan, with any expected offsets that the user replaced.

    ``end`` never recomputes the expected offsets of an existing job. ``progress`` is the ledger entry of each
    partition.

    Raises:
        JobMismatchError: One of the two runs has expected offsets, and the other has none.
        OptionError: The expected offsets name a partition outside the plan.
    """
    claims = wanted.resolve(first.end_offsets)
    if any(expected is not None for expected in claims) != first.checked:
        was, again = "without", "with expected offsets 'none'"
        if first.checked:
            was, again = "with", "without naming expected offsets, or with those to go on from"
        raise JobMismatchError(
            f"job {first.display_name!r} was planned {was} expected offsets and cannot be continued the other way. "
            f"Nothing was appended now. Run it again as it was planned: {again}.",
            job=first.display_name,
        )
    replaced = tuple(
        Replacement(
            partition,
            _rows(progress[partition]),
            expected if first.by_key else _claim_now(expected, progress[partition]),
        )
        for partition, expected in wanted.offsets
        if not is_complete(progress[partition])
    )
    unchecked = {partition for partition, expected in wanted.offsets if expected is None}
    named = () if first.by_key else tuple(sorted({*first.named, *wanted.named} - unchecked))
    return replace(first, replaced=replaced, named=named, rejoined=True)


def _claim_now(expected: int | None, progress: Progress | None) -> int | None:
    """Return the expected offset of the job's next row, which is at least the end of the job's own rows."""
    return expected if expected is None or progress is None else max(expected, progress.end_offset)


def _rows(progress: Progress | None) -> int:
    return progress.rows if progress else 0


def is_complete(progress: Progress | None) -> bool:
    """Return whether a ledger entry exists and is complete."""
    return progress is not None and progress.complete
