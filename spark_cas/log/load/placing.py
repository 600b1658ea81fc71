"""The partitioner of a log: all writes of a log assign keys to partitions by the same one."""

from spark_cas.core.errors import OptionError, StorageError
from spark_cas.core.guarantee import REQUIRED
from spark_cas.core.partitioner import DEFAULT_PARTITIONER, Partitioner, Placement
from spark_cas.log.backend import Backend


def recorded_partitioner(log: Backend, idempotence: str) -> Partitioner | None:
    """Return the partitioner that is recorded with a log, for a write that requires this much.

    A write that does not require exactly once needs no right to read the registry. Without that right, the result is
    None. Raises LogNotFoundError, FormatError, StorageError.
    """
    try:
        return log.layouts().partitioner
    except StorageError:
        if idempotence == REQUIRED:
            raise
        return None


def placement_on(recorded: Partitioner | None, named: Partitioner | None) -> Placement:
    """Return how a write assigns its rows: by the option, by the record of the log, or by the default.

    Raises OptionError if the option names another partitioner than the log has.
    """
    placement = Placement(named or recorded or DEFAULT_PARTITIONER, named=named is not None)
    require_partitioner(recorded, placement)
    return placement


def require_partitioner(recorded: Partitioner | None, placement: Placement | None) -> None:
    """Raise OptionError if rows were assigned by another partitioner than the one that is recorded with their log."""
    if recorded is None or placement is None or placement.partitioner == recorded:
        return
    raise OptionError(
        f"the rows are placed by partitioner={placement.partitioner}, but the log has partitioner={recorded}, so "
        f"their keys would get into other partitions than the existing records of these keys. Nothing was appended. "
        f"Leave the option partitioner out, or set it to {recorded}, in the options of route and of the write."
    )
