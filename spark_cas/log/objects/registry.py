"""The registry: plans and completions as objects that are put once and kept until the job is forgotten."""

import json

from spark_cas.core.errors import FormatError
from spark_cas.core.plan import Completion, Plan
from spark_cas.core.plan_json import completion_from_json, plan_from_json, to_json
from spark_cas.log.objects import documents, paths
from spark_cas.log.objects.putting import put_once
from spark_cas.log.objects.retry import RetryingStore


class ObjectRegistry:
    """`spark_cas.log.protocol.Registry` over a store."""

    def __init__(self, store: RetryingStore) -> None:
        self._objects = store

    def record_plan(self, plan: Plan) -> Plan:
        data = documents.encode(json.loads(to_json(plan)))
        return _plan(put_once(self._objects, paths.plan(plan.job), data), plan.job)

    def plan(self, job: str) -> Plan | None:
        data = self._objects.get(paths.plan(job))
        return None if data is None else _plan(data, job)

    def record_completion(self, completion: Completion) -> Completion:
        data = documents.encode(json.loads(to_json(completion)))
        return _completion(put_once(self._objects, paths.completion(completion.job), data), completion.job)

    def completion(self, job: str) -> Completion | None:
        data = self._objects.get(paths.completion(job))
        return None if data is None else _completion(data, job)

    def jobs(self) -> tuple[str, ...]:
        # Not by folder: a directory keeps that of a job which was forgotten.
        found = (paths.planned_job(each.path) for each in self._objects.below(paths.JOBS))
        return tuple(sorted(job for job in found if job is not None))

    def forget(self, plan: Plan) -> None:
        """Its chunks still tell of it, but a plan that is made from now on looks for none of them."""
        for partition in range(plan.partitions):
            self._objects.delete([paths.closed(plan.job, partition), paths.job_hint(plan.job, partition)])
        self._objects.delete([paths.completion(plan.job)])
        # A load of this name may plan anew as soon as this plan is gone, though the reply was lost.
        self._objects.delete_if(paths.plan(plan.job), lambda found: _plan(found, plan.job) == plan)


def _plan(data: bytes | memoryview, job: str) -> Plan:
    what = f"the plan of job {job!r}"
    try:
        return plan_from_json(json.dumps(documents.decode(data, what)))
    except (KeyError, TypeError):
        raise FormatError(f"{what} has other fields than expected. Was it written by a newer version?") from None


def _completion(data: bytes | memoryview, job: str) -> Completion:
    what = f"the completion of job {job!r}"
    try:
        return completion_from_json(json.dumps(documents.decode(data, what)))
    except (KeyError, TypeError):
        raise FormatError(f"{what} has other fields than expected. Was it written by a newer version?") from None
