"""The results of the tasks of a job group, as Spark records them."""

from pyspark import SparkContext, SparkStageInfo

_MOST_TASKS = 1_000


def stages_of(context: SparkContext, group: str) -> list[SparkStageInfo]:
    """Return the stages of a job group that have begun so far."""
    # Spark's listener bus delivers events to the tracker with a delay.
    context._jsc.sc().listenerBus().waitUntilEmpty()
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    infos = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    return [stage for stage in infos if stage]


def failed_tasks(context: SparkContext, group: str) -> list[str]:
    """Return the error of each failed task attempt in a job group. At least one stage must have begun."""
    stages = stages_of(context, group)
    assert stages, f"no stage of job group {group} began"
    found = [why for stage in stages for why in _failures(context, stage)]
    assert len(found) == sum(stage.numFailedTasks for stage in stages)
    return found


def _failures(context: SparkContext, stage: SparkStageInfo) -> list[str]:
    if not stage.numFailedTasks:
        return []
    tasks = context._jsc.sc().statusStore().taskList(stage.stageId, stage.currentAttemptId, _MOST_TASKS)
    found = [tasks.apply(each) for each in range(tasks.size())]
    # A task that Spark killed with its stage also has a message, but it did not fail.
    return [each.errorMessage().get() for each in found if each.status() == "FAILED"]
