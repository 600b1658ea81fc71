"""A store with faults that real ones cannot be made to show, and a count of what is asked of it."""

from collections import Counter
from collections.abc import Callable

from spark_cas.core.put_reply import PutReply
from spark_cas.log.objects.store import Store

Create = Callable[[str, "bytes | memoryview"], PutReply]


class FlakyStore:
    """A store, around a real one. ``on_create`` holds what becomes of the next puts on names that must be free.

    Each entry is for one put on a path that holds the text, and gets the real put as a function.
    """

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.asked: Counter[str] = Counter()
        self.on_create: list[tuple[str, Callable[[Create, str, bytes | memoryview], PutReply]]] = []
        self.before: dict[str, Callable[[str], None]] = {}
        """By operation: called with the path, and may raise."""

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
    """The object is stored, and the response lost."""
    create(path, data)
    return PutReply.UNCLEAR


def applied_and_refused(create: Create, path: str, data: bytes | memoryview) -> PutReply:
    """The client's own second try is refused by what its first one stored."""
    create(path, data)
    return create(path, data)


def lost(create: Create, path: str, data: bytes | memoryview) -> PutReply:
    """The request never came there."""
    return PutReply.UNCLEAR


def refused_for_nothing(create: Create, path: str, data: bytes | memoryview) -> PutReply:
    """S3's 409: refused as if the name were taken, and nothing is there."""
    return PutReply.ALREADY_EXISTS
