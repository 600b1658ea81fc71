"""Load locks of a log as numbered objects. A writer changes them by creating the next number."""

import json
import logging

from spark_cas.core.errors import StorageError
from spark_cas.core.load_locks import LoadLocks, load_locks_from_json, load_locks_to_json
from spark_cas.log.objects import documents, paths
from spark_cas.log.objects.first_writer_wins import put_once
from spark_cas.log.objects.retry import RetryingStore

_KEPT = 16
"""Number of newest objects to keep. A writer that puts an older number may have reused a freed name, so its put
fails."""

_LOG = logging.getLogger("spark_cas")
_reported: set[str] = set()
"""Logs for which this process has logged that old locks remain."""


class ObjectLockTable:
    """`spark_cas.log.protocol.LockTable` over a store."""

    def __init__(self, store: RetryingStore) -> None:
        self._documents = store

    def load_locks(self) -> LoadLocks:
        while True:
            numbers = self._numbers()
            if not numbers:
                return LoadLocks()
            data = self._documents.get(paths.load_locks(numbers[-1]))
            if data is not None:  # otherwise newer locks have replaced these since the listing
                return load_locks_from_json(json.dumps(documents.decode(data, "the locks of the log")))

    def put_load_locks(self, load_locks: LoadLocks) -> bool:
        own = documents.encode(json.loads(load_locks_to_json(load_locks)))
        if put_once(self._documents, paths.load_locks(load_locks.number), own) != own:
            return False
        numbers = self._numbers()
        old = [each for each in numbers if each <= numbers[-1] - _KEPT]
        self._tidy(old)
        return load_locks.number not in old

    def _tidy(self, old: list[int]) -> None:
        """Delete old locks. A failure is only logged, so a load also works without the right to delete objects."""
        try:
            self._documents.delete([paths.load_locks(each) for each in old])
        except StorageError as error:
            where = self._documents.at(paths.LOAD_LOCKS)
            if where not in _reported:
                _reported.add(where)
                _LOG.warning("old locks stay in %s, and loads go on: %s", where, error.message)

    def _numbers(self) -> list[int]:
        result = map(paths.load_locks_number, self._documents.below(paths.LOAD_LOCKS))
        return sorted(each for each in result if each is not None)
