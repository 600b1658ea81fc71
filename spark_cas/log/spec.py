"""The address of a log as plain values that can be sent to other processes, which create their own clients."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit

from spark_cas.core.check_name import check_name
from spark_cas.core.errors import OptionError
from spark_cas.log.timing import MILLISECONDS_IN, RETRY_TIMEOUT_MS

CLOUD_SCHEMES = ("s3", "s3a", "az", "adl", "azure", "abfs", "abfss", "gs")

RETRY_TIMEOUT = "retry_timeout"
"""The retry timeout setting of a store client, under obstore's name."""
_DURATION = re.compile(r"([1-9][0-9]{0,8})\s*(ms|s|m|min|h)")


@dataclass(frozen=True, slots=True)
class LogSpec:
    """The address of a log and the settings of its store."""

    url: str
    """A URL whose local path is absolute: ``file:///data/logs/flights``, ``s3://bucket/logs/flights``."""
    store_options: tuple[tuple[str, str], ...] = ()
    """Settings of the store client under obstore's names. They may be secret and are never shown."""
    patience_ms: int = RETRY_TIMEOUT_MS
    """The retry timeout of all operations on the store, in milliseconds."""
    reached: bool = False
    """Whether this store answered before. If so, a connection failure is considered transient."""

    @classmethod
    def parse(cls, address: str, store_options: dict[str, str] | None = None) -> Self:
        """Parse a path or a URL. A relative path is resolved in the current directory.

        Raises:
            OptionError: No store serves the address, or it contains a secret.
        """
        try:
            parts = urlsplit(address)
        except ValueError:
            raise OptionError("the address of a log must be a directory or a URL, but is neither.") from None
        scheme = parts.scheme.lower()
        if len(scheme) <= 1 or scheme == "file":
            path = unquote(address[len("file:") :].removeprefix("//")) if scheme == "file" else address
            if "\0" in path:
                raise OptionError("the path of a log holds a NUL character, which no file system permits.")
            try:
                folder = Path(path).expanduser().absolute()
            except RuntimeError:
                raise OptionError("the path of a log begins with ~ and a user whose home is not known.") from None
            if not path or not folder.name:
                raise OptionError("the path of a log must name a directory, such as /data/logs/flights.")
            return cls(folder.as_uri()).with_options(store_options or {})
        if scheme not in (*CLOUD_SCHEMES, "memory"):
            raise OptionError(
                "the address of a log must be a directory or a URL that begins with file:, memory:, "
                f"{', '.join(f'{each}:' for each in CLOUD_SCHEMES)}. This one has another scheme."
            )
        if parts.password or parts.query or parts.fragment:
            raise OptionError(
                "the address of a log holds a password, a query or a fragment. An address is shown and logged: give "
                "credentials with store.* options or the environment instead."
            )
        return cls(address.rstrip("/")).with_options(store_options or {})

    def with_options(self, store_options: Mapping[str, str]) -> Self:
        """Return the same log with these settings of its store client. Raises OptionError."""
        options = dict(store_options)
        retry_timeout = options.pop(RETRY_TIMEOUT, f"{RETRY_TIMEOUT_MS}ms")
        result = _DURATION.fullmatch(retry_timeout.strip().lower())
        if result is None:
            raise OptionError(f"option store.{RETRY_TIMEOUT} must be a time such as 500ms, 90s or 5min; it is not.")
        patience_ms = int(result[1]) * MILLISECONDS_IN[result[2]]
        return replace(self, store_options=tuple(sorted(options.items())), patience_ms=patience_ms)

    @property
    def scheme(self) -> str:
        """Return the scheme of the URL: ``file``, ``memory``, ``s3`` and so on."""
        return urlsplit(self.url).scheme.lower()

    @property
    def topic(self) -> str:
        """Return the log's name, the last segment of its address."""
        name = Path(urlsplit(self.url).path).name or urlsplit(self.url).netloc
        return check_name(name, "the last part of a log's address")

    @property
    def patience_seconds(self) -> float:
        return self.patience_ms / 1000

    @property
    def open_transaction_seconds(self) -> float:
        """Return 0: only a topic has transactions of other producers."""
        return 0.0

    @property
    def has_brokers(self) -> bool:
        return False

    @property
    def server(self) -> str:
        return f"the store of log {self.topic}"

    def as_reached(self) -> Self:
        """Return the same log, marked as reachable before, so that connection failures are retried.

        Without the mark, a connection failure raises at once, because the address may be wrong.
        """
        return replace(self, reached=True)

    def with_patience(self, most_ms: int) -> Self:
        return replace(self, patience_ms=min(self.patience_ms, most_ms))

    def with_transaction_of(self, size: int) -> Self:  # noqa: ARG002 - as that of a topic
        """Return the same log: it has no transactions."""
        return self

    def of_topic(self, topic: str) -> Self:  # noqa: ARG002 - as that of a topic
        """Return the same log: it has one name."""
        return self

    def at(self, path: str = "") -> str:
        """Return the address of the log, or of a path below it, for messages."""
        root = unquote(urlsplit(self.url).path) if self.scheme == "file" else self.url
        return f"{root}/{path}" if path else root

    def __repr__(self) -> str:
        return f"LogSpec(url={self.url!r}, store_options=<{len(self.store_options)} hidden>)"
