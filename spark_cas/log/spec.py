"""Where a log is: plain values that cross processes; clients are opened from them where they are used."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit

from spark_cas.core.errors import OptionError
from spark_cas.core.names import check_name

CLOUD_SCHEMES = ("s3", "s3a", "az", "adl", "azure", "abfs", "abfss", "gs")


@dataclass(frozen=True, slots=True)
class LogSpec:
    """The address of a log and the settings of its store."""

    url: str
    """A URL whose local path is absolute: ``file:///data/logs/flights``, ``s3://bucket/logs/flights``."""
    store_options: tuple[tuple[str, str], ...] = ()
    """Settings of the store client under obstore's names. They may be secret and are never shown."""

    @classmethod
    def parse(cls, address: str, store_options: dict[str, str] | None = None) -> Self:
        """Read a path or a URL; a relative path is taken from here, so call it where the user is.

        Raises OptionError for an address that no store serves.
        """
        options = tuple(sorted((store_options or {}).items()))
        scheme = urlsplit(address).scheme.lower()
        if len(scheme) <= 1 or scheme == "file":
            path = unquote(address[len("file:") :].removeprefix("//")) if scheme == "file" else address
            if not path.strip("/"):
                raise OptionError("the path of a log must name a directory, such as /data/logs/flights.")
            return cls(Path(path).expanduser().absolute().as_uri(), options)
        if scheme not in (*CLOUD_SCHEMES, "memory"):
            raise OptionError(
                "the address of a log must be a directory or a URL that begins with file:, memory:, "
                f"{', '.join(f'{each}:' for each in CLOUD_SCHEMES)}. What was given begins otherwise."
            )
        parts = urlsplit(address)
        if parts.password or parts.query or parts.fragment:
            raise OptionError(
                "the address of a log holds a password, a query or a fragment. An address is shown and logged: give "
                "credentials with store.* options or the environment instead."
            )
        return cls(address.rstrip("/"), options)

    @property
    def scheme(self) -> str:
        """``file``, ``memory``, ``s3`` and so on."""
        return urlsplit(self.url).scheme.lower()

    @property
    def topic(self) -> str:
        """The log's name: the last segment of its address."""
        name = Path(urlsplit(self.url).path).name or urlsplit(self.url).netloc
        return check_name(name, "the last part of a log's address")

    def __repr__(self) -> str:
        return f"LogSpec(url={self.url!r}, store_options=<{len(self.store_options)} hidden>)"
