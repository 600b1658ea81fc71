"""`append_if_unchanged`: append the rows whose keys are unchanged, and return the other rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count, takewhile
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import LongType, StructType
from pyspark.sql.utils import is_remote

from spark_cas.core.errors import (
    ConflictError,
    ExpectedOffsetError,
    InputChangedError,
    LayoutChangedError,
    OptionError,
    ProgressLostError,
    SchemaError,
)
from spark_cas.core.guarantee import REQUIRED
from spark_cas.core.outcome import Truncated, error_of
from spark_cas.core.plan import BY_KEY
from spark_cas.core.row_claims import COLUMN, NO_CHECK
from spark_cas.log.load.after_expansion import may_have_expired, require_never_begun
from spark_cas.log.load.planning import fresh_job_name
from spark_cas.log.open import open_log
from spark_cas.options.parse import as_text, parse_route
from spark_cas.options.table import ATOMIC_LOAD, ATOMIC_PARTITION
from spark_cas.spark.reading.bootstrap import PinnedBounds, PinnedLog
from spark_cas.spark.schema import RECORDS, mark_of
from spark_cas.spark.setup import own_errors
from spark_cas.spark.writing.end_markers import without_end_markers
from spark_cas.spark.writing.route import route_rows
from spark_cas.spark.writing.verify import HASHED, hashing

_MOST_ROUNDS = 10
_TAIL = StructType([RECORDS[name] for name in ("key", "value", "partition", "offset")])
_OURS = frozenset({"compare", "expectedoffsets", "roundof", "idempotence", "report"})


@dataclass(frozen=True, slots=True)
class IfUnchanged:
    """The result of `append_if_unchanged`."""

    appended: DataFrame
    """The appended records, with the columns of a read. ``partition`` and ``offset`` are their positions."""
    rejected: DataFrame
    """The rejected rows, with the partition and the newest record of their key.

    The added columns are ``partition``, ``actual_offset`` (bigint) and ``actual_value`` (binary). Offset and value
    are null if there is no such record, but retention may have removed one. The value is also null if the key was
    deleted.
    """


@dataclass(frozen=True, slots=True)
class _Piece:
    """The contiguous rows that the job appended to a partition."""

    job: str
    """The name that the plan of these rows is stored under."""
    base_offset: int
    rows: int
    digest: str
    committed_at_ms: int


def append_if_unchanged(
    df: DataFrame, path_or_options: str | Mapping[str, str | float | None], by: Literal["key"] = "key"
) -> IfUnchanged:
    """Append each row whose key has not changed since its ``expected_offset``, and return the other rows.

    A row is appended if no record of its key has that offset or a higher one, as with ``compare=key``. Null and -1
    mean no check. Spark joins the rows with the tail of the log, and the append verifies the result. If another
    writer changes a key in between, the rows of its partition are checked again.

    The rows that are appended to a partition are one chunk. With ``atomic=load``, the rows in all partitions become
    visible in one step; if another writer changes one of their keys, all rows are checked again.

    If the options name a ``job``, the same call resumes it after a crash, and returns the same result. If two such
    calls run at once, one of them may fail, and can be repeated.

    Args:
        df: The rows, with a column ``expected_offset`` (bigint). It also needs the columns that `route` by key needs.
        path_or_options: The path or options of the log, as for `route`. The log must exist.
        by: Only ``"key"`` is supported.

    Returns:
        The appended records and the rejected rows.

    Raises:
        OptionError: The options or ``by`` are invalid.
        SchemaError: The frame lacks a column, or a column has the wrong type.
        ExpectedOffsetError: An expected offset is below -1, or a row without a key has one.
        BatchTooLargeError: The rows of a partition do not fit into one chunk.
        InputChangedError: The job ran before with other rows.
        JobMismatchError: Another kind of write has this job name.
        FencedError: Another call with the same job appends at the same time.
        ConflictError: Other writers changed keys in ten rounds.
        ProgressLostError: The job ran days ago, and the ledger entries of some of its rows may have expired.
        LayoutChangedError, TruncatedError, UnknownOutcomeError: As for any write.
    """
    if by != "key":
        raise OptionError("append_if_unchanged takes only by='key'.")
    if COLUMN not in df.columns or df.schema[COLUMN].dataType != LongType():
        raise SchemaError(
            f"append_if_unchanged needs a column {COLUMN} (bigint): the offset below which the caller has read the "
            f"key of the row. Add it. Null means no check."
        )
    with own_errors():
        return _Rounds(df, as_text(path_or_options)).run()


class _Rounds:
    """One call: rounds that check and append rows, until all rows that hold are appended."""

    def __init__(self, df: DataFrame, options: Mapping[str, str]) -> None:
        request = parse_route(options)
        ours = _OURS if request.whole else _OURS | {"atomic", "lockwaittimeout"}
        used = sorted(name for name in options if name.lower() in ours)
        if used:
            raise OptionError(f"append_if_unchanged decides on option {used[0]} itself. Leave it out.")
        self._job = request.job or fresh_job_name()
        self._whole = request.whole
        self._options = options
        self._request = replace(request, compare=BY_KEY, idempotence=REQUIRED, atomic=True, whole=False)
        self._reading = dict(request.reading)
        self._spark = df.sparkSession
        self._first: PinnedBounds | None = None
        # Checks, appends and results must use the same rows, so the routed rows are computed once (below).
        routed = route_rows(df, self._request, has_columns=True)
        self._layout = _layout_of(routed)
        mark = mark_of(routed.schema)
        if mark is not None and mark.partitioner is not None:
            # The rounds keep these partition ids, so the log must assign its keys by the same partitioner.
            self._options = {**_without(self._options, "partitioner"), "partitioner": mark.partitioner}
        self._rows = without_end_markers(routed).localCheckpoint()

    def run(self) -> IfUnchanged:
        done = self._unexpired()
        self._require_same(done)
        rounds = 0
        while True:
            log = PinnedLog(self._spark, self._reading)
            # Computed once, because compaction may remove a record that rejects a row before a second read.
            judged = self._judged(log, done).localCheckpoint()
            # All rounds are runs of one job. Its writers fence each other, so two calls append no row twice. Each
            # round also has the rows that the job has already appended, and skips them.
            own = [partition for partition, piece in done.items() if piece.job != self._job]
            refusal = self._append(self._holding(judged).where(~sf.col("partition").isin(*own)))
            before, done = done, self._done()
            if refusal is None:
                return IfUnchanged(self._appended(done), judged.where("NOT holds").drop("holds"))
            rounds += 1
            if rounds == _MOST_ROUNDS or (isinstance(refusal, InputChangedError) and done == before):
                raise refusal
            if isinstance(refusal, InputChangedError):
                # Another call of the job has appended other rows since this one read the log.
                self._require_same(done)

    def _unexpired(self) -> dict[int, _Piece]:
        """Return the same as `_done`, if earlier calls of the job have no other rows.

        If the ledger entries of such rows have expired, this call would return the rows as rejected. On Spark Connect
        they are not detected, because only the server may reach the log.

        Raises:
            ProgressLostError: New records may be such rows.
        """
        done = self._done()
        if self._request.job is None or is_remote():
            return done
        try:
            self._require_entries(done)
        except ProgressLostError:
            # Another call of the job may have appended them meanwhile.
            done = self._done()
            self._require_entries(done)
        return done

    def _require_entries(self, done: Mapping[int, _Piece]) -> None:
        with open_log(self._request.spec) as log:
            log_id = log.layout().log_id
            rounds = takewhile(bool, (log.plan(f"{self._job}.unchanged.{number}") for number in count(1)))
            for plan in [log.plan(self._job), *rounds]:
                # The write reports a plan of another job or of another log of this name.
                if plan is None or plan.round_of != self._job or plan.log_id != log_id:
                    continue
                if log.completion(plan.job) is None and may_have_expired(log, plan):
                    for partition in set(range(plan.partitions)).difference(done):
                        require_never_begun(log, plan, partition, log.bounds(partition).end_offset)

    def _holding(self, judged: DataFrame) -> DataFrame:
        return judged.where("holds").select(self._rows.columns)

    def _writing(self) -> dict[str, str]:
        values = _without(self._options, "job", "atomic")
        job = {"job": self._job, "roundOf": self._job, "idempotence": REQUIRED}
        atomic = ATOMIC_LOAD if self._whole else ATOMIC_PARTITION
        return {**values, **job, "compare": BY_KEY, "expectedOffsets": "none", "atomic": atomic}

    def _done(self) -> dict[int, _Piece]:
        """Return the rows that this job has appended, by partition.

        In a log of an earlier build, each round has a name of its own.
        """
        progress = (
            self._spark.read.format("conditional-log").options(**self._reading).option("view", "progress").load()
        )
        result = progress.where(sf.col("round_of") == self._job).where("rows > 0").collect()
        return {
            row.partition: _Piece(row.job, row.base_offset, row.rows, row.digest, _ms(row.committed_at))
            for row in result
        }

    def _judged(self, log: PinnedLog, done: Mapping[int, _Piece]) -> DataFrame:
        """Return the rows with the newest record of their key at or after the expected offset, and whether they hold.

        If the job has already appended rows to a partition, only records before these rows count, as in that append.
        """
        kept = log.at.bounds
        ends = [done[at].base_offset if at in done else bounds.end_offset for at, bounds in enumerate(kept)]
        claimed = sf.coalesce(sf.col(COLUMN), sf.lit(NO_CHECK)) != NO_CHECK
        last = {at: bounds.end_offset for at, bounds in enumerate(kept) if at not in done}
        lowest = self._lowest_expected(claimed, last)
        starts = [
            min(max(bounds.start_offset, lowest.get(at, end)), end)
            for at, (bounds, end) in enumerate(zip(kept, ends, strict=True))
        ]
        newest = (
            log.read(starts, _TAIL)
            .where(sf.col("offset") < _of_partition(ends))
            .groupBy(sf.col("partition").alias("tail_partition"), sf.col("key").alias("tail_key"))
            .agg(sf.max_by(sf.struct("offset", "value"), "offset").alias("newest"))
        )
        same = (sf.col("partition") == sf.col("tail_partition")) & (
            sf.col("key").cast("binary") == sf.col("tail_key")
        )
        changed = claimed & sf.coalesce(sf.col("newest.offset") >= sf.col(COLUMN), sf.lit(False))  # noqa: FBT003
        unproven = claimed & (sf.col(COLUMN) < _of_partition(self._unproven_below(log.at, done, lowest)))
        joined = self._rows.join(newest, same, "left")
        return joined.select(
            *self._rows.columns,
            sf.when(changed, sf.col("newest.offset")).alias("actual_offset"),
            sf.when(changed, sf.col("newest.value")).alias("actual_value"),
            (~changed & ~unproven).alias("holds"),
        )

    def _lowest_expected(self, claimed: Column, last: Mapping[int, int]) -> dict[int, int]:
        """Return the lowest expected offset of each partition. Raises ExpectedOffsetError for an invalid one.

        Raises TruncatedError for one above the last valid one of its partition.
        """
        keyless = sf.max(sf.col("key").isNull())
        rows = self._rows.where(claimed).groupBy("partition").agg(sf.min(COLUMN), sf.max(COLUMN), keyless).collect()
        for partition, lowest, highest, is_keyless in rows:
            if lowest < NO_CHECK or is_keyless:
                expected = "an offset and has no key" if is_keyless else f"offset {lowest}"
                raise ExpectedOffsetError(
                    f"a row of partition {partition} expects {expected}. Nothing was appended. Give each row with "
                    f"an expected offset a key, and an offset from 0 on. Null and -1 mean no check.",
                    partition=partition,
                )
            # On Spark Connect, only the server may reach the log. Its append rejects such rows.
            if highest > last.get(partition, highest) and not is_remote():
                with open_log(self._request.spec) as log:
                    (bounds,) = log.bounds_of([partition], waiting=True, at_least=[highest])
                if highest > bounds.end_offset:
                    raise error_of(Truncated(highest, bounds.end_offset), partition)
        return {partition: lowest for partition, lowest, *_ in rows}

    def _unproven_below(self, at: PinnedBounds, done: Mapping[int, _Piece], lowest: Mapping[int, int]) -> list[int]:
        """Return, by partition, the offset below which an expected offset may refer to records that were removed.

        The append applies the same limit.
        """
        below = [bounds.start_offset for bounds in at.bounds]
        self._first = first = self._first or at
        if is_remote():
            return below  # Only the server may reach the log. Its append rejects such rows.
        with open_log(self._request.spec) as log:
            for partition in lowest:
                piece = done.get(partition)
                end = piece.base_offset if piece else at.bounds[partition].end_offset
                if lowest[partition] < end:
                    known = {"pinned_at_ms": first.pinned_at_ms, "pinned_end": first.bounds[partition].end_offset}
                    now_ms = piece.committed_at_ms if piece else at.pinned_at_ms
                    removed = log.unproven_below(partition, end, now_ms, **known)
                    below[partition] = min(end, max(below[partition], removed))
        return below

    def _append(self, rows: DataFrame) -> ConflictError | InputChangedError | None:
        """Append rows that hold. Return the error if another writer, or another call of the job, was faster."""
        if rows.isEmpty():
            return None
        request = replace(self._request, atomic=not self._whole, whole=self._whole)
        routed = route_rows(rows, request, "partition", has_columns=True)
        if _layout_of(routed) != self._layout:
            raise self._layout_changed()
        try:
            with own_errors():
                routed.write.format("conditional-log").mode("append").options(**self._writing()).save()
        except (ConflictError, InputChangedError) as refusal:
            return refusal
        return None

    def _appended(self, done: Mapping[int, _Piece]) -> DataFrame:
        log = PinnedLog(self._spark, self._reading)
        kept = list(enumerate(log.at.bounds))
        starts = [done[at].base_offset if at in done else bounds.end_offset for at, bounds in kept]
        ends = [start + (done[at].rows if at in done else 0) for (at, _), start in zip(kept, starts, strict=True)]
        return log.read(starts).where(sf.col("offset") < _of_partition(ends))

    def _require_same(self, done: Mapping[int, _Piece]) -> None:
        """Check that earlier calls of the job appended exactly the rows that held at that time.

        Raises InputChangedError, and LayoutChangedError if partitions were added since.
        """
        if not done:
            return
        log = PinnedLog(self._spark, self._reading)
        for partition, piece in done.items():
            if any(piece.base_offset < threshold for threshold in log.at.thresholds[partition].values()):
                raise self._layout_changed()
        holding = self._holding(self._judged(log, done)).where(sf.col("partition").isin(*done))
        routed = route_rows(holding, self._request, "partition", has_columns=True)
        hashed = without_end_markers(routed).mapInArrow(hashing(len(log.at.bounds)), HASHED).collect()
        result = {row.partition: (row.rows, row.digest) for row in hashed}
        for partition, piece in sorted(done.items()):
            rows, digest = result.get(partition, (0, ""))
            if (rows, digest) != (piece.rows, piece.digest):
                subject = "these are not the same" if rows == piece.rows else f"now {rows} hold"
                raise InputChangedError(
                    f"partition {partition}: job {self._job!r} appended {piece.rows} rows, and {subject}: the rows "
                    f"are others, or the log was trimmed since. Nothing was appended now. Call it with the rows of "
                    f"the first time; under another job name rows that expect nothing would be appended again, so "
                    f"give it none of those that are in the log.",
                    partition=partition,
                    job=self._job,
                )

    def _layout_changed(self) -> LayoutChangedError:
        return LayoutChangedError(
            f"partitions were added to the log since job {self._job!r} began, and its rows were assigned to the old "
            f"ones. Its appended rows stay, and nothing was appended now. Read the log, and write only the rows that "
            f"it does not have, under another job name.",
            job=self._job,
            resumable=False,
        )


def _without(options: Mapping[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in options.items() if name.lower() not in names}


def _layout_of(routed: DataFrame) -> tuple[int, int | None] | None:
    mark = mark_of(routed.schema)
    return None if mark is None else (mark.partitions, mark.layout_epoch)


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _of_partition(offsets: Sequence[int]) -> Column:
    """Return the offset for the partition of each row, from offsets by partition."""
    return sf.element_at(sf.array(*(sf.lit(offset).cast("bigint") for offset in offsets)), sf.col("partition") + 1)
