"""From an address to the backend that serves it."""

from spark_cas.log.objects import ObjectLog
from spark_cas.log.protocol import Backend
from spark_cas.log.spec import LogSpec


def open_log(address: str | LogSpec, store_options: dict[str, str] | None = None) -> Backend:
    """Open the log at a path or URL; it need not be there yet (``create`` makes it).

    ``store_options`` are settings of the object store's client under obstore's names, such as
    ``aws_region``. Use it as a context manager, in the process where it is needed: a backend holds
    clients that survive neither a pickle nor a fork.

    Raises OptionError for an address that no store serves, FormatError when it names a file. That the store
    honours put-if-absent is proven before the first write.
    """
    spec = address if isinstance(address, LogSpec) else LogSpec.parse(address, store_options)
    return ObjectLog(spec)
