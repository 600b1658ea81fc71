"""Choose which writes of a batch to accept. Pure functions: equal arguments give equal batches."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from key_value_store.values import ANY, Expected
from spark_cas.core.records import RECORD_OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class Writes:
    """Writes that the store applies together or not at all."""

    values: Mapping[bytes, bytes | None]
    """The new values by key. None deletes the key."""
    expected: Mapping[bytes, Expected]
    """The expected versions by key. The keys may be written here or not."""

    def largest_record(self) -> int:
        """Return the size of the largest record, in bytes."""
        largest = 0
        for key, value in self.values.items():
            size = len(key) + (0 if value is None else len(value))
            largest = max(size, largest)
        return largest + RECORD_OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class Accepted:
    """The verdict on writes whose expected versions match."""

    first: int
    """The position of the first of these records in the batch. The other records follow it."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The verdict on writes if a key does not have its expected version."""

    key: bytes
    expected: Expected
    actual: int | None
    """The current version of the key. If ``in_batch``, the position of its record in the batch."""
    in_batch: bool


@dataclass(frozen=True, slots=True)
class Batch:
    """The records of one append, and the verdict on each request."""

    records: list[tuple[bytes, bytes | None]]
    verdicts: list[Accepted | Mismatch]


def decide(requests: Sequence[Writes], version_of: Callable[[bytes], int | None]) -> Batch:
    """Return the batch of these requests. Each one sees the state after the accepted requests before it.

    An earlier request of the same batch may have written a key. Its new version is not known yet, so a request that
    expects any version of this key is rejected. If the earlier request deleted the key, the key is absent.

    Args:
        requests: The requests, in order.
        version_of: Returns the version of a key before the batch; None if the key is absent.
    """
    batch = Batch([], [])
    written: dict[bytes, int] = {}
    for each in requests:
        mismatch = _mismatch(each.expected, batch, written, version_of)
        if mismatch is not None:
            batch.verdicts.append(mismatch)
            continue
        first = len(batch.records)
        batch.verdicts.append(Accepted(first))
        batch.records.extend(each.values.items())
        written.update(zip(each.values, range(first, len(batch.records)), strict=True))
    return batch


def _mismatch(
    expected: Mapping[bytes, Expected],
    batch: Batch,
    written: Mapping[bytes, int],
    version_of: Callable[[bytes], int | None],
) -> Mismatch | None:
    for key, version in expected.items():
        if version is ANY:
            continue
        place = written.get(key)
        if place is None:
            actual = version_of(key)
            if actual != version:
                return Mismatch(key, version, actual, in_batch=False)
        elif batch.records[place][1] is not None:
            return Mismatch(key, version, place, in_batch=True)
        elif version is not None:
            return Mismatch(key, version, None, in_batch=False)
    return None
