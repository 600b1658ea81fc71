"""A load that partitions were added under goes on (KIP-253): what it had appended stays, the rest is placed anew.

The expansion has shut out every claim by the earlier plan, so what that plan had appended is settled: a prefix of the
rows of each of its partitions. The rest, which `spark_cas.route` makes of the same input, is planned for the new
layout under a name of its own, with the claims at which the earlier plan had come to a stand.
"""

from spark_cas.core.errors import JobMismatchError, LayoutChangedError
from spark_cas.core.expansion import Expansion
from spark_cas.core.names import LONGEST_NAME
from spark_cas.core.offsets import OffsetRange
from spark_cas.core.outcome import ProgressLost
from spark_cas.core.plan import EarlierRows, Layout, Plan, Progress, is_complete, resume_offset
from spark_cas.core.refusal import AFTER_EXPANSION, error_of
from spark_cas.log.backend import Backend


def plan_now(log: Backend, job: str) -> Plan | None:
    """The plan that a load goes by now, which has another name since it went on behind an expansion.

    None for a load that was never planned. Raises what `newest_plan` does.
    """
    first = log.plan(job)
    return None if first is None else newest_plan(log, first)


def newest_plan(log: Backend, first: Plan) -> Plan:
    """The plan that a load goes by now: its first, or that of its rest under the newest layout it was run with.

    Raises JobMismatchError when another job has the name of the rest.
    """
    newest = first
    for expansion in log.layouts().expansions:
        if expansion.epoch > first.layout_epoch:
            newest = _rest(log, first.job, expansion.epoch) or newest
    return newest


def earlier_rows(log: Backend, job: str) -> tuple[EarlierRows, ...]:
    """What `route` is to take out of the input of a load: the rows that it appended before partitions were added.

    Nothing for a load that is new, complete, or planned for the partitions of now; nor for one that cannot go on,
    which planning refuses.
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


def plan_of_rest(log: Backend, layout: Layout, newest: Plan, job: str, earlier: tuple[EarlierRows, ...]) -> Plan:
    """The plan for the rest of a load under the layout of now, to be pinned; ``earlier`` is what the input lacks.

    Each partition is claimed where the earlier plan had come to, and those that were added where they begin, unless
    that plan claimed nothing.

    Raises LayoutChangedError when the load cannot go on, or not with this input; ProgressLostError when it is not
    known any more what the load had appended.
    """
    found = log.progress_of(range(newest.partitions), newest.job, proven=True)
    if not _can_go_on(log, newest) or earlier != _with_rows_of(newest, found):
        raise LayoutChangedError(
            f"job {job!r} was planned for layout epoch {newest.layout_epoch}, but the log now has epoch "
            f"{layout.epoch}: partitions were added. Nothing was appended now, what is visible of the job stays. "
            f"{AFTER_EXPANSION}"
        )
    for partition, progress in enumerate(found):
        if progress is None and resume_offset(newest, partition, None) is None:
            _require_never_begun(log, newest, partition)
    added = layout.partitions - newest.partitions
    ends = log.bounds_of(range(layout.partitions), waiting=True)
    return Plan(
        job=_name_at(job, layout.epoch),
        log_id=layout.log_id,
        layout_epoch=layout.epoch,
        expected_offsets=(
            *(resume_offset(newest, partition, progress) for partition, progress in enumerate(found)),
            *((0 if newest.checked else None,) * added),
        ),
        end_offsets=tuple(each.end_offset for each in ends),
        continues=job,
        earlier=earlier,
        # What is complete is expected of nobody any more: others may have appended there since.
        named=tuple(each for each in newest.named if not is_complete(found[each])),
        whole=newest.whole,
        input=newest.input,
        partitioner=newest.partitioner,
    )


def _rest(log: Backend, job: str, epoch: int) -> Plan | None:
    name = _name_at(job, epoch)
    plan = log.plan(name) if len(name) <= LONGEST_NAME else None
    if plan is not None:
        require_rest_of(job, plan)
    return plan


def require_rest_of(job: str, plan: Plan) -> None:
    """JobMismatchError when a plan that has the name of the rest of a load is another job's."""
    if plan.continues != job:
        raise JobMismatchError(
            f"the rest of job {job!r} would be job {plan.job!r}, and that is the name of another one. Nothing was "
            f"appended. Read the log, and write what it does not hold yet under another job name."
        )


def _name_at(job: str, epoch: int) -> str:
    return f"{job}.layout-{epoch}"


def _can_go_on(log: Backend, plan: Plan) -> bool:
    """Whether all that the plan could append lies below thresholds, and its claims mean the same after them."""
    told = len(_name_at(plan.continues or plan.job, log.layout().epoch)) <= LONGEST_NAME
    return told and not (plan.stream or plan.by_key or plan.round_of) and _next_expansion(log, plan) is not None


def _next_expansion(log: Backend, plan: Plan) -> Expansion | None:
    """The expansion that ended a plan; None when another tool added partitions, then or since: that is not told."""
    history = log.layouts().expansions
    following = next((each for each in history if each.epoch > plan.layout_epoch), None)
    if following is None or following.before != plan.partitions or history[-1].epoch != log.layout().epoch:
        return None
    return following


def _with_rows_of(plan: Plan, found: tuple[Progress | None, ...]) -> tuple[EarlierRows, ...]:
    if not any(each.rows for each in found if each is not None):
        return plan.earlier
    rows = tuple(0 if each is None else each.rows for each in found)
    digests = tuple(each.digest if each is not None and each.rows else "" for each in found)
    complete = tuple(each is not None and each.complete for each in found)
    return (*plan.earlier, EarlierRows(plan.job, rows, digests, complete))


def _require_never_begun(log: Backend, plan: Plan, partition: int) -> None:
    """ProgressLostError where a record may be the job's: its progress is gone, and no claim decides."""
    expansion = _next_expansion(log, plan)
    kept = log.bounds(partition)
    if expansion is None or not expansion.thresholds[partition] > plan.end_offsets[partition]:
        return
    since = OffsetRange(plan.end_offsets[partition], expansion.thresholds[partition])
    there = since.intersect(kept.range)
    if kept.start_offset > since.base_offset or (there and next(log.read(partition, there, ()), None) is not None):
        raise error_of(ProgressLost(plan.job), partition)
