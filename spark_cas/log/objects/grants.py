"""The grants of a log as numbered objects, each put once: whoever puts the next number has changed them."""

import json
import logging

from spark_cas.core.errors import StorageError
from spark_cas.core.grants import Grants, grants_from_json, grants_to_json
from spark_cas.log.objects import documents, paths
from spark_cas.log.objects.first_writer_wins import put_once
from spark_cas.log.objects.retry import RetryingStore

_KEPT = 16
"""So many of the newest numbers are never removed: who puts a number that far behind may have got a freed name."""

_LOG = logging.getLogger("spark_cas")
_told: set[str] = set()
"""Of which logs it was told in this process that their old grants stay."""


class ObjectGrantor:
    """`spark_cas.log.protocol.Grantor` over a store."""

    def __init__(self, store: RetryingStore) -> None:
        self._documents = store

    def grants(self) -> Grants:
        """As the protocol has it."""
        while True:
            numbers = self._numbers()
            if not numbers:
                return Grants()
            data = self._documents.get(paths.grants(numbers[-1]))
            if data is not None:  # else so many newer ones came meanwhile that these were removed
                return grants_from_json(json.dumps(documents.decode(data, "the grants of the log")))

    def put_grants(self, grants: Grants) -> bool:
        """As the protocol has it."""
        mine = documents.encode(json.loads(grants_to_json(grants)))
        if put_once(self._documents, paths.grants(grants.number), mine) != mine:
            return False
        numbers = self._numbers()
        old = [each for each in numbers if each <= numbers[-1] - _KEPT]
        self._tidy(old)
        return grants.number not in old

    def _tidy(self, old: list[int]) -> None:
        """Take away what nobody asks for any more. Nothing rests on it, so no load ends where that is not allowed."""
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
