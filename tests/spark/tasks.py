"""What became of the tasks of some jobs, by Spark's own account."""

from pyspark import SparkContext, SparkStageInfo


def stages_of(context: SparkContext, group: str) -> list[SparkStageInfo]:
    """The stages of a job group that began, as of now."""
    # The tracker knows what was passed on to its listener, which is a moment behind.
    context._jsc.sc().listenerBus().waitUntilEmpty()
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    infos = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    return [stage for stage in infos if stage]


def failed_tasks(context: SparkContext, group: str) -> int:
    """How many attempts of tasks of a job group failed, some of whose tasks ran."""
    stages = stages_of(context, group)
    assert stages, f"no stage of job group {group} began"
    return sum(stage.numFailedTasks for stage in stages)
