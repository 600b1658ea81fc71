"""Registry: plans and completions as objects that are put once and kept until the job is forgotten."""

import json

from spark_cas.core.plan import Plan, input_entry
from spark_cas.core.plan_json import recorded_plan
from spark_cas.log.objects import documents, paths
from spark_cas.log.objects.first_writer_wins import put_once
from spark_cas.log.objects.retry import RetryingStore
from spark_cas.log.protocol import EntryKind

_PATHS = {
    "plan": paths.plan,
    "completion": paths.completion,
    "outcome": paths.outcome,
    "input": paths.input_list,
    "cancelled": paths.cancelled,
}


class ObjectRegistry:
    """Implement `spark_cas.log.protocol.Registry` in a store."""

    def __init__(self, store: RetryingStore) -> None:
        self._objects = store

    def entry(self, kind: EntryKind, job: str) -> str | None:
        data = self._objects.get(_PATHS[kind](job))
        return None if data is None else _text(data, kind, job)

    def put_entry(self, kind: EntryKind, job: str, text: str) -> str:
        return _text(put_once(self._objects, _PATHS[kind](job), documents.encode(json.loads(text))), kind, job)

    def remove_cancelled(self, run: str) -> None:
        self._objects.delete([paths.cancelled(run)])

    def jobs(self) -> tuple[str, ...]:
        # Do not list folders: a directory keeps the folder of a forgotten job.
        result = map(paths.planned_job, self._objects.below(paths.JOBS))
        return tuple(sorted(job for job in result if job is not None))

    def forget(self, plan: Plan) -> None:
        """Remove the entries of a job. Its chunks remain, but later plans of this name do not search them."""
        for partition in range(plan.partitions):
            closed = paths.closed(plan.job, plan.pinned_by, partition)
            self._objects.delete([closed, paths.job_hint(plan.job, partition)])
        recorded = [paths.input_list(input_entry(plan.job, plan.input))] if plan.input else []
        self._objects.delete([paths.completion(plan.job), *recorded])
        # As soon as the plan is removed, a load may plan a job of this name, even if the reply was lost. `delete_if`
        # reads the
        # plan before each try, but the read and the delete are two steps. Therefore no load of that name may run
        # while two processes forget the job.
        self._objects.delete_if(
            paths.plan(plan.job), lambda result: recorded_plan(_text(result, "plan", plan.job), plan.job) == plan
        )


def _text(data: bytes | memoryview, kind: EntryKind, job: str) -> str:
    return json.dumps(documents.decode(data, f"the {kind} of job {job!r}"))
