"""A load as data: who writes (`Plan`), how far it came (`Progress`), where it goes on (`resume_offset`)."""

from dataclasses import dataclass, field, replace

from spark_cas.core.append_totals import NOTHING_SAID, Appends
from spark_cas.core.errors import JobMismatchError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.guarantee import EXACTLY_ONCE

BY_PARTITION = "partition"
BY_KEY = "key"


MOST_PARTITIONS = 100_000
"""Of a log that is made or expanded: a typo would make one that no look comes to the end of."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The partition count of a log; ``epoch`` rises with each expansion (KIP-253)."""

    log_id: str
    """Identity of this very log: another log that later takes its name has another."""
    epoch: int
    partitions: int

    def require(self, partition: int) -> None:
        """ValueError unless the log has this partition."""
        if not 0 <= partition < self.partitions:
            msg = f"partition {partition} was named, but the log has {self.partitions} (0 to {self.partitions - 1})"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """What a partition holds of one micro-batch of a streaming query."""

    query: str
    """Id of the streaming query, which lives in its checkpoint."""
    id: int
    """Number of the micro-batch, counted by the query from 0."""
    rows: int
    """Rows of the batch that the partition holds."""
    digest: str
    """`multiset_digest` over those rows, hexadecimal."""
    complete: bool
    """Whether these are all rows that the batch has for the partition."""
    begun_after_ms: int = 0
    """Before then, milliseconds since 1970, no row of the batch was appended in any partition; 0: not known."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The ledger entry of a job in a partition: written in the same atomic step as the rows it counts."""

    job: str
    partition: int
    rows: int
    """Rows of the job that the partition holds."""
    digest: str
    """`RunningDigest` over those rows, hexadecimal; of a stream, `multiset_digest`."""
    base_offset: int
    """Offset of the job's first row."""
    end_offset: int
    """The offset that the job's next chunk expects."""
    chunks: int
    layout_epoch: int
    complete: bool
    """Whether the job's last row in this partition is among them."""
    committed_at_ms: int
    """When the backend took the newest chunk, milliseconds since 1970."""
    task: str
    """The run and task that appended the newest chunk."""
    batch: BatchProgress | None = None
    """The newest batch of a stream, which is never complete itself; None for a load, and where a stream begins."""
    least_expected: int | None = None
    """The lowest offset that the job's next row may itself expect while nobody else writes: counted from the claim
    on, one for each row and none for what holds no record. None where nothing was claimed."""
    own_ranges: tuple[tuple[int, int], ...] = ()
    """Of conditions by key: where the job's newest rows lie, half open: one range for chunks with nothing of others
    in between. These do not count against it."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """A claim that a person gave for a job that was refused: it holds for the row after ``rows``."""

    partition: int
    rows: int
    expected_offset: int | None


@dataclass(frozen=True, slots=True)
class EarlierRows:
    """What a load had appended under an earlier plan when partitions were added: of each partition a prefix."""

    job: str
    """The name that this plan is recorded under."""
    rows: tuple[int, ...]
    """By partition of the layout that the plan was made for."""
    digests: tuple[str, ...]
    """By partition: `RunningDigest` over these rows, hexadecimal; empty where there are none."""
    complete: tuple[bool, ...]
    """By partition: whether these are all rows that the input has there."""

    @property
    def partitions(self) -> int:
        """The partition count that the rows were placed for."""
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a job claims about the log at its start. The first plan of a job is in the registry for ever."""

    job: str
    log_id: str
    layout_epoch: int
    expected_offsets: tuple[int | None, ...]
    """The claim per partition; None asks for no check (KIP-27's -1)."""
    end_offsets: tuple[int, ...]
    """Where each partition ended when the plan was made: no row of the job lies below."""
    replaced: tuple[Replacement, ...] = ()
    stream: bool = False
    """Whether the job is a stream: then the ledger counts by batch, and the job never completes."""
    pinned_by: str = ""
    """Whoever made the plan: of two that found the same ends at once, one holds, and the other is rejoined."""
    pinned_at_ms: int = 0
    """When the plan was made, milliseconds since 1970; 0 in plans from before this was noted."""
    compare: str = BY_PARTITION
    """What the claims are about: their partition, or (`BY_KEY`) the keys of the rows."""
    round_of: str = ""
    """The job of `append_if_unchanged` that this job is a round of; empty for any other."""
    continues: str = ""
    """The load that this plan is the rest of, since partitions were added; empty for any other."""
    earlier: tuple[EarlierRows, ...] = ()
    """What that load had appended before, oldest first: of each plan's input, what the next one's does not have."""
    named: tuple[int, ...] = ()
    """The partitions of which the user expects an offset, with rows or without; of plans from before this was noted,
    those that a re-run names."""
    whole: bool = False
    """Whether the rows of all partitions become visible in one step."""
    input: str = ""
    """Digest of the bulk load's input list (`spark_cas.core.input_list`); empty for any other write."""
    partitioner: str = ""
    """The partitioner that assigned the rows to partitions (`spark_cas.core.partitioner`); empty if that was not
    recorded, or the caller assigned them."""
    rejoined: bool = field(default=False, compare=False)
    """Whether an earlier run may have appended under this plan: not so for the run that recorded it."""
    group: str = field(default="", compare=False)
    """The group that this run appends to (`spark_cas.core.group`); empty where each chunk is visible by itself."""
    decide_by_ms: int = field(default=0, compare=False)
    """From then on, milliseconds since 1970, others may abort that group where it is in their way."""

    @property
    def by_key(self) -> bool:
        """Whether the claims are about keys, and no partition is claimed."""
        return self.compare == BY_KEY

    @property
    def partitions(self) -> int:
        """The partition count that the plan was made for."""
        return len(self.expected_offsets)

    def claims(self, partition: int) -> bool:
        """Whether the plan was made with a claim on a partition itself; never on one that was added since."""
        return partition < self.partitions and self.expected_offsets[partition] is not None and not self.by_key

    @property
    def told_as(self) -> str:
        """The job's name as its user knows it."""
        return self.continues or self.job

    @property
    def earlier_rows(self) -> int:
        """How many rows the load had appended before partitions were added."""
        return sum(sum(each.rows) for each in self.earlier)

    @property
    def checked(self) -> bool:
        """Whether any partition is claimed at an offset."""
        return any(expected is not None for expected in self.expected_offsets)


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """What a run did to one partition, and what the partition now holds of the job."""

    progress: Progress
    resumed_rows: int | None
    """Rows that an earlier attempt or run had already committed; None while the job is under way."""
    resolved: int | None
    """Replies that were lost and proven from the log, likewise."""
    appends: Appends = NOTHING_SAID
    """What the appends of the task that came to the end said; nothing is known of it while the job is under way, and
    of completions from before this was noted."""
    guarantee: str = EXACTLY_ONCE
    """What the partition really got; before this was noted there was nothing else."""
    null_keys: int | None = None
    """Rows of the partition without a key; None if the task did not count them."""


@dataclass(frozen=True, slots=True)
class Completion:
    """Says for ever that a job is done, and with what; partitions without rows are not listed."""

    job: str
    log_id: str
    layout_epoch: int
    partitions: tuple[PartitionResult, ...]
    completed_at_ms: int

    @property
    def rows(self) -> int:
        """Rows of the job in all partitions."""
        return sum(result.progress.rows for result in self.partitions)


def input_entry(job: str, digest: str) -> str:
    """The name under which the registry keeps the input list with a digest, of a job."""
    return f"{job}/{digest}"


def resume_offset(plan: Plan, partition: int, progress: Progress | None) -> int | None:
    """The offset that the job's next chunk in a partition must expect; None asks for no check."""
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
    """What rows of a partition that do not say it themselves expect of their keys; None asks for no check."""
    given = [each.expected_offset for each in plan.replaced if each.partition == partition]
    return given[-1] if given else plan.expected_offsets[partition]


def progress_lost(plan: Plan, partition: int, progress: Progress | None, start_offset: int) -> bool:
    """Whether rows of the job may have been trimmed together with all trace of them, so that no claim decides.

    A claim below ``start_offset`` decides by itself: it ends in Conflict.
    """
    expected = resume_offset(plan, partition, progress)
    return progress is None and trimmed_unseen(plan.end_offsets[partition], expected, start_offset)


def progress_expired(plan: Plan, partition: int, progress: Progress | None, end_offset: int) -> bool:
    """Whether a job may have rows in a partition although the ledger has none: for ledgers that forget with time.

    A checked claim decides by itself: it ends in Conflict when the job's own rows are there. Without a check nothing
    tells them from others', so whatever was appended since the plan was made may be the job's.
    """
    unchecked = resume_offset(plan, partition, progress) is None
    return plan.rejoined and unchecked and progress is None and end_offset > plan.end_offsets[partition]


def trimmed_unseen(known_end: int, expected: int | None, start_offset: int) -> bool:
    """Whether rows of a job, which has no progress now, may have lain between ``known_end`` and the start.

    Below ``known_end`` nothing of the job is unknown to the writer. An ``expected`` offset below
    ``start_offset`` decides by itself.
    """
    return start_offset > known_end and (expected is None or expected >= start_offset)


def rejoin(first: Plan, wanted: ExpectedOffsets, progress: tuple[Progress | None, ...]) -> Plan:
    """The plan of a re-run: the job's first plan, with the claims that a person now gives in their place.

    ``progress`` is the ledger by partition. ``end`` never computes new claims for a known job, and a job
    that was planned with a check is not continued without one, nor the other way round.
    """
    claims = wanted.resolve(first.end_offsets)
    if any(expected is not None for expected in claims) != first.checked:
        was, again = "without", "with expected offsets 'none'"
        if first.checked:
            was, again = "with", "without naming expected offsets, or with those to go on from"
        raise JobMismatchError(
            f"job {first.told_as!r} was planned {was} expected offsets and cannot be continued the other way. "
            f"Nothing was appended now. Run it again as it was planned: {again}."
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
    """A given claim for the job's next row: one below the job's own last row was honoured when that was written."""
    return expected if expected is None or progress is None else max(expected, progress.end_offset)


def _rows(progress: Progress | None) -> int:
    return progress.rows if progress else 0


def is_complete(progress: Progress | None) -> bool:
    """Whether a ledger entry says that all rows of its job are in the partition."""
    return progress is not None and progress.complete
