"""Commit groups: all chunks of an atomic load or micro-batch, with one recorded outcome.

No chunk of a group is visible before the commit, and all are visible after it. If the group is aborted, no chunk is
ever visible, and its offsets hold no records.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from spark_cas.core.chunks import Chunk
from spark_cas.core.plan import Plan
from spark_cas.core.recorded_fields import from_fields, in_format


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """The recorded outcome of a commit group."""

    committed: bool
    ends: tuple[tuple[int, int], ...]
    """The end offset of the group in each partition, if it was committed. The commit excludes chunks after these
    offsets and in other partitions, which belong to abandoned task attempts."""

    def holds(self, partition: int, end_offset: int) -> bool:
        """Return whether the group is committed and its chunk with this end offset is part of the commit."""
        return self.committed and end_offset <= dict(self.ends).get(partition, -1)

    def is_below(self, ends: Mapping[int, int]) -> bool:
        """Return whether all committed chunks are below these end offsets.

        A partition without an entry has no limit.
        """
        return all(end <= ends.get(partition, end) for partition, end in self.ends)


ABORTED = GroupOutcome(committed=False, ends=())


def group_name(job: str, plan: str, number: int, batch_id: int | None = None) -> str:
    """Return a unique name for a commit group of a job's plan (`Plan.pinned_by`).

    ``number`` is that of earlier groups of the plan, or of the batch, that were aborted. A load has no ``batch_id``.
    """
    return f"{job}/{plan}.{number}" if batch_id is None else f"{job}/{plan}.{batch_id}.{number}"


def takes_place(plan: Plan, chunk: Chunk) -> bool:
    """Return whether a chunk must be appended at the end of its partition.

    This applies to a chunk with records. In a commit group it also applies to a chunk without records that does not
    complete the job. Such a chunk keeps the end offset of the partition until the group is committed or aborted.
    """
    return chunk.records.num_rows > 0 or (bool(plan.group) and not chunk.complete)


def job_of(group: str) -> str:
    """Return the job of a commit group."""
    return group.partition("/")[0]


def batch_of(group: str) -> int | None:
    """Return the micro-batch of a commit group; None for a load."""
    parts = group.partition("/")[2].split(".")
    return int(parts[1]) if len(parts) == 3 else None  # noqa: PLR2004 - a plan, a batch and a number


def outcome_from_json(text: str | bytes, group: str) -> GroupOutcome:
    """Parse the `to_json` of an outcome; raise FormatError for other text."""
    with in_format(f"the outcome of group {group}"):
        fields = json.loads(text)
        return from_fields(GroupOutcome, {name: fields[name] for name in ("committed", "ends")})
