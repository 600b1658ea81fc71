"""The few operations that the log needs of a store, over obstore, with the store's errors made plain."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast
from urllib.parse import unquote, urlsplit

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)
from obstore.store import LocalStore, MemoryStore, from_url
from obstore.store import ObjectStore as ObstoreStore

from spark_cas.core.errors import FormatError, OptionError, StorageError
from spark_cas.core.outcome import PutReply
from spark_cas.log.objects import local
from spark_cas.log.spec import LogSpec

_T = TypeVar("_T")

REQUEST_TIMEOUT = "30s"
_CLIENT: dict[str, Any] = {"timeout": REQUEST_TIMEOUT, "connect_timeout": "3s"}
_RETRY: Any = {"max_retries": 3, "retry_timeout": timedelta(seconds=10)}

_NOT_DONE = ("400", "405", "411", "413", "501")
"""Answers that say that the request itself is refused: nothing was stored, and asking again is no use."""

_memory_stores: dict[str, MemoryStore] = {}


@dataclass(frozen=True, slots=True)
class Listed:
    """An object of a listing."""

    path: str
    size: int


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

    def below(self, prefix: str, after: str | None = None) -> list[Listed]:
        """All objects below a prefix, of those whose path is past ``after``, sorted. Raises StorageError."""
        ...

    def folders(self, prefix: str) -> list[str]:
        """The names directly below a prefix that have objects below them, and of objects. Raises StorageError."""
        ...

    def delete(self, paths: list[str]) -> None:
        """Remove objects; those that are gone already are no error. Raises StorageError."""
        ...


def open_store(spec: LogSpec) -> "Store":
    """The store that a spec names, rooted at the log. Nothing is written or read."""
    if spec.scheme == "file":
        root = Path(unquote(urlsplit(spec.url).path)).resolve()
        if root.exists() and not root.is_dir():
            raise FormatError("the address of the log is a file. Give the address of a log, or of a new directory.")
        local.refuse_links(root)
        return _LocalStore(root)
    if spec.scheme == "memory":
        return _ObjectStore(_memory_stores.setdefault(spec.url, MemoryStore()))
    config = {name: _secret(name, value) for name, value in spec.store_options}
    client = dict(_CLIENT)
    if config.pop("allow_http", "false").lower() == "true":
        client["allow_http"] = True
    try:
        store = from_url(
            spec.url, config=cast("Any", config), client_options=cast("Any", client), retry_config=_RETRY
        )
    except UnknownConfigurationKeyError:
        raise OptionError(
            "a store.* option is not a setting of this store. docs/options.md lists those that can be given."
        ) from None
    except BaseError as error:
        raise _plain(error, "opening the store") from None
    return _ObjectStore(store)


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
    """A store that obstore serves."""

    def __init__(self, client: ObstoreStore) -> None:
        self._client = client

    @property
    def _store(self) -> ObstoreStore:
        return self._client

    def create(self, path: str, data: bytes | memoryview) -> PutReply:
        try:
            self._store.put(path, data, mode="create", use_multipart=False)
        except (AlreadyExistsError, PreconditionError):
            return PutReply.ALREADY_EXISTS
        except (PermissionDeniedError, UnauthenticatedError, FileNotFoundError) as error:
            raise _plain(error, "writing") from None
        except BaseError as error:
            if _status(error) in _NOT_DONE:
                raise _plain(error, "writing") from None
            return PutReply.UNCLEAR
        return PutReply.CREATED

    def overwrite(self, path: str, data: bytes) -> None:
        if _ask("writing", lambda: self._store.put(path, data, use_multipart=False)) is None:
            raise _plain(FileNotFoundError(), "writing")

    def get(self, path: str) -> memoryview | None:
        return _ask("reading", lambda: memoryview(self._store.get(path).bytes()))

    def get_end(self, path: str, size: int) -> memoryview | None:
        # Azure has no suffix ranges, so the size is asked for first.
        head = _ask("reading", lambda: self._store.head(path))
        if head is None:
            return None
        end: int = head["size"]
        if end == 0:
            return memoryview(b"")
        return _ask("reading", lambda: memoryview(self._store.get_range(path, start=max(0, end - size), end=end)))

    def below(self, prefix: str, after: str | None = None) -> list[Listed]:
        found = _ask("listing", lambda: [each for page in self._store.list(prefix, offset=after) for each in page])
        # Some stores take the offset for the first path to list.
        listed = (Listed(each["path"], each["size"]) for each in found or [] if not after or each["path"] > after)
        return sorted(listed, key=lambda each: each.path)

    def folders(self, prefix: str) -> list[str]:
        found = _ask("listing", lambda: self._store.list_with_delimiter(prefix))
        if found is None:
            return []
        return sorted([*found["common_prefixes"], *(each["path"] for each in found["objects"])])

    def delete(self, paths: list[str]) -> None:
        # One by one: deleting what is gone already must not keep the others from going.
        for path in paths:
            _ask("deleting", partial(self._store.delete, path))


class _LocalStore(_ObjectStore):
    """A directory. Writing is our own: obstore's never syncs to the disk, and follows links out of the root."""

    def __init__(self, root: Path) -> None:
        super().__init__(MemoryStore())
        self._root = root
        self._folder = local.LocalFolder(root)

    @property
    def _store(self) -> ObstoreStore:
        """The directory; while it is not there, a store that holds nothing, so that looking makes none."""
        if isinstance(self._client, MemoryStore) and self._root.is_dir():
            self._client = LocalStore(str(self._root))
        return self._client

    def create(self, path: str, data: bytes | memoryview) -> PutReply:
        return self._folder.create(path, data)

    def overwrite(self, path: str, data: bytes) -> None:
        self._folder.overwrite(path, data)


def _ask(doing: str, request: Callable[[], _T]) -> _T | None:
    """Ask the store; None when the object is not there."""
    try:
        return request()
    except FileNotFoundError:
        return None
    except BaseError as error:
        raise _plain(error, doing) from None


def _status(error: BaseException) -> str:
    """The HTTP status that a store answered with, empty when it did not answer."""
    said = re.search(r"status code: (\d{3})", str(error))
    return said[1] if said else ""


def _plain(error: BaseException, doing: str) -> StorageError:
    """A store's error without its text, which may hold a signed address."""
    status = _status(error)
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or status in ("401", "403"):
        return StorageError(
            f"{doing}: the store refused the credentials or their rights. The log needs to list, read and create "
            f"objects below its root; give credentials with store.* options or the environment."
        )
    if isinstance(error, FileNotFoundError) or status == "404":
        return StorageError(
            f"{doing}: the store has no such bucket or container. Create it, or check the address and the "
            f"endpoint and region in the store.* options."
        )
    if status in _NOT_DONE:
        return StorageError(
            f"{doing}: the store refused the request (HTTP {status}). It may not know conditional puts "
            f"(If-None-Match: *), on which the log rests: then use another store, or a newer version of this one."
        )
    if status:
        return StorageError(
            f"{doing}: the store failed (HTTP {status}). See its own log, then run the same job again."
        )
    return StorageError(
        f"{doing}: the store did not answer ({type(error).__name__}). Check the address, the endpoint in the "
        f"store.* options and that it can be reached from here, and that credentials are given."
    )
