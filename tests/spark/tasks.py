"""What became of the tasks of some jobs, by Spark's own account."""

from pyspark import SparkContext, SparkStageInfo

_MOST_TASKS = 1_000


def stages_of(context: SparkContext, group: str) -> list[SparkStageInfo]:
    """The stages of a job group that began, as of now."""
    # The tracker knows what was passed on to its listener, which is a moment behind.
    context._jsc.sc().listenerBus().waitUntilEmpty()
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    infos = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    return [stage for stage in infos if stage]


def failed_tasks(context: SparkContext, group: str) -> list[str]:
    """What each attempt of a task failed with, in a job group some of whose tasks ran."""
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
    # One that was killed, with its stage, has a message too, and did not fail.
    return [each.errorMessage().get() for each in found if each.status() == "FAILED"]
