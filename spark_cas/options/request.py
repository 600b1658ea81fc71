"""The typed request of a read or write. The driver parses the options once, and so does Spark's planner."""

from dataclasses import dataclass, field

from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.partitioner import Partitioner
from spark_cas.log.open import AnySpec
from spark_cas.options.read_range import ReadRange, Splitting, TriggerLimits
from spark_cas.options.selection import Selection
from spark_cas.options.table import VIEW_RECORDS

LOCK_WAIT_TIMEOUT_MS = 3_600_000
"""The default maximum wait of a load, or of an atomic micro-batch, for other loads, in milliseconds."""


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A read as its options request it."""

    selection: Selection
    range: ReadRange
    """The records to read, for the views that return records. For a stream, only the start."""
    splitting: Splitting
    view: str = VIEW_RECORDS
    """``records``, ``newest``, ``offsets`` or ``progress``."""
    include_headers: bool = False


@dataclass(frozen=True, slots=True)
class StreamRequest(ReadRequest):
    """A streaming read as its options request it."""

    trigger: TriggerLimits = field(default_factory=TriggerLimits)
    whole_loads: bool = False
    """Whether no micro-batch may end within an atomic load."""
    allow_unsubscribed: bool = False
    """Whether the checkpoint may have topics and partitions that the selection does not have."""
    processing_time: bool = False
    """Whether the options state a processing-time trigger."""
    commit_group: str | None = None
    """The consumer group to which the query commits offsets; None for none."""


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """A write as its options request it. `route` prepares the rows for it."""

    spec: AnySpec
    job: str | None
    """None if the option is not set."""
    expected_offsets: ExpectedOffsets
    checked: bool
    """Whether expected offsets are checked. If not, no row may have an expected offset either."""
    compare: str
    """The scope of expected offsets: partitions or keys."""
    atomic: bool
    """Whether all rows of a partition are one chunk."""
    whole: bool
    """Whether the load is atomic: the rows of all partitions become visible in one step."""
    partitions: int | None
    """The partition count of the log according to the user; None if not set."""
    new_partitions: int | None
    """The partition count of a log to create: ``partitions``, or the default of the log."""
    partitioner: Partitioner | None
    """The partitioner that an option or the log's defaults name; None if neither does."""
    limits: ChunkLimits
    routed: bool
    fenced_retry_wait_ms: int
    lock_wait_timeout_ms: int
    """The maximum wait for other loads of the same partitions, in milliseconds."""
    batch_id: int | None
    """The micro-batch of the rows, for a write within foreachBatch; else None."""
    order_by: tuple[str, ...]
    round_of: str
    """The job of `append_if_unchanged` to which the write belongs as one round; empty for any other write."""
    idempotence: str
    """The requested guarantee: `spark_cas.core.guarantee`."""
    report: str | None
    """The file for the result; None for no file."""
    metrics: str | None = None
    """The target of metrics (`spark_cas.options.metrics_target`); None for no metrics."""
    names: tuple[str, ...] = ()
    """The names of the explicit options, for an error."""
    lineage: bool = True
    """Whether the write sends events of OpenLineage, if that is configured."""
    reading: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """The options to read the same log, for `route`. Other requests have none, because they may contain secrets."""

    @property
    def in_one_task(self) -> bool:
        """Whether one task has all rows, because it commits them in one transaction."""
        return self.whole and self.spec.has_brokers
