"""Plans of jobs: the driver records the first plan permanently, and every re-run uses it."""

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from spark_cas.core.check_name import FRESH_JOB, check_name
from spark_cas.core.errors import (
    ConditionalLogError,
    ConflictError,
    InputChangedError,
    JobMismatchError,
    LayoutChangedError,
    OptionError,
    ProgressLostError,
    StorageError,
    TruncatedError,
)
from spark_cas.core.expansion import require_named_as_now
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.guarantee import REQUIRED
from spark_cas.core.outcome import rows_in_log_text
from spark_cas.core.partitioner import DEFAULT_PARTITIONER, Partitioner, Placement
from spark_cas.core.plan import (
    BY_KEY,
    BY_PARTITION,
    Completion,
    EarlierRows,
    Layout,
    PartitionResult,
    Plan,
    Progress,
    rejoin,
)
from spark_cas.log import clock, timing
from spark_cas.log.backend import Backend
from spark_cas.log.deadline import within
from spark_cas.log.expanding import layout_since, settled_layouts
from spark_cas.log.load.after_expansion import newest_plan, plan_now, plan_of_remaining, require_remaining_of
from spark_cas.log.load.atomic_load import decide_group, is_committed, refuse_by_key, with_group
from spark_cas.log.load.cancelling import is_of_run, rows_since
from spark_cas.log.load.require_expected import (
    mismatch_now,
    require_expected,
    require_expected_again,
    require_expected_still,
    rows_in_ledger_text,
)


def fresh_job_name() -> str:
    """Return a unique name for a job without one. A re-run gets another name, so it cannot resume."""
    return f"{FRESH_JOB}{uuid.uuid4().hex[:12]}"


def pin_plan(
    log: Backend,
    job: str,
    wanted: ExpectedOffsets,
    *,
    stream: bool = False,
    compare: str = BY_PARTITION,
    round_of: str = "",
    any_layout: bool = False,
    earlier: tuple[EarlierRows, ...] = (),
    whole: bool = False,
    input_digest: str = "",
    placement: Placement | None = None,
    topics: tuple[str, ...] = (),
    record: bool = True,
    first: Plan | None = None,
) -> Plan:
    """Return the plan of a job on a log: its first plan if it has one, otherwise a new one, which it records.

    After an expansion it is the plan for the remaining rows, if the input lacks the rows that the job had appended
    before.

    Before it records a plan, and before an incomplete load resumes, the function checks the end offsets of all
    partitions in ``wanted``.

    Args:
        compare: The scope of the expected offsets: the partition or the keys of the rows.
        round_of: The name of the job if it is a call of `append_if_unchanged`; empty for any other job.
        any_layout: Whether to skip the checks for expansions. The caller must name the one partition that it writes,
            and read the existing rows of the job first. The log rejects an append with a plan of an earlier layout.
        earlier: The rows that `earlier_rows` took out of the input.
        whole: Whether the rows of all partitions become visible in one step, that of `complete_job`. The plan then
            has the commit group of this run.
        input_digest: The digest of the bulk load's input list, or the partition of an `append_once`; empty for any
            other write.
        placement: The partitioner of the rows; None if the caller assigned them. The plan records it, because a
            re-run with another one would append some rows twice. If the log has no recorded partitioner and the write
            names one, the first plan records that with the log.
        topics: All topics of a load without the option topic; empty for any other write. The plan records them.
        record: Whether to record a new plan. Otherwise, the function only checks.
        first: The first plan of the job, if the caller has read it. It never changes.

    Raises:
        OptionError: A name or an expected offset is not valid, or the log has another partitioner.
        ConflictError: A partition has records at or after its expected offset. The error lists all mismatches.
        TruncatedError: A partition ends before its expected offset, or the job was planned on another log of this
            name.
        InputChangedError: The job was planned with an input list of another digest.
        JobMismatchError: The job was planned as another kind of write, or with another partitioner.
        LayoutChangedError: The log was expanded after the first plan, and the input is not the remaining rows; or it
            was expanded after the ``wanted`` offsets were read.
        ProgressLostError: The ledger entries have expired, so the remaining rows of the input are not known.
    """
    check_name(job, "the job name")
    first, pinned_by, now_ms = first or log.plan(job), uuid.uuid4().hex, clock.now_ms()
    if first is None:
        settled = settled_layouts(log)
        layout = settled.layout
        if not any_layout:
            require_named_as_now(wanted, settled.expansions, layout.partitions)
        bounds = log.bounds_of(range(layout.partitions), waiting=True)
        ends = tuple(each.end_offset for each in bounds)
        own = Plan(
            job,
            layout.log_id,
            layout.epoch,
            wanted.resolve(ends),
            ends,
            stream=stream,
            pinned_by=pinned_by,
            pinned_at_ms=now_ms,
            compare=compare,
            round_of=round_of,
            named=() if compare == BY_KEY else wanted.named,
            whole=whole,
            input=input_digest,
            partitioner="" if placement is None else placement.partitioner,
            topics=topics,
        )
        refuse_by_key(own)
        require_partitioner(settled.partitioner, placement)
        _require_input_of(own, earlier)
        if not any_layout:
            try:
                require_expected(log, own, bounds)
            except (ConflictError, TruncatedError):
                # Another run of the job may have planned it meanwhile, and the new records may be its own.
                first = log.plan(job)
                if first is None:
                    raise
        first = first or (_recorded(log, own, None if settled.partitioner else placement) if record else own)
        if first == own:
            return with_group(log, own)
    else:
        layout = layout_since(log, first.layout_epoch)
    partitioner = None if placement is None else placement.partitioner
    require_same_kind(
        log, first, stream=stream, compare=compare, round_of=round_of, whole=whole, partitioner=partitioner
    )
    require_same_log(job, first.log_id, layout)
    require_same_input(first, input_digest)
    plan = first
    if first.layout_epoch != layout.epoch and not any_layout:
        plan = newest_plan(log, first)
        if plan.layout_epoch != layout.epoch:
            if log.completion(plan.job) is not None:
                raise LayoutChangedError(
                    f"job {plan.display_name!r} is complete, and its rows are in the log. Partitions were added "
                    f"since, so these rows, which were routed for the new ones, cannot be compared with them. "
                    f"Nothing was appended; there is nothing to do, unless there are other rows: write those, and "
                    f"none that the job wrote, under another job name.",
                    job=plan.display_name,
                    resumable=False,
                )
            require_named_as_now(wanted, settled_layouts(log).expansions, layout.partitions)
            remaining = plan_of_remaining(log, layout, plan, job, earlier)
            plan = (
                log.record_plan(replace(remaining, pinned_by=pinned_by, pinned_at_ms=now_ms)) if record else remaining
            )
            require_remaining_of(job, plan)
    _require_input_of(plan, earlier)
    plan = with_group(log, plan)
    again = _rejoined(log, plan, wanted, looking=not any_layout and not is_committed(log, plan))
    return replace(again, rejoined=plan.pinned_by != pinned_by)


def _recorded(log: Backend, own: Plan, placement: Placement | None) -> Plan:
    """Record a plan, and the partitioner that the write names, if any. Return the first plan of the job."""
    if placement is not None and placement.named:
        require_partitioner(log.record_partitioner(placement.partitioner), placement)
    return log.record_plan(own)


def _rejoined(log: Backend, plan: Plan, wanted: ExpectedOffsets, *, looking: bool) -> Plan:
    """Return the plan of a known job with the ``wanted`` offsets, and check the log if ``looking``."""
    progress: tuple[Progress | None, ...] = (None,) * plan.partitions
    visible = progress
    # Read the ledger only for explicit expected offsets, because a chunk of a crashed run may block the read. A
    # stream has no expected offsets in partitions without rows.
    if wanted.offsets or (plan.named and not plan.stream):
        progress = visible = log.progress_of(range(plan.partitions), plan.job, proven=True)
        if plan.group:
            progress = log.progress_of(range(plan.partitions), plan.job, plan.group)
    try:
        again = rejoin(plan, wanted, progress)
    except JobMismatchError as other:
        raise other.with_message(f"{other.message} {_rows_in_log(log, plan.display_name)}") from None
    # A stream makes a plan for each batch, and does not depend on partitions without rows.
    if looking and not again.stream:
        require_expected_again(log, again, visible)
    return again


def recorded_partitioner(log: Backend, idempotence: str) -> Partitioner | None:
    """Return the recorded partitioner of a log; None if it has none. Raises LogNotFoundError, FormatError.

    Only a write that requires exactly once needs the permission to read the registry. Without that permission it gets
    a StorageError, and other writes get None.
    """
    try:
        return log.layouts().partitioner
    except StorageError:
        if idempotence == REQUIRED:
            raise
        return None


def placement_on(recorded: Partitioner | None, named: Partitioner | None) -> Placement:
    """Return the partitioner of a write: that of the option, the record of the log, or the default.

    Raises OptionError if the option and the record differ.
    """
    placement = Placement(named or recorded or DEFAULT_PARTITIONER, named=named is not None)
    require_partitioner(recorded, placement)
    return placement


def require_partitioner(recorded: Partitioner | None, placement: Placement | None) -> None:
    """Raise OptionError if the partitioner of the rows differs from the recorded one of the log."""
    if recorded is None or placement is None or placement.partitioner == recorded:
        return
    raise OptionError(
        f"the rows are placed by partitioner={placement.partitioner}, but the log has partitioner={recorded}, so "
        f"their keys would get into other partitions than the existing records of these keys. Nothing was appended. "
        f"Leave the option partitioner out, or set it to {recorded}, in the options of route and of the write."
    )


def require_same_log(job: str, log_id: str, layout: Layout) -> None:
    """Raise TruncatedError if a job was planned on another log that had the same name."""
    if log_id != layout.log_id:
        raise TruncatedError(
            f"job {job!r} was planned on another log that had this name; this one was created later, and no row of "
            f"the job is in it. Nothing was appended. Use another job name if the rows are to go into the new log.",
            job=job,
        )


def require_same_input(plan: Plan, input_digest: str, difference: str = "its files or arguments differ") -> None:
    """Raise InputChangedError if a bulk load started with an input list of another digest.

    A write without a list, such as that of a DataFrame, is compared by its rows alone.
    """
    if plan.input and input_digest and plan.input != input_digest:
        raise InputChangedError(
            f"job {plan.display_name!r} began with another input: {difference}. This run appended nothing. Run the "
            f"job with the input that it began with, or load other rows under another job name.",
            job=plan.display_name,
        )


def require_same_kind(
    log: Backend,
    first: Plan,
    *,
    stream: bool,
    compare: str,
    round_of: str,
    whole: bool,
    partitioner: Partitioner | None,
) -> None:
    """Raise JobMismatchError unless a re-run of a job is the same kind of write as its first plan.

    The arguments describe the re-run, as in `pin_plan`. The partitioner is None if the caller assigned the rows.
    """
    result = None
    planned = first.partitioner or DEFAULT_PARTITIONER
    if first.stream != stream:
        was, is_ = ("a stream", "a load") if first.stream else ("a load", "a stream")
        result = f"is {was}, and its name was now given to {is_}"
    elif first.compare != compare:
        result = (
            f"was planned with compare={first.compare}, and its name was now given to a write with compare={compare}"
        )
    elif first.whole != whole:
        was, is_ = ("as a whole", "partition by partition")[:: 1 if first.whole else -1]
        result = f"was planned to be visible {was}, and its name was now given to a write {is_}"
    elif partitioner not in (None, planned):
        result = f"was planned with partitioner={planned}, and its name was now given to rows of {partitioner}"
    elif first.round_of != round_of:
        was, is_ = (
            "a call of append_if_unchanged" if each else "a write of its own" for each in (first.round_of, round_of)
        )
        result = f"is {was}, and its name was now given to {is_}"
    elif first.continues:
        result = (
            f"is the rest of job {first.continues!r}, which is to be run again for it, and its name was now given "
            f"to a write of its own"
        )
    if result is not None:
        raise JobMismatchError(
            f"job {first.job!r} {result}. Nothing was appended. Run it again as it was planned; rows that are not "
            f"its own need another job name. {_rows_in_log(log, first.job)}",
            job=first.job,
        )


def _require_input_of(plan: Plan, earlier: tuple[EarlierRows, ...]) -> None:
    """Raise LayoutChangedError unless the input lacks exactly the rows that the load appended under earlier plans."""
    if plan.earlier == earlier:
        return
    used = sum(sum(each.rows) for each in earlier)
    raise LayoutChangedError(
        f"{used} rows were taken out of the input because they are in the log, but job "
        f"{plan.display_name!r} had appended {plan.earlier_rows} before partitions were added. Nothing was "
        f"appended now. Call spark_cas.route again, with the options of this write, its job among them.",
        job=plan.display_name,
        resumable=bool(earlier),
    )


def job_results(log: Backend, job: str, *, proven: bool = False) -> tuple[PartitionResult, ...]:
    """Return the result of a job in each partition that holds its rows.

    The registry has the results of a complete job permanently, and the ledger has the progress of any other. If
    another run appended other rows beside a complete job, only the error of that run reports them. ``proven`` is that
    of `Log.progress_of`.
    """
    completion = log.completion(job)
    if completion is not None:
        return completion.partitions
    result = log.progress_of(range(log.layout().partitions), job, proven=proven)
    return tuple(PartitionResult(progress, None, None) for progress in result if progress is not None)


def job_progress(log: Backend, job: str, *, proven: bool = False) -> tuple[Progress, ...]:
    """Return the progress of a job in each partition that holds its rows."""
    return tuple(result.progress for result in job_results(log, job, proven=proven))


def complete_job(log: Backend, plan: Plan, results: tuple[PartitionResult, ...]) -> Completion:
    """Record that a job with these partitions is complete. Return the recorded completion, maybe of another run.

    Raises:
        InputChangedError: The log holds rows of the job in a partition for which the input has none, or another run
            completed the job with other rows.
        ConditionalLogError: The errors of `decide_group` for an atomic load, else of `require_expected_still`.
    """
    loaded = {result.progress.partition for result in results}
    others = [partition for partition in range(plan.partitions) if partition not in loaded]
    # If the plan is new, only attempts of this run can have appended, and they have the same input.
    for progress in log.progress_of(others, plan.job, plan.group, proven=plan.rejoined):
        if progress is not None and progress.rows:
            raise InputChangedError(
                f"partition {progress.partition} holds {progress.rows} rows of job {plan.display_name!r}, but the "
                f"input now has none for it. {_on_with_other_rows(log, plan, results)}",
                partition=progress.partition,
                job=plan.display_name,
            )
    if plan.whole:
        decide_group(log, plan, results)
    else:
        require_expected_still(log, plan, others, sum(result.progress.rows for result in results))
    # A task may not know that it has all of its rows (`append_rows`). When all tasks have ended, they have.
    done = [replace(each, progress=replace(each.progress, complete=True)) for each in results]
    own = Completion(
        job=plan.job,
        log_id=plan.log_id,
        layout_epoch=plan.layout_epoch,
        partitions=tuple(sorted(done, key=lambda result: result.progress.partition)),
        completed_at_ms=clock.now_ms(),
    )
    recorded = log.record_completion(own)
    rows, own_rows = (
        [(each.progress.partition, each.progress.rows, each.progress.digest) for each in completion.partitions]
        for completion in (recorded, own)
    )
    if rows != own_rows:
        raise InputChangedError(
            f"job {plan.display_name!r} was completed by another run with other rows than this one has: "
            f"{recorded.rows}. {_on_with_other_rows(log, plan, results)}",
            job=plan.display_name,
        )
    return recorded


def _on_with_other_rows(log: Backend, plan: Plan, results: tuple[PartitionResult, ...]) -> str:
    """Return the fix, and the rows in the log, for a job whose runs had different rows."""
    new = [each.progress.partition for each in results if each.progress.rows > (each.resumed_rows or 0)]
    if plan.whole or not new:
        onward = (
            "This attempt appended nothing. Run the job with its first input: it resumes after its rows. Other rows "
            "need another job name."
        )
    else:
        onward = (
            f"Rows of this run were appended before this check, in partitions {', '.join(map(str, new))}. Read the "
            f"log, and write only the rows that it does not have, under another job name."
        )
    return f"{onward} {_rows_in_log(log, plan.display_name)}"


def refused_as_a_whole(
    log: Backend, plan: Plan, refusal: ConditionalLogError, read_partitions: Iterable[int]
) -> ConditionalLogError:
    """Return the error of a job after rejected tasks: the rows in the log, and all offsets that a re-run needs.

    ``refusal`` is the error of one of the tasks. They read rows of ``read_partitions``.
    """
    message = refusal.message
    if isinstance(refusal, ProgressLostError):
        return refusal.with_message(f"{message} {rows_in_log_text(plan.display_name, None)}")
    if isinstance(refusal, ConflictError):
        mismatches, whole = mismatch_now(log, plan, read_partitions)
        # A conflict of a row or key has no next offsets, because no expected offset of a partition resolves it.
        if whole is not None and refusal.next_offsets is None:
            return refusal.with_message(f"{message} And {whole.message}", next_offsets=whole.next_offsets)
        if whole is not None and not mismatches.keys().isdisjoint(refusal.next_offsets or ()):
            return whole
    return refusal.with_message(f"{message} {_rows_in_log(log, plan.display_name)}", next_offsets=None)


def rows_before(log: Backend, plan: Plan) -> tuple[int, ...] | None:
    """Return the rows of a job in each partition before a run; empty if there are none.

    The result is None if the ledger does not return them within `Timing.best_effort`, for example because a crashed
    run left a transaction open. Only the error of a failed run uses them. Raises LogNotFoundError, ChunkDamagedError,
    FormatError.
    """
    if not plan.rejoined or plan.whole:
        return ()
    ledger = ledger_in_time(log, plan)
    return tuple(each.rows if each else 0 for each in ledger) if len(ledger) == plan.partitions else None


def ledger_in_time(log: Backend, plan: Plan) -> tuple[Progress | None, ...]:
    """Return the ledger entries of a job in the first partitions, as many as it reads within `Timing.best_effort`.

    The result is empty if the store or brokers do not answer in time.
    """
    ledger: list[Progress | None] = []
    seconds = timing.current().best_effort
    ends = time.monotonic() + seconds
    step = plan.partitions if log.ledger_at_once else 1
    try:
        with within(seconds):
            while len(ledger) < plan.partitions and time.monotonic() < ends:
                ledger += log.progress_of(range(len(ledger), len(ledger) + step), plan.job)
    except StorageError:
        return ()
    return tuple(ledger)


def rows_of_run(
    log: Backend, plan: Plan, run: str, before: Sequence[int] | None, reported: Mapping[int, int | None]
) -> dict[int, int] | None:
    """Return the visible rows that a run appended, by partition; None if they are not known.

    ``before`` is the result of `rows_before`, and ``reported`` has the rows that the tasks report. The ledger has the
    rows of crashed tasks, if no other run appended after them. Raises LogError.
    """
    # Chunks of an atomic load are visible only after its commit, which the tasks do not know.
    rows: dict[int, int | None] = {} if plan.whole else dict(reported)
    others = [partition for partition in range(plan.partitions) if partition not in rows]
    for progress in log.progress_of(others, plan.job):
        if progress is not None and is_of_run(progress, run):
            rows[progress.partition] = rows_since(progress, before)
    known = {partition: count for partition, count in rows.items() if count is not None}
    return known if len(known) == len(rows) else None


def _rows_in_log(log: Backend, job: str) -> str:
    try:
        plan = plan_now(log, job)
        if plan is None:
            return rows_in_log_text(job, None)
        done = log.completion(plan.job)
        if done is not None:
            return rows_in_log_text(job, plan.earlier_rows + _rows_beside(log, done))
        return rows_in_ledger_text(log, plan, sum(each.rows for each in job_progress(log, plan.job)))
    except ConditionalLogError:
        return rows_in_log_text(job, None)


def _rows_beside(log: Backend, done: Completion) -> int:
    """Return the number of rows of a complete job in the log, including those that another run appended beside it."""
    held = {each.progress.partition: each.progress.rows for each in done.partitions}
    for result in log.progress_of(range(log.layout().partitions), done.job):
        if result is not None:
            held[result.partition] = max(result.rows, held.get(result.partition, 0))
    return sum(held.values())
