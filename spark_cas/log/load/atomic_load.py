"""Atomic loads and micro-batches: runs append to a commit group (`spark_cas.core.group`) and then commit it.

A run resumes in the group of the previous run. If that group was aborted, the run starts a new one. If one
process must append and commit, as on Kafka, a single task does both, in one transaction.
"""

import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Self

import pyarrow as pa

from spark_cas.core.chunks import Chunk
from spark_cas.core.claim import Claim
from spark_cas.core.digest import RunningDigest
from spark_cas.core.errors import FencedError, InputChangedError, OptionError, TransactionEndedError
from spark_cas.core.group import ABORTED, GroupOutcome, batch_of, group_name, outcome_from_json
from spark_cas.core.outcome import raise_for_outcome
from spark_cas.core.plan import PartitionResult, Plan, Progress
from spark_cas.core.recorded_fields import to_json
from spark_cas.core.records import RECORDS
from spark_cas.log import clock, timing
from spark_cas.log.backend import Backend
from spark_cas.log.deadline import ConfirmingRead, Wait
from spark_cas.log.load.after_expansion import plan_now
from spark_cas.log.load.require_expected import require_expected_still
from spark_cas.log.timing import LONGEST_TRANSACTION_MS


def refuse_by_key(plan: Plan) -> None:
    """Raise OptionError for a load that cannot be atomic."""
    if plan.whole and plan.by_key and not plan.round_of:
        raise OptionError(
            "options atomic=load and compare=key cannot be combined: the load appends a partition in several chunks, "
            "and other writers may append before each of them. Nothing was appended. Remove one of the options, or "
            "use append_if_unchanged, which supports both."
        )


def with_group(log: Backend, plan: Plan, batch_id: int | None = None) -> Plan:
    """Return the plan of a run with its commit group; unchanged if the run is not atomic.

    A stream has one group per batch, and no group without a ``batch_id``. Raises StorageError, FormatError.
    """
    if not plan.whole or plan.stream != (batch_id is not None):
        return plan
    number = 0
    while _outcome(log, group := group_name(plan.job, plan.pinned_by, number, batch_id)) == ABORTED:
        number += 1
    return replace(plan, group=group, decide_by_ms=clock.now_ms() + LONGEST_TRANSACTION_MS)


def decide_group(log: Backend, plan: Plan, results: Sequence[PartitionResult]) -> None:
    """Make all rows of a run visible atomically, if the named partitions without rows match at that moment.

    A stream has no expected offsets in partitions without rows. The function is idempotent. ``results`` are those of
    all partitions with rows.

    Raises:
        ConflictError: A named partition has records at or after its expected offset.
        TruncatedError: A named partition ends before its expected offset.
    """
    if not plan.stream and not is_committed(log, plan):
        loaded = {each.progress.partition for each in results}
        others = [partition for partition in range(plan.partitions) if partition not in loaded]
        require_expected_still(log, plan, others, sum(each.progress.rows for each in results))
        hold_named(log, plan, others)
    commit_group(log, plan, results)


def is_committed(log: Backend, plan: Plan) -> bool:
    """Return whether all rows of a run are visible. Raises StorageError, FormatError."""
    outcome = _outcome(log, plan.group) if plan.group else None
    return outcome is not None and outcome.committed


def hold_named(log: Backend, plan: Plan, without_rows: Collection[int]) -> None:
    """Keep the end offset of each named partition without rows until the group is committed or aborted.

    Raises the errors of claims and appends.
    """
    # A chunk without records keeps the end offset of a partition.
    empty, digest = RECORDS.empty_table(), RunningDigest().hexdigest()
    placeholder = Chunk(empty, 0, digest, complete=False, task=plan.job, time_ms=clock.now_ms())
    for partition in plan.named:
        claim = log.claim(partition, plan) if partition in without_rows else None
        if isinstance(claim, Claim) and claim.expected_offset is None:
            continue
        outcome = log.append(claim, placeholder) if isinstance(claim, Claim) else claim
        if outcome is not None:
            raise_for_outcome(outcome, partition)


def commit_group(log: Backend, plan: Plan, results: Iterable[PartitionResult]) -> None:
    """Make all rows of a run visible atomically.

    Raises:
        FencedError: Another process aborted the group. No row of it ever becomes visible.
        InputChangedError: Another run committed other rows.
        StorageError: The outcome cannot be recorded.
        FormatError: The recorded outcome has an unknown format.
    """
    ends = tuple(sorted((each.progress.partition, each.progress.end_offset) for each in results))
    held = _decide(log, plan.group, GroupOutcome(committed=True, ends=ends))
    if not held.committed:
        raise aborted(plan)
    if held.ends != ends:
        raise InputChangedError(
            f"{_reported(plan)} was committed by another run, whose rows are at other offsets than those of this "
            f"run. Only the rows of the other run are visible. Other rows need another job name."
        )


def aborted(plan: Plan) -> FencedError:
    """Return the error of a run whose group another process aborted."""
    return FencedError(
        f"{_reported(plan)} was aborted before it was complete, by a user, by an expansion, by a load that detected "
        f"no activity of it, or because it blocked other writers for more than {LONGEST_TRANSACTION_MS // 60_000} "
        f"minutes. None of its rows is visible. Run the same job again, which loads all rows."
    )


def _reported(plan: Plan) -> str:
    batch_id = batch_of(plan.group)
    job = f"job {plan.display_name!r}"
    return job if batch_id is None else f"batch {batch_id} of {job}"


def abort_group(log: Backend, plan: Plan) -> bool:
    """Abort the group of a run, or the group in which a run would resume. Return False if it is committed."""
    group = plan.group or with_group(log, plan).group
    return not (group and _decide(log, group, ABORTED).committed)


def abort_left(log: Backend, job: str) -> None:
    """Abort the open commit group of an earlier run of a job. Raises StorageError, FormatError."""
    plan = plan_now(log, job)
    if plan is not None:
        abort_group(log, plan)


def undecided_progress(log: Backend, plan: Plan) -> tuple[Progress, ...]:
    """Return the ledger entries of a load whose commit group is open; empty if it has none."""
    group = with_group(log, plan).group
    if not group or _outcome(log, group) is not None:
        return ()
    result = log.progress_of(range(plan.partitions), plan.job, group)
    return tuple(each for each in result if each is not None)


def _outcome(log: Backend, group: str) -> GroupOutcome | None:
    text = log.entry("outcome", group)
    return None if text is None else outcome_from_json(text, group)


def _decide(log: Backend, group: str, outcome: GroupOutcome) -> GroupOutcome:
    return outcome_from_json(log.put_entry("outcome", group, to_json(outcome)), group)


_DOING = "loading as a whole"


def in_one_transaction(
    log: Backend,
    plan: Plan,
    append: Callable[[], tuple[PartitionResult, ...]],
    *,
    fenced_retry_wait_seconds: float,
) -> tuple[PartitionResult, ...]:
    """Append all rows of a plan with a commit group, and make them visible atomically.

    If the transaction ends with a transient failure, the function appends all rows again. It retries until the log's
    retry deadline, counted from the first such failure.

    ``append`` appends the rows, as `append_rows` or `load_batch` does. The function may call it several times, and
    waits ``fenced_retry_wait_seconds`` for another attempt to commit. Raises the errors of ``append`` and
    `decide_group`.
    """
    joined, wait = False, None
    pause = timing.current().group_retry_pause
    while True:
        try:
            results = append()
            decide_group(log, plan, results)
        except TransactionEndedError as error:
            # Start the deadline at the first failure, because a load may take longer than the deadline.
            wait = wait or Wait(log.patience_seconds, _DOING, pause, 10 * pause)
            if not wait.again(error.message):
                raise
        except (FencedError, InputChangedError):
            # Another attempt took over. Do not fence it in turn. After its commit, compare its rows with these, and
            # return its offsets.
            if joined or not _is_committed_soon(log, plan, fenced_retry_wait_seconds):
                raise
            joined = True
        else:
            return results


def _is_committed_soon(log: Backend, plan: Plan, seconds: float) -> bool:
    pause = timing.current().group_retry_pause
    wait = ConfirmingRead(seconds, f"waiting for another run of job {plan.display_name}", pause)
    while not is_committed(log, plan):
        if not wait.again("it is not committed"):
            return False
    return True


class Spool:
    """The rows of a task on local disk, as (partition, rows), in input order. Leaving the context deletes the file.

    Raises:
        OSError: The disk of the folder for temporary files is full.
    """

    def __init__(self, batches: Iterable[tuple[int, pa.RecordBatch]]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="spark-cas-")
        self._file = Path(self._folder.name, "rows.arrow")
        self._partitions: list[int] = []
        self.bytes = 0
        """The size of the rows in memory, which is about their size in requests."""
        try:
            self._write(batches)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __bool__(self) -> bool:
        return bool(self._partitions)

    def __iter__(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        if self._partitions:
            with pa.memory_map(str(self._file)) as source, pa.ipc.open_stream(source) as reader:
                yield from zip(self._partitions, reader, strict=True)

    def close(self) -> None:
        self._folder.cleanup()

    def _write(self, batches: Iterable[tuple[int, pa.RecordBatch]]) -> None:
        rows = iter(batches)
        first = next(rows, None)
        if first is None:
            return
        with pa.OSFile(str(self._file), "wb") as sink, pa.ipc.new_stream(sink, first[1].schema) as writer:
            for partition, records in chain([first], rows):
                writer.write_batch(records)
                self._partitions.append(partition)
                self.bytes += records.nbytes
