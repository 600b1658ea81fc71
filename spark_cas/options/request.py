"""The typed request of a read or write, and the logs that it selects: a path, or topics of some brokers.

The driver parses the options once, and so does Spark's planner.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from spark_cas.core.check_name import check_name
from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.errors import OptionError, TruncatedError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.partitioner import Partitioner
from spark_cas.core.plan import BY_PARTITION, Layout
from spark_cas.log.kafka.settings.address import kafka_spec
from spark_cas.log.open import AnySpec, parse_address
from spark_cas.options.read_range import ReadRange, Splitting, TopicPartition, TriggerLimits, listing
from spark_cas.options.table import VIEW_RECORDS

LOCK_WAIT_TIMEOUT_MS = 3_600_000
"""The default maximum wait of a load, or of an atomic micro-batch, for other loads, in milliseconds."""

_BOTH_WAYS = (
    "For a directory or object store, use load('/data/logs/flights') or save('/data/logs/flights'). For a topic, use "
    "option('kafka.bootstrap.servers', 'host:9092') with option('topic', 'flights')."
)

_IN_SQL = (
    "In SQL, Spark does not pass the options of a table, so add them to each use: SELECT * FROM t WITH "
    "(path='/data/logs/flights'). To write, use INSERT INTO t WITH (path='/data/logs/flights', job='load-1') SELECT "
    "key, value, partition FROM routed. Here t has exactly these columns, and routed is a view of a routed frame. "
    "See docs/spark.md."
)

NO_ADDRESS = f"the options have no address of a log: neither path nor kafka.bootstrap.servers. {_BOTH_WAYS} {_IN_SQL}"

_NO_NAME = "-"
"""The topic name of a spec if a pattern selects the topics."""


@dataclass(frozen=True, slots=True)
class Selection:
    """One log, or several topics of the same brokers."""

    spec: AnySpec
    """The address and the client settings. The specs of several topics differ only in the name."""
    topics: tuple[str, ...]
    """Sorted; empty if a pattern selects the topics."""
    pattern: str | None = None
    """A Python regular expression that must match the whole topic name."""
    assigned: tuple[TopicPartition, ...] = ()
    """Sorted; empty to read all partitions."""
    log_id: str | None = None
    """The expected id of the log; None for any. A log recreated under the same name has another id."""

    def as_reached(self) -> "Selection":
        """Return a copy that retries connection errors, for a caller that has reached the logs before."""
        return replace(self, spec=self.spec.as_reached())

    def selects(self, at: TopicPartition) -> bool:
        """Return whether these options select a partition, if it exists."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, at.topic) is not None
        return at.topic in self.topics and (not self.assigned or at in self.assigned)

    def only(self) -> AnySpec:
        """Return the spec of the one log; raise OptionError if the options may select several."""
        if len(self.topics) != 1:
            raise OptionError("this is for one log, and several are named. Give one topic with the option topic.")
        return self.spec

    def require_meant(self, topic: str, layout: Layout) -> None:
        """Raise TruncatedError if a log does not have the expected id."""
        if self.log_id not in (None, layout.log_id):
            raise TruncatedError(
                f"log {topic} is not the one that is to be read: it was deleted and recreated, and its offsets mean "
                f"other records now. Bootstrap the new log, or leave option logId out."
            )

    def partitions_of(self, topic: str, layout: Layout) -> tuple[int, ...]:
        """Return the selected partitions of a log; raise OptionError if it lacks one of them."""
        wanted = tuple(at.partition for at in self.assigned if at.topic == topic)
        absent = [TopicPartition(topic, each) for each in wanted if each >= layout.partitions]
        if absent:
            raise OptionError(
                f"option assign names {listing(absent)}, but the topic has {layout.partitions} partitions (0 to "
                f"{layout.partitions - 1}). Name some of these."
            )
        return wanted or tuple(range(layout.partitions))


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
    """The name of the job if the write is a round of `append_if_unchanged`; empty for any other write."""
    idempotence: str
    """The requested guarantee: `spark_cas.core.guarantee`."""
    report: str | None
    """The file for the result; None for no file."""
    metrics: str | None = None
    """The target of metrics (`spark_cas.options.publish_metrics`); None for no metrics."""
    names: tuple[str, ...] = ()
    """The names of the explicit options, for an error."""
    lineage: bool = True
    """Whether the write sends events of OpenLineage, if that is configured."""
    topics: tuple[str, ...] = ()
    """All topics of a write without the option topic, sorted; empty for any other write."""
    reading: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """The options to read the same log, for `route`. Other requests have none, because they may contain secrets."""

    @property
    def in_one_task(self) -> bool:
        """Whether one task has all rows, because it commits them in one transaction."""
        return self.whole and self.spec.has_brokers

    def longest_wait_seconds(self, *, streaming: bool) -> float:
        """Return how long a Python worker may wait for one operation on the log and for other writers.

        Spark plans a write in a Python worker too. A load waits there for its load lock. An atomic micro-batch in a
        store waits for it in the tasks.
        """
        in_batches = streaming or self.batch_id is not None
        has_lock = has_load_lock(
            self.spec, self.expected_offsets, self.compare, whole=self.whole, in_batches=in_batches
        )
        of_writers_ms = self.fenced_retry_wait_ms + (self.lock_wait_timeout_ms if has_lock else 0)
        return self.spec.patience_seconds + self.spec.open_transaction_seconds + of_writers_ms / 1000


def has_load_lock(
    spec: AnySpec, expected: ExpectedOffsets, compare: str, *, whole: bool, in_batches: bool = False
) -> bool:
    """Return whether a load, or a micro-batch, takes the load lock."""
    has_conditions = compare == BY_PARTITION and expected.mode != "none"
    return (whole and not spec.has_brokers) or (has_conditions and not in_batches)


def selection_of(
    path: str | None,
    servers: str | None,
    *,
    topic: str | None,
    subscribe: tuple[str, ...] | None,
    pattern: str | None,
    assign: tuple[TopicPartition, ...] | None,
) -> Selection | None:
    """Return the selected logs, without client settings; None if no option names a log.

    Raises:
        OptionError: The options are incomplete or contradict each other.
    """
    values = {"topic": topic, "subscribe": subscribe, "subscribePattern": pattern, "assign": assign}
    options = [name for name, value in values.items() if value is not None]
    if len(options) > 1:
        raise OptionError(f"the options {' and '.join(options)} both name topics. Use one of them.")
    assigned = assign or ()
    if path is not None:
        return _at_path(path, [*options, *([] if servers is None else ["kafka.bootstrap.servers"])], assigned)
    if servers is None:
        if options:
            raise OptionError(f"the option {options[0]} needs the option kafka.bootstrap.servers. {_BOTH_WAYS}")
        return None
    if not options:
        raise OptionError(
            "the option kafka.bootstrap.servers needs a topic. Add option('topic', 'flights'), or for a read "
            "subscribe, subscribePattern or assign. Only a batch write can use the topics in the column topic of its "
            "DataFrame: pass the options and the DataFrame to spark_cas.route first."
        )
    topics = subscribe or tuple(sorted({at.topic for at in assigned})) if topic is None else (topic,)
    specs = [kafka_spec(servers, each, {}) for each in topics or (_NO_NAME,)]  # checks each name
    return Selection(specs[0], topics, pattern, assigned)


def _at_path(path: str, others: Sequence[str], assigned: tuple[TopicPartition, ...]) -> Selection:
    """Return the log at a path, of which ``assign`` may select some partitions."""
    if "subscribePattern" in others:
        raise OptionError(
            "the options path and subscribePattern cannot be combined, because a path is one log. Load each path and "
            "union the DataFrames, or use kafka.bootstrap.servers instead of the path."
        )
    if others not in ([], ["assign"]):
        raise OptionError(f"the options path and {others[-1]} cannot be combined: each names a log. {_BOTH_WAYS}")
    spec = parse_address(path)
    if spec.url.lower().startswith("memory:"):
        raise OptionError(
            "a log in memory exists in one process, but Spark's tasks run in others. Use a directory or the URL of "
            "an object store."
        )
    check_name(spec.topic, "the last part of a log's address")
    if any(each.topic != spec.topic for each in assigned):
        raise OptionError(f"option assign names other logs than {spec.topic}, the log at the path. Name only that.")
    return Selection(spec, (spec.topic,), assigned=assigned)
