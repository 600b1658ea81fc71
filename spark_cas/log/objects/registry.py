"""The registry and the load locks: the entries of jobs and commit groups are objects that are put once.

The locks are numbered objects. A writer changes them by creating the object with the next number.
"""

import json
import logging
from dataclasses import asdict

from spark_cas.core.errors import StorageError
from spark_cas.core.load_locks import LoadLocks, load_locks_from_json
from spark_cas.core.plan import Plan, input_entry
from spark_cas.core.recorded_fields import recorded
from spark_cas.log.objects import documents, paths
from spark_cas.log.objects.store import RetryingStore
from spark_cas.log.protocol import EntryKind

_KEPT_LOCKS = 16
"""Number of newest objects with locks to keep. A writer that puts an older number may have reused a freed name, so
its put fails."""

_LOG = logging.getLogger("spark_cas")
_reported: set[str] = set()
"""Logs for which this process has logged that old locks remain."""


class ObjectRegistry:
    """Implement `spark_cas.log.protocol.Registry` and `spark_cas.log.protocol.LockTable` in a store."""

    def __init__(self, store: RetryingStore) -> None:
        self._objects = store

    def entry(self, kind: EntryKind, job: str) -> str | None:
        data = self._objects.get(paths.entry(kind, job))
        return None if data is None else _text(data, kind, job)

    def put_entry(self, kind: EntryKind, job: str, text: str) -> str:
        stored = self._objects.put_once(paths.entry(kind, job), documents.encode(json.loads(text)))
        return _text(stored, kind, job)

    def remove_cancelled(self, run: str) -> None:
        self._objects.delete([paths.entry("cancelled", run)])

    def jobs(self) -> tuple[str, ...]:
        # Do not list folders: a directory keeps the folder of a forgotten job.
        result = map(paths.planned_job, self._objects.below(paths.JOBS))
        return tuple(sorted(job for job in result if job is not None))

    def forget(self, plan: Plan) -> None:
        """Remove the entries of a job. Its chunks remain, but later plans of this name do not search them."""
        for partition in range(plan.partitions):
            closed = paths.closed(plan.job, plan.pinned_by, partition)
            self._objects.delete([closed, paths.job_hint(plan.job, partition)])
        inputs = [paths.entry("input", input_entry(plan.job, plan.input))] if plan.input else []
        self._objects.delete([paths.entry("completion", plan.job), *inputs])
        # As soon as the plan is removed, a load may plan a job of this name, even if the reply was lost. `delete_if`
        # reads the plan before each try, but the read and the delete are two steps. Therefore no load of that name
        # may run while two processes forget the job.
        self._objects.delete_if(
            paths.entry("plan", plan.job),
            lambda result: recorded(Plan, _text(result, "plan", plan.job), plan.job) == plan,
        )

    def load_locks(self) -> LoadLocks:
        doing = f"reading {self._objects.at(paths.LOAD_LOCKS)}"
        wait = self._objects.wait(doing)
        while numbers := self._lock_numbers():
            data = self._objects.get(paths.load_locks(numbers[-1]))
            if data is not None:
                return load_locks_from_json(json.dumps(documents.decode(data, "the locks of the log")))
            if not wait.again("newer locks replaced those of the listing"):
                raise StorageError(
                    f"{doing}: for {wait.waited:.0f} s, the store listed {numbers[-1]:020d}.json and had no such "
                    f"object. Nothing was changed. Check whether this name is a broken link, and remove it."
                )
        return LoadLocks()

    def put_load_locks(self, load_locks: LoadLocks) -> bool:
        own = documents.encode(asdict(load_locks))
        if self._objects.put_once(paths.load_locks(load_locks.number), own) != own:
            return False
        numbers = self._lock_numbers()
        old = [each for each in numbers if each <= numbers[-1] - _KEPT_LOCKS]
        try:
            self._objects.delete([paths.load_locks(each) for each in old])
        except StorageError as error:
            # A load also works without the right to delete objects.
            where = self._objects.at(paths.LOAD_LOCKS)
            if where not in _reported:
                _reported.add(where)
                _LOG.warning("old locks stay in %s, and loads go on: %s", where, error.message)
        return load_locks.number not in old

    def _lock_numbers(self) -> list[int]:
        result = map(paths.load_locks_number, self._objects.below(paths.LOAD_LOCKS))
        return sorted(each for each in result if each is not None)


def _text(data: bytes | memoryview, kind: EntryKind, job: str) -> str:
    return json.dumps(documents.decode(data, f"the {kind} of job {job!r}"))
