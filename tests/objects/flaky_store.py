"""A store that injects faults and counts requests. Real stores cannot produce these faults on demand."""

from collections import Counter
from collections.abc import Callable

from spark_cas.log.objects.store import Store
from spark_cas.log.objects.store_replies import PutReply

Create = Callable[[str, "bytes | memoryview"], PutReply]


class FlakyStore:
    """A store with faults, around a real one. ``on_create`` has the faults of the next conditional puts.

    Each entry is for one put on a path that contains the text. Its function gets the real put as an argument.
    """

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.asked: Counter[str] = Counter()
        self.on_create: list[tuple[str, Callable[[Create, str, bytes | memoryview], PutReply]]] = []
        self.before: dict[str, Callable[[str], None]] = {}
        """By operation, a function that is called with the path and may raise."""

    def create(self, path: str, data: bytes | memoryview) -> PutReply:
        self._ask("create", path)
        for index, (where, fault) in enumerate(self.on_create):
            if where in path:
                del self.on_create[index]
                return fault(self.inner.create, path, data)
        return self.inner.create(path, data)

    def overwrite(self, path: str, data: bytes) -> None:
        self._ask("overwrite", path)
        self.inner.overwrite(path, data)

    def get(self, path: str) -> memoryview | None:
        self._ask("get", path)
        return self.inner.get(path)

    def get_end(self, path: str, size: int) -> memoryview | None:
        self._ask("get_end", path)
        return self.inner.get_end(path, size)

    def below(self, prefix: str, after: str | None = None) -> list[str]:
        self._ask("below after" if after else "below", prefix)
        return self.inner.below(prefix, after)

    def folders(self, prefix: str) -> list[str]:
        self._ask("folders", prefix)
        return self.inner.folders(prefix)

    def delete(self, paths: list[str]) -> None:
        self._ask("delete", ",".join(paths))
        self.inner.delete(paths)

    def settle(self, path: str) -> None:
        self.inner.settle(path)

    def _ask(self, operation: str, path: str) -> None:
        self.asked[operation] += 1
        if operation in self.before:
            self.before[operation](path)


def applied_but_unclear(create: Create, path: str, data: bytes | memoryview) -> PutReply:
    """The object is stored, but the response is lost."""
    create(path, data)
    return PutReply.UNCLEAR


def applied_and_refused(create: Create, path: str, data: bytes | memoryview) -> PutReply:
    """The object is stored, and the retry of the client is rejected because of it."""
    create(path, data)
    return create(path, data)


def lost(create: Create, path: str, data: bytes | memoryview) -> PutReply:
    """The request is lost."""
    return PutReply.UNCLEAR


def refused_for_nothing(create: Create, path: str, data: bytes | memoryview) -> PutReply:
    """S3's 409: the put is rejected as if the name existed, but there is no object."""
    return PutReply.ALREADY_EXISTS
