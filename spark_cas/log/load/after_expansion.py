"""Resume a load after an expansion (KIP-253): keep the appended rows, and plan the remaining rows for the new layout.

The expansion fences all claims of the earlier plan. So the rows of that plan are final: a prefix of the input of each
of its partitions. `spark_cas.route` routes the remaining rows of the same input for the new layout. The plan for
these rows has its own name, and expects the offsets at which the earlier plan ended.
"""

from contextlib import suppress

from spark_cas.core.check_name import LONGEST_NAME
from spark_cas.core.errors import ConditionalLogError, JobMismatchError, LayoutChangedError
from spark_cas.core.expansion import Expansion
from spark_cas.core.offsets import OffsetRange
from spark_cas.core.outcome import AFTER_EXPANSION, ProgressLost, error_of
from spark_cas.core.plan import EarlierRows, Layout, Plan, Progress, is_complete, resume_offset
from spark_cas.log import clock
from spark_cas.log.backend import Backend


def plan_now(log: Backend, job: str) -> Plan | None:
    """Return the current plan of a load, which has another name after an expansion; None if the load has no plan.

    Raises as `newest_plan`.
    """
    first = log.plan(job)
    return None if first is None else newest_plan(log, first)


def newest_plan(log: Backend, first: Plan) -> Plan:
    """Return the current plan of a load: the first one, or that of its newest run after an expansion.

    Raises:
        JobMismatchError: Another job has the name of that plan.
    """
    newest = first
    for expansion in log.layouts().expansions:
        name = _name_at(first.job, expansion.epoch)
        plan = log.plan(name) if expansion.epoch > first.layout_epoch and len(name) <= LONGEST_NAME else None
        if plan is not None:
            require_remaining_of(first.job, plan)
            newest = plan
    return newest


def earlier_rows(log: Backend, job: str) -> tuple[EarlierRows, ...]:
    """Return the rows that a load appended before an expansion, which `route` must remove from its input.

    The result is empty for a load that is new, complete, or first planned for the current layout. It is also empty
    for a load that cannot resume, which planning rejects.
    """
    first = log.plan(job)
    if first is None:
        return ()
    layout, newest = log.layout(), newest_plan(log, first)
    if newest.layout_epoch == layout.epoch:
        return newest.earlier
    if not _can_go_on(log, newest) or log.completion(newest.job) is not None:
        return ()
    return _with_rows_of(newest, log.progress_of(range(newest.partitions), newest.job, proven=True))


def plan_of_remaining(log: Backend, layout: Layout, newest: Plan, job: str, earlier: tuple[EarlierRows, ...]) -> Plan:
    """Return the unrecorded plan for the remaining rows of a load under the current layout.

    An earlier partition is expected at the offset at which the earlier plan ended. An added partition is expected at
    offset 0, unless the earlier plan had no expected offsets.

    ``newest`` is the newest plan of the load, and ``earlier`` the rows that `route` removed from the input.

    Raises:
        LayoutChangedError: The load cannot resume, or not with this input.
        ProgressLostError: The ledger entry has expired, so the appended rows are not known.
    """
    result, can_resume = log.progress_of(range(newest.partitions), newest.job, proven=True), _can_go_on(log, newest)
    if not can_resume or earlier != _with_rows_of(newest, result):
        raise LayoutChangedError(
            f"job {job!r} was planned for layout epoch {newest.layout_epoch}, but the log now has epoch "
            f"{layout.epoch}: partitions were added. Nothing was appended now, and visible rows of the job stay. "
            f"{AFTER_EXPANSION}",
            job=job,
            # If no rows are removed, `route` cannot reach the log, or it did not place the rows.
            resumable=can_resume and bool(earlier),
        )
    # An expected offset reveals expired rows only in their own partition, but keys move to added partitions.
    expired = may_have_expired(log, newest)
    expansion = _next_expansion(log, newest)
    ended = newest.end_offsets if expansion is None else expansion.thresholds
    for partition, progress in enumerate(result):
        if progress is None and (expired or resume_offset(newest, partition, None) is None):
            require_never_begun(log, newest, partition, ended[partition])
    added = layout.partitions - newest.partitions
    ends = log.bounds_of(range(layout.partitions), waiting=True)
    return Plan(
        job=_name_at(job, layout.epoch),
        log_id=layout.log_id,
        layout_epoch=layout.epoch,
        expected_offsets=(
            *(resume_offset(newest, partition, progress) for partition, progress in enumerate(result)),
            *((0 if newest.checked else None,) * added),
        ),
        end_offsets=tuple(each.end_offset for each in ends),
        continues=job,
        earlier=earlier,
        # A complete partition has no expected offset, because other writers may have appended there since.
        named=tuple(each for each in newest.named if not is_complete(result[each])),
        whole=newest.whole,
        input=newest.input,
        partitioner=newest.partitioner,
        topics=newest.topics,
    )


def with_resumable(error: ConditionalLogError, plan: Plan, log: Backend | None = None) -> ConditionalLogError:
    """Return a LayoutChangedError with the field ``resumable``, and any other error unchanged.

    If there is no log, or it cannot be read, the kind of the write alone decides.
    """
    if not isinstance(error, LayoutChangedError):
        return error
    resumable = not (plan.stream or plan.by_key or plan.round_of)
    if resumable and log is not None:
        with suppress(ConditionalLogError):
            resumable = log.layouts().pending is not None or _can_go_on(log, plan)
    return error.with_message(error.message, resumable=resumable)


def require_remaining_of(job: str, plan: Plan) -> None:
    """Raise JobMismatchError if the plan with the name of a load's remaining rows belongs to another job."""
    if plan.continues != job:
        raise JobMismatchError(
            f"the remaining rows of job {job!r} need the job name {plan.job!r}, which another job has. Nothing was "
            f"appended. Read the log, and write the missing rows under another job name.",
            job=job,
        )


def _name_at(job: str, epoch: int) -> str:
    return f"{job}.layout-{epoch}"


def _can_go_on(log: Backend, plan: Plan) -> bool:
    """Return whether thresholds bound all rows of the plan, and its expected offsets keep their meaning."""
    message = len(_name_at(plan.continues or plan.job, log.layout().epoch)) <= LONGEST_NAME
    return message and not (plan.stream or plan.by_key or plan.round_of) and _next_expansion(log, plan) is not None


def _next_expansion(log: Backend, plan: Plan) -> Expansion | None:
    """Return the expansion that ended a plan; None if another tool added partitions, which leaves no record."""
    history = log.layouts().expansions
    following = next((each for each in history if each.epoch > plan.layout_epoch), None)
    if following is None or following.before != plan.partitions or history[-1].epoch != log.layout().epoch:
        return None
    return following


def _with_rows_of(plan: Plan, result: tuple[Progress | None, ...]) -> tuple[EarlierRows, ...]:
    if not any(each.rows for each in result if each is not None):
        return plan.earlier
    rows = tuple(0 if each is None else each.rows for each in result)
    digests = tuple(each.digest if each is not None and each.rows else "" for each in result)
    complete = tuple(each is not None and each.complete for each in result)
    return (*plan.earlier, EarlierRows(plan.job, rows, digests, complete))


def may_have_expired(log: Backend, plan: Plan) -> bool:
    """Return whether ledger entries of an incomplete job may have expired."""
    return log.removes_by_itself and clock.now_ms() - plan.pinned_at_ms >= log.unexpired_ms()


def require_never_begun(log: Backend, plan: Plan, partition: int, end_offset: int) -> None:
    """Raise ProgressLostError if a record before ``end_offset`` may belong to the job, although it has no entry."""
    if end_offset <= plan.end_offsets[partition]:
        return
    since, kept = OffsetRange(plan.end_offsets[partition], end_offset), log.bounds(partition)
    there = since.intersect(kept.range)
    if kept.start_offset > since.base_offset or (there and next(log.read(partition, there, ()), None) is not None):
        raise error_of(ProgressLost(plan.round_of or plan.display_name), partition)
