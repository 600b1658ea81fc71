"""A load or micro-batch as a whole: its chunks in all partitions are a group, whose outcome is recorded once.

Until then none of them is visible, and from then on all are, or none ever is: then their offsets hold no record.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from spark_cas.core.chunks import Chunk
from spark_cas.core.errors import FormatError
from spark_cas.core.plan import Plan


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """What was decided of a group."""

    committed: bool
    ends: tuple[tuple[int, int], ...] = ()
    """Where the group's chunks end, by partition, if it was committed. Nothing of it behind that was ever in the log,
    nor in another partition: an attempt of its tasks put that there which nobody waited for."""

    def holds(self, partition: int, end_offset: int) -> bool:
        """Whether a chunk of the group that ends there is in the log."""
        return self.committed and end_offset <= dict(self.ends).get(partition, -1)

    def is_below(self, ends: Mapping[int, int]) -> bool:
        """Whether all of the group that is in the log lies below these ends; partitions that are not given count."""
        return all(end <= ends.get(partition, end) for partition, end in self.ends)


ABORTED = GroupOutcome(committed=False)


def group_name(job: str, plan: str, number: int, batch_id: int | None = None) -> str:
    """A name that no other group has, of a job, one of its plans, and how many groups of that were aborted.

    A stream has groups for each of its micro-batches.
    """
    return f"{job}/{plan}.{number}" if batch_id is None else f"{job}/{plan}.{batch_id}.{number}"


def takes_place(plan: Plan, chunk: Chunk) -> bool:
    """Whether a chunk is put at the end of a partition: of a group also one without records that completes nothing.

    That one has the partition end where it is expected to until the group is decided.
    """
    return chunk.records.num_rows > 0 or (bool(plan.group) and not chunk.complete)


def job_of(group: str) -> str:
    """The job whose rows a group holds."""
    return group.partition("/")[0]


def batch_of(group: str) -> int | None:
    """The micro-batch whose rows a group holds, None where they are those of a load."""
    parts = group.partition("/")[2].split(".")
    return int(parts[1]) if len(parts) == 3 else None  # noqa: PLR2004 - a plan, a batch and a number


def outcome_to_json(outcome: GroupOutcome) -> str:
    """An outcome as one line of JSON."""
    return json.dumps({"committed": outcome.committed, "ends": outcome.ends}, separators=(",", ":"))


def outcome_from_json(text: str | bytes, group: str) -> GroupOutcome:
    """Read what `outcome_to_json` wrote of a group. Raises FormatError."""
    try:
        fields = json.loads(text)
        return GroupOutcome(fields["committed"] is True, tuple((int(at), int(end)) for at, end in fields["ends"]))
    except (KeyError, TypeError, ValueError):
        raise FormatError(
            f"the outcome of group {group} is not what this spark_cas writes. Was it written by a newer version, or "
            f"does another program write there?"
        ) from None
