"""The few operations that the log needs of a store, over obstore, with the store's errors made plain."""

import os
from collections.abc import Callable
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast
from urllib.parse import unquote, urlsplit

from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError, UnknownConfigurationKeyError
from obstore.store import MemoryStore, from_url
from obstore.store import ObjectStore as ObstoreStore

from spark_cas.core.errors import OptionError
from spark_cas.core.put_reply import PutReply
from spark_cas.log.objects import local
from spark_cas.log.objects.local_store import LocalStore
from spark_cas.log.objects.store_errors import NotNowError, plain
from spark_cas.log.spec import LogSpec

_T = TypeVar("_T")

_SHORTEST_REQUEST = timedelta(seconds=1)
_LARGE_PUT = timedelta(seconds=30)
"""What a request has at least, with all that it carries, for a whole chunk may be put."""
_LONGEST_CONNECT = timedelta(seconds=3)
_LONGEST_RETRY = timedelta(seconds=10)
_HICCUPS = 3
"""So often obstore asks again by itself, as for a page of a listing; all that lasts longer is `RetryingStore`'s."""

_memory_stores: dict[str, MemoryStore] = {}


class Store(Protocol):
    """What the log needs of a store. Paths are relative to the log's root."""

    def create(self, path: str, data: bytes | memoryview) -> PutReply:
        """Put an object under a name that must be free, whole and durable, or not at all."""
        ...

    def overwrite(self, path: str, data: bytes) -> None:
        """Put an object that nobody trusts. Raises StorageError."""
        ...

    def get(self, path: str) -> memoryview | None:
        """All bytes of an object, None when there is none. Raises StorageError."""
        ...

    def get_end(self, path: str, size: int) -> memoryview | None:
        """The last ``size`` bytes of an object, None when there is none. Raises StorageError."""
        ...

    def below(self, prefix: str, after: str | None = None) -> list[str]:
        """The paths of all objects below a prefix, of those past ``after``, sorted. Raises StorageError."""
        ...

    def folders(self, prefix: str) -> list[str]:
        """The names directly below a prefix that have objects below them, and of objects. Raises StorageError."""
        ...

    def delete(self, paths: list[str]) -> None:
        """Remove objects; those that are gone already are no error. Raises StorageError."""
        ...

    def settle(self, path: str) -> None:
        """See to it that an object which was read, and those beside it, outlive a power cut. Raises StorageError."""
        ...


def open_store(spec: LogSpec) -> "Store":
    """The store that a spec names, rooted at the log. Nothing is written or read."""
    if spec.scheme == "file":
        root = Path(unquote(urlsplit(spec.url).path)).resolve()
        local.check_root(root)
        return LocalStore(root)
    if spec.scheme == "memory":
        memory = _memory_stores.setdefault(spec.url, MemoryStore())
        return _ObjectStore(memory, spec, lambda: memory)
    config = {name: _secret(name, value) for name, value in spec.store_options}
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
        # Nothing was asked yet, and its text may quote a value.
        raise OptionError(
            f"opening {spec.url}: the store.* options, with what the environment gives, do not fit together or are "
            f"not complete. docs/options.md lists those that can be given; check account, region and keys."
        ) from None


def _request_timeout(patience: timedelta) -> timedelta:
    """When a request without an answer is made again: a store that answers nothing is asked four times.

    Where patience has no time for a large put, as for a mere look, a request still is one of four.
    """
    least = _LARGE_PUT if patience >= _LARGE_PUT else _SHORTEST_REQUEST
    return max(least, patience / 4)


def _secret(name: str, value: str) -> str:
    """A setting's value, taken from the environment or a file where it says ``env:NAME`` or ``file:NAME``."""
    how, _, where = value.partition(":")
    if how == "env":
        if where not in os.environ:
            raise OptionError(f"store.{name} names an environment variable that is not set where it is used.")
        return os.environ[where]
    if how == "file":
        try:
            return Path(where).read_text(encoding="utf-8").strip()
        except OSError:
            raise OptionError(f"store.{name} names a file that cannot be read where it is used.") from None
    return value


class _ObjectStore:
    """A store that obstore serves.

    ``once`` opens it for requests that obstore does not make again by itself: where a delete was done and its reply
    lost, somebody may have put the name again, and `RetryingStore.delete_if` looks for that before each try.
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
        return self._ask(f"reading {self._at(path)}", lambda: memoryview(self._store.get(path).bytes()))

    def get_end(self, path: str, size: int) -> memoryview | None:
        # Azure has no suffix ranges, so the size is asked for first.
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
        found = self._ask(
            f"listing {self._at(prefix)}",
            lambda: [each["path"] for page in self._store.list(prefix, offset=after) for each in page],
        )
        # Some stores take the offset for the first path to list.
        return sorted(path for path in found or [] if not after or path > after)

    def folders(self, prefix: str) -> list[str]:
        found = self._ask(f"listing {self._at(prefix)}", lambda: self._store.list_with_delimiter(prefix))
        if found is None:
            return []
        return sorted([*found["common_prefixes"], *(each["path"] for each in found["objects"])])

    def delete(self, paths: list[str]) -> None:
        # One by one: deleting what is gone already must not keep the others from going.
        for path in paths:
            self._ask(f"deleting {self._at(path)}", partial(self._once().delete, path))

    def settle(self, path: str) -> None:
        """What a store shows is durable."""

    def _ask(self, doing: str, request: Callable[[], _T]) -> _T | None:
        """Ask the store; None when the object is not there."""
        try:
            return request()
        except FileNotFoundError:
            return None
        except BaseError as error:
            raise plain(error, doing) from None
