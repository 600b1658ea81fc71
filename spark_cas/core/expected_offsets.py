"""Expected offsets of partitions (KIP-27): parsing, resolution, and the check against a log."""

import json
import re
from dataclasses import dataclass

from spark_cas.core.errors import OptionError
from spark_cas.core.offsets import Bounds
from spark_cas.core.outcome import Conflict, Truncated


@dataclass(frozen=True, slots=True)
class ExpectedOffsets:
    """The expected offsets of a write: ``end``, ``none``, or an offset per partition (None for no check)."""

    mode: str
    offsets: tuple[tuple[int, int | None], ...] = ()

    @classmethod
    def parse(cls, text: str) -> "ExpectedOffsets":
        """Parse ``end``, ``none`` or JSON such as ``{"0": 17, "3": null}``; raise OptionError for other text."""
        if text.strip().lower() in ("end", "none"):
            return cls(text.strip().lower())
        try:
            values = json.loads(text, object_pairs_hook=_Pairs)
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, _Pairs) or not values:
            raise OptionError(
                "expected offsets must be 'end', 'none' or a JSON object from partition to offset, "
                'such as {"0": 17, "3": null}, but the value is none of these.'
            )
        offsets = dict(_parse_entry(key, value) for key, value in values)
        if len(offsets) < len(values):
            raise OptionError("the expected offsets name a partition twice. Name each once.")
        return cls("offsets", tuple(sorted(offsets.items())))

    @property
    def named(self) -> tuple[int, ...]:
        """The partitions with an explicit expected offset."""
        return tuple(partition for partition, expected in self.offsets if expected is not None)

    def resolve(self, end_offsets: tuple[int, ...]) -> tuple[int | None, ...]:
        """Return the expected offset of each partition; None for no check.

        A partition that the user did not name is expected at its end offset, unless the mode is ``none``. Raises
        OptionError if the expected offsets name a partition that the log does not have.
        """
        if self.mode == "none":
            return (None,) * len(end_offsets)
        claims: list[int | None] = list(end_offsets)
        for partition, expected in self.offsets:
            if partition >= len(end_offsets):
                raise OptionError(
                    f"the expected offsets name partition {partition}, but the log has {len(end_offsets)} "
                    f"partitions (0 to {len(end_offsets) - 1}). Name only those."
                )
            claims[partition] = expected
        return tuple(claims)


class _Pairs(list[tuple[str, object]]):
    """The entries of a JSON object, as a list because a dict would hide duplicate keys."""


_PARTITION = re.compile(r"0|[1-9][0-9]{0,8}")
_OFFSETS = range(2**63)


def _parse_entry(key: str, value: object) -> tuple[int, int | None]:
    if _PARTITION.fullmatch(key) is None:
        raise OptionError("expected offsets: each key must be a partition number from 0 on, in quotes.")
    if value is None:
        return int(key), None
    if isinstance(value, bool) or not isinstance(value, int) or value not in _OFFSETS:
        raise OptionError(
            f"expected offsets: the offset of partition {key} must be a whole number from 0 on, or null for no check."
        )
    return int(key), value


def check_expected(expected: int | None, bounds: Bounds, next_record: int | None) -> Conflict | Truncated | None:
    """Check an expected offset against a partition; return None if it matches.

    It matches if ``expected <= end_offset`` and no committed record has an offset >= ``expected``. On a log with
    gaps, an offset below the end can match if only a gap follows it. The result is Truncated if ``expected`` is after
    the end. It is Conflict if a record is at or after ``expected``, or if the log was trimmed beyond it.

    Args:
        expected: The expected offset; None for no check (KIP-27's -1).
        next_record: The offset of the first committed record at or after ``expected``; None if there is none.
    """
    if expected is None:
        return None
    if expected > bounds.end_offset:
        return Truncated(expected, bounds.end_offset)
    if next_record is not None or expected < bounds.start_offset:
        return Conflict(expected, bounds.end_offset, bounds.start_offset)
    return None
