"""What is expected of where partitions end (KIP-27): an offset each, the end as it is, or nothing; and the rule."""

import json
import re
from dataclasses import dataclass

from spark_cas.core.errors import OptionError
from spark_cas.core.offsets import Bounds
from spark_cas.core.outcome import Conflict, Truncated


@dataclass(frozen=True, slots=True)
class ExpectedOffsets:
    """What the user expects of the log: ``end``, ``none``, or an offset (None: no check) per partition."""

    mode: str
    offsets: tuple[tuple[int, int | None], ...] = ()

    @classmethod
    def parse(cls, text: str) -> "ExpectedOffsets":
        """Read ``end``, ``none`` or JSON such as ``{"0": 17, "3": null}``; else OptionError."""
        if text.strip().lower() in ("end", "none"):
            return cls(text.strip().lower())
        try:
            given = json.loads(text, object_pairs_hook=_Pairs)
        except (ValueError, RecursionError):
            given = None
        if not isinstance(given, _Pairs) or not given:
            raise OptionError(
                "expected offsets must be 'end', 'none' or a JSON object from partition to offset, "
                'such as {"0": 17, "3": null}; what was given is none of these.'
            )
        offsets = dict(_parse_entry(key, value) for key, value in given)
        if len(offsets) < len(given):
            raise OptionError("the expected offsets name a partition twice. Name each once.")
        return cls("offsets", tuple(sorted(offsets.items())))

    @property
    def named(self) -> tuple[int, ...]:
        """The partitions of which an offset is expected by its number."""
        return tuple(partition for partition, expected in self.offsets if expected is not None)

    def resolve(self, end_offsets: tuple[int, ...]) -> tuple[int | None, ...]:
        """The claim of each partition; partitions that the user did not name are claimed at their end."""
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
    """The entries of a JSON object, where a dict would hide a name given twice."""


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
    """Decide whether an expected offset matches a partition; None when it does.

    It matches when no committed record has an offset >= ``expected`` and ``expected <= end_offset``.
    ``next_record`` is the offset of the first committed record at or after ``expected``, None when there
    is none: on a log with gaps a claim below the end still matches while the gap holds no record.
    ``expected`` None asks for no check (KIP-27's -1).
    """
    if expected is None:
        return None
    if expected > bounds.end_offset:
        return Truncated(expected, bounds.end_offset)
    if next_record is not None or expected < bounds.start_offset:
        return Conflict(expected, bounds.end_offset, bounds.start_offset)
    return None
