"""The partitioner of a log, which all of its writes use to assign keys to partitions."""

from spark_cas.core.errors import OptionError, StorageError
from spark_cas.core.guarantee import REQUIRED
from spark_cas.core.partitioner import DEFAULT_PARTITIONER, Partitioner, Placement
from spark_cas.log.backend import Backend


def recorded_partitioner(log: Backend, idempotence: str) -> Partitioner | None:
    """Return the recorded partitioner of a log; None if it has none.

    Only a write that requires exactly once needs the permission to read the registry. Without that permission, other
    writes get None.

    Raises:
        LogNotFoundError: The log does not exist.
        FormatError: The record has an unknown format.
        StorageError: The registry cannot be read, and ``idempotence`` is ``required``.
    """
    try:
        return log.layouts().partitioner
    except StorageError:
        if idempotence == REQUIRED:
            raise
        return None


def placement_on(recorded: Partitioner | None, named: Partitioner | None) -> Placement:
    """Return the partitioner of a write: that of the option, the record of the log, or the default.

    Raises:
        OptionError: The option names another partitioner than the record of the log.
    """
    placement = Placement(named or recorded or DEFAULT_PARTITIONER, named=named is not None)
    require_partitioner(recorded, placement)
    return placement


def require_partitioner(recorded: Partitioner | None, placement: Placement | None) -> None:
    """Raise OptionError if the partitioner of the rows differs from the recorded one of the log."""
    if recorded is None or placement is None or placement.partitioner == recorded:
        return
    raise OptionError(
        f"the rows are placed by partitioner={placement.partitioner}, but the log has partitioner={recorded}, so "
        f"their keys would get into other partitions than the existing records of these keys. Nothing was appended. "
        f"Leave the option partitioner out, or set it to {recorded}, in the options of route and of the write."
    )
