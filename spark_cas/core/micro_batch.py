"""A micro-batch of a streaming query, as the ledger of a partition sees it: new, begun, complete, or not to be."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from spark_cas.core.errors import CheckpointMismatchError, JobMismatchError
from spark_cas.core.multiset_digest import joined_digest, row_digests
from spark_cas.core.plan import BatchProgress, Plan, Progress

ORDER_COLUMNS = ("key", "timestamp", "value")
"""The columns that an order can go by. Between rows that are the same in all of them, their digests decide."""

KEPT_MS = 7 * 24 * 3_600_000 // 2
"""An entry that is younger has surely not expired: half of Kafka's offsets.retention.minutes, for clocks that differ.

A broker that keeps entries for less than its default of 7 days is told of by preflight.
"""


@dataclass(frozen=True, slots=True)
class Batch:
    """The identity of a micro-batch within a job."""

    query: str
    """Id of the streaming query, which lives in its checkpoint."""
    id: int
    """Number of the micro-batch, counted by the query from 0."""


def batch_so_far(batch: Batch, job: str, partition: int, progress: Progress | None) -> BatchProgress:
    """What a partition, whose ledger entry is given, holds of a batch: nothing, some rows to resume at, or all.

    A batch is never passed over in silence. Raises CheckpointMismatchError when the ledger knows of a later batch,
    or of an earlier one that is not complete; JobMismatchError when the job is another query's.
    """
    new = BatchProgress(batch.query, batch.id, rows=0, digest=joined_digest(), complete=False)
    if progress is None:
        return new
    held = progress.batch
    if held is None:
        return new  # no more than the mark of a stream that was begun
    if held.query != batch.query:
        raise JobMismatchError(
            f"partition {partition}: job {job!r} belongs to streaming query {held.query}, whose batch {held.id} is "
            f"in the log, and now query {batch.query} writes batch {batch.id} under this name. Nothing of it was "
            f"appended there. Either two queries have one job name: give each its own. Or the checkpoint was deleted "
            f"or replaced: restore it; or, to begin anew, give the query another job name and start its source "
            f"behind what the log already holds, else those rows are appended again."
        )
    if held.id > batch.id:
        raise CheckpointMismatchError(
            f"partition {partition}: the log holds batch {held.id} of job {job!r}, and the query now writes batch "
            f"{batch.id}: its checkpoint is older than the log, or was reset. Nothing of the batch was appended "
            f"there, and none is passed over, because its rows may not be those of the first time. Restore the "
            f"newest checkpoint; or give the query another job name and start its source behind what the log already "
            f"holds."
        )
    if held.id < batch.id and not held.complete:
        raise CheckpointMismatchError(
            f"partition {partition}: the log holds {held.rows} rows of batch {held.id} of job {job!r} and misses the "
            f"rest, but the query already writes batch {batch.id}. Nothing of that was appended there. Restore "
            f"the checkpoint whose next batch is {held.id}, so that it is completed first."
        )
    return held if held.id == batch.id else new


def told_batch(batch: Batch, ledger: Iterable[Progress | None] | None) -> str:
    """A sentence on what is in the log of a batch that was refused in one partition, by the entries of all of them.

    None: they are not known.
    """
    again = "another job name, or another checkpoint, appends them again unless the source starts behind them"
    if ledger is None:
        return f"Which rows of batch {batch.id} were appended all the same is not known now; {again}."
    held = [
        f"{each.batch.rows} rows in partition {each.partition}"
        for each in ledger
        if each is not None and each.batch is not None and _is_of(batch, each.batch)
    ]
    if not held:
        return f"No row of batch {batch.id} was appended now."
    return f"Of batch {batch.id} the log holds {', '.join(held)}, and these stay; {again}."


def begun_after(batch: Batch, plan: Plan, ledger: Iterable[Progress | None]) -> int:
    """The latest time, milliseconds since 1970, that no row of a batch is older than, as far as this can be known.

    A query begins a batch when the one before it is committed everywhere: after the plan was made, and after any
    entry of an earlier batch. Where the batch has taken the place of such an entry, it says when that was made.
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


def forgot_none(batch: Batch, plan: Plan, ledger: Sequence[Progress | None], now_ms: int) -> bool:
    """Whether a partition without a ledger entry surely holds no row of a batch, by the entries of all partitions.

    An entry of this very batch would have to be there, unless it was made and has expired. It has not:

    - while an entry of an earlier batch is there, or the mark of the stream's begin: it is older, and expires first;
    - while the batch cannot be older than ``KEPT_MS``, because what it came after (`begun_after`) is not.

    When that entry itself was made proves nothing: other attempts at the batch may have been long before it.
    """
    if any(progress is not None and _is_earlier(batch, progress) for progress in ledger):
        return True
    return now_ms - begun_after(batch, plan, ledger) < KEPT_MS


def _is_of(batch: Batch, held: BatchProgress) -> bool:
    return (held.query, held.id) == (batch.query, batch.id)


def _is_earlier(batch: Batch, progress: Progress) -> bool:
    held = progress.batch
    return held is None or (held.query == batch.query and held.id < batch.id)


def in_order(records: pa.Table, order_by: Sequence[str]) -> pa.Table:
    """Records in ``RECORDS`` in the one order that these columns, and then all others, give them; nulls last."""
    keys = [*order_by, *(name for name in ORDER_COLUMNS if name not in order_by)]
    digests = [digest for batch in records.to_batches() for digest in row_digests(batch)]
    sortable = records.select(keys).append_column("digest", pa.array(digests, pa.binary()))
    return records.take(pc.sort_indices(sortable, [(name, "ascending") for name in sortable.column_names]))
