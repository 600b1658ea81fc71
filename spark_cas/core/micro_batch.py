"""Compare a micro-batch with the ledger of a partition: new, partial, complete, or rejected."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from spark_cas.core.digest import joined_digest, row_digests
from spark_cas.core.errors import CheckpointMismatchError, JobMismatchError
from spark_cas.core.plan import BatchProgress, Plan, Progress
from spark_cas.core.records import RECORDS

OFFSET = "offset"
"""The column that rows of a log or topic have besides those of `RECORDS`."""
ORDER_COLUMNS = ("key", "timestamp", "value")
"""The columns that can order the rows of a batch. Digests order rows that are equal in all of them."""

_DEFAULT_KEPT_MS = 7 * 24 * 3_600_000
"""The default of Kafka's offsets.retention.minutes, in milliseconds."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The identity of a micro-batch within a job."""

    query: str
    """The id of the streaming query, which is stored in its checkpoint, or else the job name."""
    id: int


def unexpired_ms(kept_ms: int | None) -> int:
    """Return the age below which a ledger entry cannot have expired, in milliseconds.

    It is half of the time for which entries are kept, because clocks may differ. It is at most 3.5 days, because the
    brokers may have had a shorter retention earlier. ``kept_ms`` is None if it is not known or unlimited.
    """
    return min(_DEFAULT_KEPT_MS, _DEFAULT_KEPT_MS if kept_ms is None else kept_ms) // 2


def batch_so_far(batch: Batch, job: str, partition: int, progress: Progress | None) -> BatchProgress:
    """Return the rows of a batch that a partition holds: none, some to resume after, or all.

    The function never skips a batch silently. ``progress`` is the ledger entry of the job in the partition.

    Raises:
        CheckpointMismatchError: The entry is of a later batch, or of an earlier incomplete batch.
        JobMismatchError: Another streaming query uses the job name.
    """
    new = BatchProgress(batch.query, batch.id, rows=0, digest=joined_digest(), complete=False)
    held = None if progress is None else progress.batch
    if held is None:
        return new  # no entry, or the start of a stream
    if held.query != batch.query:
        raise JobMismatchError(
            f"partition {partition}: job {job!r} belongs to streaming query {held.query}, whose batch {held.id} is "
            f"in the log, and now query {batch.query} writes batch {batch.id} under this name. Nothing of it was "
            f"appended there. If two queries have one job name, give each its own. If the checkpoint was deleted or "
            f"replaced, restore it. Or give the query another job name, and start its source after the rows that the "
            f"log has. Otherwise it appends these rows again.",
            partition=partition,
            job=job,
        )
    if held.id > batch.id:
        raise CheckpointMismatchError(
            f"partition {partition}: the log holds batch {held.id} of job {job!r}, and the query now writes batch "
            f"{batch.id}: its checkpoint is older than the log, or was reset. Nothing of the batch was appended "
            f"there. The batch is not skipped, because its rows may be others than before. Restore the newest "
            f"checkpoint. Or give the query another job name, and start its source after the rows that the log has.",
            partition=partition,
            job=job,
        )
    if held.id < batch.id and not held.complete:
        raise CheckpointMismatchError(
            f"partition {partition}: the log holds {held.rows} rows of batch {held.id} of job {job!r}, and lacks the "
            f"others, but the query already writes batch {batch.id}. Nothing of that was appended there. Restore "
            f"the checkpoint whose next batch is {held.id}, so that the query completes it first.",
            partition=partition,
            job=job,
        )
    return held if held.id == batch.id else new


def missing_rows(records: pa.Table, newest: pa.Table, existing: BatchProgress) -> pa.Table | None:
    """Return the rows of a batch that the log does not have, in their order.

    A timestamp of a log record is ignored if the row has none, because the log may have set it. The result is None if
    the log does not have ``existing.rows`` rows of the batch, or they cannot be distinguished from records of other
    writers.

    Args:
        records: All rows of the batch for a partition, in `RECORDS`.
        newest: The records of the partition from ``uncertain_from`` to the newest row of the batch, in `RECORDS`.
            They may include records of other writers.
        existing: The ledger entry of the batch.
    """
    # If no other writer appended between them, the rows of the batch are the newest records.
    for candidates in (newest.slice(max(0, newest.num_rows - existing.rows)), newest):
        missing = _without(records, candidates, existing)
        if missing is not None:
            return missing
    return None


def _without(records: pa.Table, candidates: pa.Table, existing: BatchProgress) -> pa.Table | None:
    digests = _digests(records)
    unmatched = Counter(digests)
    matched: Counter[bytes] = Counter()
    column = RECORDS.get_field_index("timestamp")
    no_times = pa.nulls(candidates.num_rows, RECORDS.field(column).type)
    untimed = candidates.set_column(column, RECORDS.field(column), no_times)
    for exact, without_time in zip(_digests(candidates), _digests(untimed), strict=True):
        digest = exact if unmatched[exact] else without_time
        if unmatched[digest]:
            unmatched[digest] -= 1
            matched[digest] += 1
    if (matched.total(), joined_digest(*(each.hex() for each in matched.elements()))) != (
        existing.rows,
        existing.digest,
    ):
        return None
    missing = []
    for number, digest in enumerate(digests):
        if matched[digest]:
            matched[digest] -= 1
        else:
            missing.append(number)
    return records.take(pa.array(missing, pa.int64()))


def _digests(records: pa.Table) -> list[bytes]:
    return [digest for batch in records.to_batches() for digest in row_digests(batch)]


def batch_text(batch: Batch, ledger: Iterable[Progress | None] | None) -> str:
    """Return a sentence that reports the rows in the log of a rejected batch, from the ledger of all partitions."""
    again = "With another job name or checkpoint, the query appends them again unless its source starts after them."
    if ledger is None:
        return f"It is not known which rows of batch {batch.id} were appended. {again}"
    held = [
        f"{each.batch.rows} rows in partition {each.partition}"
        for each in ledger
        if each is not None and each.batch is not None and _is_of(batch, each.batch)
    ]
    if not held:
        return f"No row of batch {batch.id} was appended now."
    return f"Of batch {batch.id} the log holds {', '.join(held)}, and these stay. {again}"


def begun_after(batch: Batch, plan: Plan, ledger: Iterable[Progress | None]) -> int:
    """Return the latest known time before the first append of a batch, in milliseconds since 1970.

    A query starts a batch after it has committed the previous batch in all partitions. So the batch is newer than the
    plan and than every entry of an earlier batch. If the batch has replaced such an entry, its own entry keeps that
    time.
    """
    known = [plan.pinned_at_ms]
    for progress in ledger:
        if progress is None:
            continue
        held = progress.batch
        if _is_earlier(batch, progress):
            known.append(progress.committed_at_ms)
        elif held and _is_of(batch, held):
            known.append(held.begun_after_ms)
    return max(known)


def forgot_none(
    batch: Batch, plan: Plan, ledger: Sequence[Progress | None], now_ms: int, unexpired_ms: Callable[[], int]
) -> bool:
    """Return whether a partition without a ledger entry certainly has no rows of a batch.

    A missing entry proves this unless the entry of the batch may have expired. It cannot have expired in two cases:

    - Any partition still has an entry of an earlier batch, or of the start of the stream. Such an entry is older and
      expires first.
    - The lower bound of the batch's start time (see `begun_after`) is less than ``unexpired_ms`` ago.

    The commit time of an entry of the same batch proves nothing, because an earlier attempt may be much older.
    ``ledger`` has the entries of all partitions.
    """
    if any(progress is not None and _is_earlier(batch, progress) for progress in ledger):
        return True
    return now_ms - begun_after(batch, plan, ledger) < unexpired_ms()


def _is_of(batch: Batch, held: BatchProgress) -> bool:
    return (held.query, held.id) == (batch.query, batch.id)


def _is_earlier(batch: Batch, progress: Progress) -> bool:
    held = progress.batch
    return held is None or (held.query == batch.query and held.id < batch.id)


def in_order(rows: pa.Table, order_by: Sequence[str] | None) -> pa.Table:
    """Return the records of a batch in the order in which they are appended, without the column `OFFSET`.

    Rows of a log or topic have that column. All rows of a key are from one partition of it, so offsets are the order
    of each key. Spark may have moved blocks of them.

    Args:
        rows: The rows in `RECORDS`, maybe with the column `OFFSET`.
        order_by: The columns to sort by, then by offset, all other `ORDER_COLUMNS` and the digest; nulls are last.
            None to sort by offset only, and empty to keep the order.
    """
    records = rows.select(RECORDS.names)
    if order_by is None:
        return records if len(records.columns) == len(rows.columns) else records.take(pc.sort_indices(rows[OFFSET]))
    if not order_by:
        return records
    keys = [*order_by, *(name for name in (OFFSET, *ORDER_COLUMNS) if name in rows.column_names)]
    sortable = rows.select([*dict.fromkeys(keys)]).append_column("digest", pa.array(_digests(records), pa.binary()))
    return records.take(pc.sort_indices(sortable, [(name, "ascending") for name in sortable.column_names]))
