"""The store operations that the log requires, with obstore and readable errors, and their retries.

Reads and listings are safe to retry. A delete is safe if no writer can put the same name again. Otherwise `delete_if`
reads the object before each try. `create` does not retry a put-if-absent, because its result is unknown until a read
of the name. `put_once` reads it.
"""

from collections.abc import Callable
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast
from urllib.parse import unquote, urlsplit

from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError, UnknownConfigurationKeyError
from obstore.store import MemoryStore, from_url
from obstore.store import ObjectStore as ObstoreStore

from spark_cas.core.errors import OptionError, StorageError
from spark_cas.log.deadline import Wait, within
from spark_cas.log.objects.local import LocalStore, check_root
from spark_cas.log.objects.store_replies import (
    NoServerError,
    NotNowError,
    PutReply,
    plain,
    require_readable,
    require_size,
)
from spark_cas.log.secret_references import resolved
from spark_cas.log.spec import LogSpec

_T = TypeVar("_T")

_SHORTEST_REQUEST = timedelta(seconds=1)
_LARGE_PUT = timedelta(seconds=30)
"""Minimum timeout of a request if the deadline permits, because it may upload a whole chunk."""
_LONGEST_CONNECT = timedelta(seconds=3)
_LONGEST_RETRY = timedelta(seconds=10)
_HICCUPS = 3
"""Number of retries by obstore, for example for one page of a listing. `RetryingStore` handles longer failures."""

_memory_stores: dict[str, MemoryStore] = {}


class Store(Protocol):
    """The operations that the log requires of a store. Paths are relative to the log's root."""

    def create(self, path: str, data: bytes | memoryview) -> PutReply:
        """Put an object if its name is free. The object is complete and durable, or absent. Raises StorageError."""

    def overwrite(self, path: str, data: bytes) -> None:
        """Put a hint or replace it. Raises StorageError."""

    def get(self, path: str) -> memoryview | None:
        """Return all bytes of an object; None if there is none. Raises StorageError."""

    def get_end(self, path: str, size: int) -> memoryview | None:
        """Return the last ``size`` bytes of an object; None if there is none. Raises StorageError."""

    def below(self, prefix: str, after: str | None = None) -> list[str]:
        """Return the sorted paths of all objects below a prefix that sort after ``after``. Raises StorageError."""

    def folders(self, prefix: str) -> list[str]:
        """Return the names of the objects and non-empty folders directly below a prefix. Raises StorageError."""

    def delete(self, paths: list[str]) -> None:
        """Remove objects. Missing objects are not an error. Raises StorageError."""

    def settle(self, path: str) -> None:
        """Make an object that was read durable, with the objects in its folder. Raises StorageError."""


def open_store(spec: LogSpec) -> "Store":
    """Open the store of a spec at the log's root. Nothing is read or written.

    Raises OptionError if a store option is unknown or invalid, and the errors of `check_root`.
    """
    if spec.scheme == "file":
        root = Path(unquote(urlsplit(spec.url).path)).resolve()
        check_root(root)
        return LocalStore(root)
    if spec.scheme == "memory":
        memory = _memory_stores.setdefault(spec.url, MemoryStore())
        return _ObjectStore(memory, spec, lambda: memory)
    config = {name: resolved(f"store.{name}", value) for name, value in spec.store_options}
    patience = timedelta(milliseconds=spec.patience_ms)
    timeout = _request_timeout(patience)
    client: dict[str, Any] = {"timeout": timeout, "connect_timeout": min(_LONGEST_CONNECT, timeout)}
    if config.pop("allow_http", "false").lower() == "true":
        client["allow_http"] = True

    def connected(tries_again: int) -> ObstoreStore:
        return from_url(
            spec.url,
            config=cast("Any", config),
            client_options=cast("Any", client),
            retry_config={"max_retries": tries_again, "retry_timeout": min(_LONGEST_RETRY, patience / 12)},
        )

    try:
        return _ObjectStore(connected(_HICCUPS), spec, partial(connected, 0))
    except UnknownConfigurationKeyError:
        raise OptionError(
            "a store.* option is not a setting of this store. docs/options.md lists those that can be given."
        ) from None
    except BaseError:
        # No request was sent yet. The text of the error may contain secrets.
        raise OptionError(
            f"opening {spec.url}: the store.* options and the environment variables are inconsistent or incomplete. "
            f"Check account, region and keys. docs/options.md lists the options."
        ) from None


def _request_timeout(patience: timedelta) -> timedelta:
    """Return the timeout of a request: a quarter of the deadline, but at least 30 s for a large put.

    If the deadline is shorter than 30 s, the minimum is 1 s.
    """
    least = _LARGE_PUT if patience >= _LARGE_PUT else _SHORTEST_REQUEST
    return max(least, patience / 4)


class _ObjectStore:
    """A store that obstore accesses.

    ``once`` opens the store without retries by obstore. Deletes use it: if a reply is lost, another writer may have
    put the name meanwhile. `RetryingStore.delete_if` reads the object before each try.
    """

    def __init__(self, store: ObstoreStore, spec: LogSpec, once: Callable[[], ObstoreStore]) -> None:
        self._store = store
        self._once = cache(once)
        self._at = spec.at

    def create(self, path: str, data: bytes | memoryview) -> PutReply:
        try:
            self._store.put(path, data, mode="create", use_multipart=False)
        except (AlreadyExistsError, PreconditionError):
            return PutReply.ALREADY_EXISTS
        except (BaseError, FileNotFoundError) as error:
            plainly = plain(error, f"writing {self._at(path)}")
            if not isinstance(plainly, NotNowError):
                raise plainly from None
            return PutReply.UNCLEAR
        return PutReply.CREATED

    def overwrite(self, path: str, data: bytes) -> None:
        doing = f"writing {self._at(path)}"
        if self._ask(doing, lambda: self._store.put(path, data, use_multipart=False)) is None:
            raise plain(FileNotFoundError(), doing)

    def get(self, path: str) -> memoryview | None:
        def read() -> memoryview:
            response = self._store.get(path)
            require_size(response.meta["size"], self._at(path))
            return memoryview(response.bytes())

        return self._ask(f"reading {self._at(path)}", read)

    def get_end(self, path: str, size: int) -> memoryview | None:
        # Azure does not support suffix ranges, so request the size first.
        doing = f"reading {self._at(path)}"
        head = self._ask(doing, lambda: self._store.head(path))
        if head is None:
            return None
        end: int = head["size"]
        if end == 0:
            return memoryview(b"")
        start = max(0, end - size)
        return self._ask(doing, lambda: memoryview(self._store.get_range(path, start=start, end=end)))

    def below(self, prefix: str, after: str | None = None) -> list[str]:
        result = self._ask(
            f"listing {self._at(prefix)}",
            lambda: [each["path"] for page in self._store.list(prefix, offset=after) for each in page],
        )
        # Some stores include the offset itself in the listing.
        return sorted(path for path in result or [] if not after or path > after)

    def folders(self, prefix: str) -> list[str]:
        result = self._ask(f"listing {self._at(prefix)}", lambda: self._store.list_with_delimiter(prefix))
        if result is None:
            return []
        return sorted([*result["common_prefixes"], *(each["path"] for each in result["objects"])])

    def delete(self, paths: list[str]) -> None:
        # Delete one object per request, so that a missing object does not prevent other deletes.
        for path in paths:
            self._ask(f"deleting {self._at(path)}", partial(self._once().delete, path))

    def settle(self, path: str) -> None:
        """Do nothing: visible objects are durable."""

    def _ask(self, doing: str, request: Callable[[], _T]) -> _T | None:
        """Send a request. Return None if the object does not exist. Raises StorageError."""
        try:
            return request()
        except FileNotFoundError:
            return None
        except BaseError as error:
            raise plain(error, doing) from None


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
