"""A store that is asked again while it is down, busy or silent: what may be asked twice, in one place.

What changes nothing may be, and a delete where nobody puts the name again meanwhile; where somebody may, the object
is looked at before each try (`delete_if`). A put on a free name may not: what became of it is not known until the
name is read back, which is up to those who put.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from spark_cas.core.errors import StorageError
from spark_cas.core.put_reply import PutReply
from spark_cas.log.objects.store import Store
from spark_cas.log.objects.store_errors import NobodyThereError, NotNowError
from spark_cas.log.patience import Wait
from spark_cas.log.spec import LogSpec

_T = TypeVar("_T")


class RetryingStore:
    """`spark_cas.log.objects.store.Store` over another, for as long as the patience of a spec lasts.

    That of each request, and that of all within a `spark_cas.log.patience.within`.
    """

    def __init__(self, store: Store, spec: LogSpec) -> None:
        self._store = store
        self.at = spec.at
        self.patience_seconds = spec.patience_seconds
        self._met = spec.met

    def wait(self, doing: str) -> Wait:
        """The wait of somebody who tries again what the store does not do for him: ``doing`` it."""
        return Wait(self.patience_seconds, doing)

    def create(self, path: str, data: bytes | memoryview) -> PutReply:
        """One put, whose reply is to be judged: it is not asked again."""
        return self._store.create(path, data)

    def overwrite(self, path: str, data: bytes) -> None:
        """One put of what nobody trusts, and nobody waits for."""
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
        """Remove objects under names that nobody puts again. Each has its own patience, for there may be many."""
        for path in paths:
            self._ask(f"deleting {self.at(path)}", partial(self._store.delete, [path]))

    def delete_if(self, path: str, is_meant: Callable[[memoryview], bool]) -> None:
        """Remove the object that is meant, and none that is found under its name before a try.

        Looking and deleting are two steps: what is put between them is lost.
        """

        def look_and_delete() -> None:
            found = self._store.get(path)
            if found is not None and is_meant(found):
                self._store.delete([path])

        self._ask(f"deleting {self.at(path)}", look_and_delete)

    def settle(self, path: str) -> None:
        self._store.settle(path)

    def _ask(self, doing: str, request: Callable[[], _T]) -> _T:
        wait = self.wait(doing)
        while True:
            try:
                answer = request()
            except NotNowError as error:
                passes = self._met or not isinstance(error, NobodyThereError)
                if not (passes and wait.again(error.why)):
                    raise _given_up(error, wait) from None
            else:
                self._met = True
                return answer


def _given_up(error: NotNowError, wait: Wait) -> StorageError:
    asked = f" It was asked again for {wait.waited:.0f} s." if wait.waited >= 1 else ""
    return StorageError(f"{error.message}{asked}")
