"""Retries of store requests while the store is down, busy or silent.

Reads and listings are safe to retry. A delete is safe if no writer can put the same name again. Otherwise `delete_if`
reads the object before each try. `create` does not retry a put-if-absent, because its result is unknown until a read
of the name. `put_once` reads it.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from spark_cas.core.errors import StorageError
from spark_cas.log.deadline import Wait, within
from spark_cas.log.objects.store import Store
from spark_cas.log.objects.store_replies import NoServerError, NotNowError, PutReply, require_readable
from spark_cas.log.spec import LogSpec

_T = TypeVar("_T")


class RetryingStore:
    """Implement `spark_cas.log.objects.store.Store` over another store, with retries until a deadline.

    The deadline applies to each request. Within `spark_cas.log.deadline.within`, one deadline covers all requests.
    """

    def __init__(self, store: Store, spec: LogSpec) -> None:
        self._store = store
        self.at = spec.at
        self.patience_seconds = spec.patience_seconds
        self._reached = spec.reached

    def wait(self, doing: str) -> Wait:
        """Return the retry state for an operation that the caller retries itself. ``doing`` describes it."""
        return Wait(self.patience_seconds, doing)

    def create(self, path: str, data: bytes | memoryview) -> PutReply:
        """Put an object once, without a retry. The caller evaluates the reply."""
        return self._store.create(path, data)

    def put_once(self, path: str, data: bytes) -> bytes | memoryview:
        """Put an object unless it exists, and return the stored bytes: those of the first writer.

        Raises:
            RecordTooLargeError: if readers would reject the object
            StorageError: if the put did not succeed until the deadline and the object does not exist
        """
        require_readable(len(data), self.at(path))
        doing = f"writing {self.at(path)}"
        with within(self.patience_seconds):
            wait = self.wait(doing)
            while self.create(path, data) is not PutReply.CREATED:
                result = self.get(path)
                if result is not None:
                    return result
                if not wait.again("the store neither took it nor holds it"):
                    raise StorageError(
                        f"{doing}: the store neither took it nor holds it after {wait.waited:.0f} s. Check that the "
                        f"store is well, then run the same job again."
                    )
        return data

    def overwrite(self, path: str, data: bytes) -> None:
        """Put an object once, without a retry. Used for hints, which may be lost."""
        self._store.overwrite(path, data)

    def get(self, path: str) -> memoryview | None:
        return self._ask(f"reading {self.at(path)}", lambda: self._store.get(path))

    def get_end(self, path: str, size: int) -> memoryview | None:
        return self._ask(f"reading {self.at(path)}", lambda: self._store.get_end(path, size))

    def below(self, prefix: str, after: str | None = None) -> list[str]:
        return self._ask(f"listing {self.at(prefix)}", lambda: self._store.below(prefix, after))

    def folders(self, prefix: str) -> list[str]:
        return self._ask(f"listing {self.at(prefix)}", lambda: self._store.folders(prefix))

    def delete(self, paths: list[str]) -> None:
        """Remove objects whose names no writer puts again. Each delete has its own deadline."""
        for path in paths:
            self._ask(f"deleting {self.at(path)}", partial(self._store.delete, [path]))

    def delete_if(self, path: str, is_meant: Callable[[memoryview], bool]) -> None:
        """Remove an object if ``is_meant`` returns True for its current content.

        The read and the delete are two separate steps. An object that another writer puts between them is lost.
        """

        def check_and_delete() -> None:
            result = self._store.get(path)
            if result is not None and is_meant(result):
                self._store.delete([path])

        self._ask(f"deleting {self.at(path)}", check_and_delete)

    def settle(self, path: str) -> None:
        self._store.settle(path)

    def _ask(self, doing: str, request: Callable[[], _T]) -> _T:
        wait = self.wait(doing)
        while True:
            try:
                answer = request()
            except NotNowError as error:
                passes = self._reached or not isinstance(error, NoServerError)
                if not (passes and wait.again(error.why)):
                    retried = f" The request was retried for {wait.waited:.0f} s." if wait.waited >= 1 else ""
                    raise StorageError(f"{error.message}{retried}") from None
            else:
                self._reached = True
                return answer
