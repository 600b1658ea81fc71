"""Which writes of a batch hold, and what is appended for them: pure, and the same whoever asks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from key_value_store.values import ANY, Expected
from spark_cas.core.records import RECORD_OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class Writes:
    """Writes that hold all or not at all."""

    values: Mapping[bytes, bytes | None]
    """None deletes the key."""
    expected: Mapping[bytes, Expected]
    """The versions that keys have to have, those that are written or others."""

    def largest_record(self) -> int:
        """The size of the largest record, in bytes."""
        largest = 0
        for key, value in self.values.items():
            size = len(key) + (0 if value is None else len(value))
            largest = max(size, largest)
        return largest + RECORD_OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class Accepted:
    """Writes that hold."""

    first: int
    """Where the first of them lies in the batch; the others follow."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Writes of which a key has another version than they expect."""

    key: bytes
    expected: Expected
    actual: int | None
    """The version that the key has; where ``in_batch``, the place of its record in the batch."""
    in_batch: bool


@dataclass(frozen=True, slots=True)
class Batch:
    """What is appended in one step, and what each of those who wrote is told once that is committed."""

    records: list[tuple[bytes, bytes | None]]
    verdicts: list[Accepted | Mismatch]


def decide(requests: Sequence[Writes], version_of: Callable[[bytes], int | None]) -> Batch:
    """Take writes in their order, each on the state that those before it left.

    ``version_of`` tells the version of a key before the batch, None of one that is absent. A version within the batch
    is not known to anybody yet, so who expects any of a key that the batch wrote is refused; a key that it deleted is
    absent.
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
