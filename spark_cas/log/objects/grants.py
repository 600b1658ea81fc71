"""Load locks of a log (grants) as numbered objects. A writer changes them by creating the next number."""

import json
import logging

from spark_cas.core.errors import StorageError
from spark_cas.core.grants import Grants, grants_from_json, grants_to_json
from spark_cas.log.objects import documents, paths
from spark_cas.log.objects.first_writer_wins import put_once
from spark_cas.log.objects.retry import RetryingStore

_KEPT = 16
"""Number of newest objects to keep. A writer that puts an older number may have reused a freed name, so its put
fails."""

_LOG = logging.getLogger("spark_cas")
_told: set[str] = set()
"""Logs for which this process has logged that old grants remain."""


class ObjectGrantor:
    """`spark_cas.log.protocol.Grantor` over a store."""

    def __init__(self, store: RetryingStore) -> None:
        self._documents = store

    def grants(self) -> Grants:
        while True:
            numbers = self._numbers()
            if not numbers:
                return Grants()
            data = self._documents.get(paths.grants(numbers[-1]))
            if data is not None:  # otherwise newer grants have replaced these since the listing
                return grants_from_json(json.dumps(documents.decode(data, "the grants of the log")))

    def put_grants(self, grants: Grants) -> bool:
        mine = documents.encode(json.loads(grants_to_json(grants)))
        if put_once(self._documents, paths.grants(grants.number), mine) != mine:
            return False
        numbers = self._numbers()
        old = [each for each in numbers if each <= numbers[-1] - _KEPT]
        self._tidy(old)
        return grants.number not in old

    def _tidy(self, old: list[int]) -> None:
        """Delete old grants. A failure is only logged, so a load also works without the right to delete objects."""
        try:
            self._documents.delete([paths.grants(each) for each in old])
        except StorageError as error:
            where = self._documents.at(paths.GRANTS)
            if where not in _told:
                _told.add(where)
                _LOG.warning("old grants stay in %s, and loads go on: %s", where, error.message)

    def _numbers(self) -> list[int]:
        found = map(paths.grants_number, self._documents.below(paths.GRANTS))
        return sorted(each for each in found if each is not None)
