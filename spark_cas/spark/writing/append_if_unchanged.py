"""`append_if_unchanged`: appends the rows to whose keys nothing happened, and returns the others with what did."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from pyspark.sql import functions as sf
from pyspark.sql.types import LongType, StructType
from pyspark.sql.utils import is_remote

from spark_cas.core.errors import (
    ClaimError,
    ConflictError,
    InputChangedError,
    LayoutChangedError,
    OptionError,
    SchemaError,
    error_from_text,
)
from spark_cas.core.guarantee import REQUIRED
from spark_cas.core.row_claims import COLUMN, NO_CHECK
from spark_cas.log.load.planning import fresh_job_name
from spark_cas.log.open import open_log
from spark_cas.log.tombstones import unproven_below
from spark_cas.options.option import ATOMIC_LOAD, ATOMIC_PARTITION
from spark_cas.options.parse import parse_read, parse_route
from spark_cas.spark.reading.pinned_bounds import PinnedBounds, PinnedLog
from spark_cas.spark.schema import RECORDS, mark_of
from spark_cas.spark.writing.route import route
from spark_cas.spark.writing.verify import HASHED, hashing

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_MOST_ROUNDS = 10
_TAIL = StructType([RECORDS[name] for name in ("key", "value", "partition", "offset")])
_OURS = frozenset({"compare", "expectedoffsets", "roundof", "idempotence", "report"})


@dataclass(frozen=True, slots=True)
class IfUnchanged:
    """What became of the rows of `append_if_unchanged`."""

    appended: "DataFrame"
    """The records that were appended, in the columns of a read: ``partition`` and ``offset`` say where they lie."""
    rejected: "DataFrame"
    """The rows that were not, with ``partition``, and of their key's newest record the ``actual_offset`` (bigint) and
    ``actual_value`` (binary). Both are null where what may have been of the key was removed by retention, and the
    value also where the key was deleted."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """The rows that were appended to a partition, which lie in one piece."""

    number: int
    """Of the round that appended them."""
    base_offset: int
    rows: int
    digest: str
    committed_at_ms: int


def append_if_unchanged(
    df: "DataFrame", path_or_options: str | Mapping[str, str | float], by: Literal["key"] = "key"
) -> IfUnchanged:
    """Append each row to whose key nothing happened since its ``expected_offset``, and return the others.

    It judges as ``compare=key`` does, row by row: no record of the key lies at or behind the offset; null and -1 ask
    for no check. That is found out by a join with the tail of the log, and made sure of by the append: where others
    changed a key meanwhile, the rows of its partition are judged again. What holds of a partition is one chunk; with
    ``atomic=load`` what holds in all partitions becomes visible in one step, and all rows are judged again where
    others changed one of their keys.
    ``path_or_options`` is as for `route`, and the log is there. With a ``job`` among the options the same call again,
    as after a crash, goes on where it was, and returns the same.

    Raises OptionError, SchemaError; BatchTooLargeError when rows of a partition are more than a chunk;
    InputChangedError when a job comes again with other rows; JobMismatchError when a round's name is another job's;
    ClaimError for an offset below -1, or one expected by a row without a key; TruncatedError, UnknownOutcomeError,
    LayoutChangedError as a write does; ConflictError when others were faster ten times.
    """
    if by != "key":
        raise OptionError("append_if_unchanged takes by='key', and was given something else.")
    if COLUMN not in df.columns or df.schema[COLUMN].dataType != LongType():
        raise SchemaError(
            f"append_if_unchanged needs a column {COLUMN} (bigint): up to which offset the key of each row was read. "
            f"Add it; null asks for no check."
        )
    given = {"path": path_or_options} if isinstance(path_or_options, str) else dict(path_or_options)
    return _Rounds(df, {name: str(value) for name, value in given.items()}).run()


class _Rounds:
    """One call: rounds of judging and appending, until of each partition all that holds was appended."""

    def __init__(self, df: "DataFrame", options: Mapping[str, str]) -> None:
        asked = parse_route(options)
        ours = _OURS if asked.whole else _OURS | {"atomic"}
        taken = sorted(name for name in options if name.lower() in ours)
        if taken:
            raise OptionError(f"append_if_unchanged decides on option {taken[0]} itself. Leave it out.")
        self._job = asked.job or fresh_job_name()
        self._whole = asked.whole
        self._options = options
        self._reading = dict(asked.reading)
        self._spark = df.sparkSession
        self._first: PinnedBounds | None = None
        # What is judged, what is appended and what is returned must be the same rows.
        routed = route(df, self._writing(0))
        self._layout = _layout_of(routed)
        mark = mark_of(routed.schema)
        if mark is not None and mark.partitioner is not None:
            # The rounds keep the partitions of these rows, and the log has to have placed its keys in the same way.
            self._options = {**_without(self._options, "partitioner"), "partitioner": mark.partitioner}
        self._rows = routed.localCheckpoint()

    def run(self) -> IfUnchanged:
        done, number = self._done()
        self._require_same(done)
        begun = {each.number for each in done.values()}
        rounds = 0
        while True:
            log = PinnedLog(self._spark, self._reading)
            # Once: a record that refuses a row now may be compacted away by the time it is asked for again.
            judged = self._judged(log, done).localCheckpoint()
            waiting = ~sf.col("partition").isin(*done)
            refusal = self._append(self._holding(judged).where(waiting), number)
            if refusal is None:
                done, _ = self._done()
                self._complete(judged, done, begun)
                return IfUnchanged(self._appended(done), judged.where("NOT holds").drop("holds"))
            begun.add(number)
            done, number = self._done()
            rounds += 1
            if rounds == _MOST_ROUNDS:
                raise refusal

    def _holding(self, judged: "DataFrame") -> "DataFrame":
        return judged.where("holds").select(self._rows.columns)

    def _complete(self, judged: "DataFrame", done: Mapping[int, _Piece], begun: set[int]) -> None:
        """Complete the rounds that were refused in a partition, with what they appended to others.

        The ledger may forget it with time, the registry does not.
        """
        for number in sorted(begun & {each.number for each in done.values()}):
            pieces = [partition for partition, each in done.items() if each.number == number]
            refusal = self._append(self._holding(judged).where(sf.col("partition").isin(*pieces)), number)
            if refusal is not None:
                raise refusal

    def _writing(self, number: int, atomic: str = ATOMIC_PARTITION) -> dict[str, str]:
        given = _without(self._options, "job", "atomic")
        job = {"job": f"{self._job}.unchanged.{number}", "roundOf": self._job, "idempotence": REQUIRED}
        return {**given, **job, "compare": "key", "expectedOffsets": "none", "atomic": atomic}

    def _done(self) -> tuple[dict[int, _Piece], int]:
        """What the rounds of this job have appended, by partition, and the number of the next round."""
        progress = (
            self._spark.read.format("conditional-log").options(**self._reading).option("view", "progress").load()
        )
        found = progress.where(sf.col("round_of") == self._job).where("rows > 0").collect()
        done = {
            row.partition: _Piece(
                int(row.job.rpartition(".")[2]), row.base_offset, row.rows, row.digest, _ms(row.committed_at)
            )
            for row in found
        }
        return done, max((each.number for each in done.values()), default=0) + 1

    def _judged(self, log: PinnedLog, done: Mapping[int, _Piece]) -> "DataFrame":
        """The rows with their key's newest record from what they expect on, and whether they hold.

        Rows of a partition that was appended to are judged as they were by that append: by what lies in front of it.
        """
        kept = log.at.bounds
        ends = [done[at].base_offset if at in done else bounds.end_offset for at, bounds in enumerate(kept)]
        claimed = sf.coalesce(sf.col(COLUMN), sf.lit(NO_CHECK)) != NO_CHECK
        lowest = {
            row.partition: row.lowest
            for row in self._rows.where(claimed).groupBy("partition").agg(sf.min(COLUMN).alias("lowest")).collect()
        }
        wrong = [partition for partition, offset in lowest.items() if offset < NO_CHECK]
        if wrong:
            raise ClaimError(
                f"a row of partition {wrong[0]} expects offset {lowest[wrong[0]]}. Nothing was appended. Give an "
                f"offset from 0 on, or null or -1 for no check."
            )
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

    def _unproven_below(self, at: PinnedBounds, done: Mapping[int, _Piece], lowest: Mapping[int, int]) -> list[int]:
        """By partition, the offset below which a claim may be about what was removed: as the append has it."""
        below = [bounds.start_offset for bounds in at.bounds]
        self._first = first = self._first or at
        if is_remote():
            return below  # Only the server may see the log, and its append refuses such claims.
        with open_log(parse_read(self._reading).selection.only()) as log:
            for partition in lowest:
                piece = done.get(partition)
                end = piece.base_offset if piece else at.bounds[partition].end_offset
                if lowest[partition] < end:
                    known = {"pinned_at_ms": first.pinned_at_ms, "pinned_end": first.bounds[partition].end_offset}
                    now_ms = piece.committed_at_ms if piece else at.pinned_at_ms
                    removed = unproven_below(log, partition, end, now_ms, **known)
                    below[partition] = min(end, max(below[partition], removed))
        return below

    def _append(self, rows: "DataFrame", number: int) -> ConflictError | None:
        """Append rows that hold; the refusal when others changed one of their keys meanwhile."""
        if rows.isEmpty():
            return None
        options = self._writing(number, ATOMIC_LOAD if self._whole else ATOMIC_PARTITION)
        routed = route(rows, options, by="partition")
        if _layout_of(routed) != self._layout:
            raise self._layout_changed()
        try:
            routed.write.format("conditional-log").mode("append").options(**options).save()
        except Exception as error:
            plain = error_from_text(str(error))
            if isinstance(plain, ConflictError):
                return plain
            if plain is None:
                raise
            raise plain from None
        return None

    def _appended(self, done: Mapping[int, _Piece]) -> "DataFrame":
        log = PinnedLog(self._spark, self._reading)
        kept = list(enumerate(log.at.bounds))
        starts = [done[at].base_offset if at in done else bounds.end_offset for at, bounds in kept]
        ends = [start + (done[at].rows if at in done else 0) for (at, _), start in zip(kept, starts, strict=True)]
        return log.read(starts).where(sf.col("offset") < _of_partition(ends))

    def _require_same(self, done: Mapping[int, _Piece]) -> None:
        """An earlier call of the job appended to each partition just the rows that hold, judged as they were then."""
        if not done:
            return
        log = PinnedLog(self._spark, self._reading)
        for partition, piece in done.items():
            if any(piece.base_offset < threshold for threshold in log.at.thresholds[partition].values()):
                raise self._layout_changed()
        holding = self._holding(self._judged(log, done)).where(sf.col("partition").isin(*done))
        routed = route(holding, self._writing(0), by="partition")
        hashed = routed.mapInArrow(hashing(len(log.at.bounds)), HASHED).collect()
        found = {row.partition: (row.rows, row.digest) for row in hashed}
        for partition, piece in sorted(done.items()):
            rows, digest = found.get(partition, (0, ""))
            if (rows, digest) != (piece.rows, piece.digest):
                what = "these are not the same" if rows == piece.rows else f"now {rows} hold"
                raise InputChangedError(
                    f"partition {partition}: job {self._job!r} appended {piece.rows} rows, and {what}: the rows are "
                    f"others, or the log was trimmed since. Nothing was appended now. Call it with the rows of the "
                    f"first time; under another job name rows that expect nothing would be appended again, so give "
                    f"it none of those that are in the log."
                )

    def _layout_changed(self) -> LayoutChangedError:
        return LayoutChangedError(
            f"partitions were added to the log since job {self._job!r} began, and its rows were placed for those of "
            f"before. What it appended stays, nothing was appended now. Read the log, and give what it does not hold "
            f"yet to another job name."
        )


def _without(options: Mapping[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in options.items() if name.lower() not in names}


def _layout_of(routed: "DataFrame") -> tuple[int, int | None] | None:
    """The partition count and layout epoch that a frame was routed for."""
    mark = mark_of(routed.schema)
    return None if mark is None else (mark.partitions, mark.layout_epoch)


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _of_partition(offsets: Sequence[int]) -> "Column":
    """Of offsets by partition, that of a row's."""
    return sf.element_at(sf.array(*(sf.lit(offset).cast("bigint") for offset in offsets)), sf.col("partition") + 1)
