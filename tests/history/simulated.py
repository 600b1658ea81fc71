"""A simulated log without defects, driven step by step by Hypothesis, and the history of its clients."""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from tests.history.made import append, read, records_of
from tests.history.operations import Operation
from tests.history.records import Found

PARTITIONS = 2


@dataclass(frozen=True)
class Step:
    """An append: its partitions, its reported result, and the distance of its expected offsets from the end."""

    partitions: tuple[int, ...]
    checked: bool
    behind: int
    unheard: bool
    applied: bool
    """Whether an append without a reported result took effect."""
    chunks: int
    """The number of chunks of a load; 0 for an atomic append."""
    gap: int
    early: int
    late: int


STEPS = st.lists(
    st.builds(
        Step,
        partitions=st.sampled_from([(0,), (1,), (0, 1)]),
        checked=st.booleans(),
        behind=st.sampled_from([0, 0, 1]),
        unheard=st.booleans(),
        applied=st.booleans(),
        chunks=st.sampled_from([0, 0, 1, 2]),
        gap=st.sampled_from([0, 1]),
        early=st.integers(1, 25),
        late=st.integers(1, 25),
    ),
    min_size=3,
    max_size=12,
)


@dataclass
class World:
    """The log and the reported results."""

    log: dict[int, list[Found]] = field(default_factory=lambda: {at: [] for at in range(PARTITIONS)})
    ends: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    history: list[Operation] = field(default_factory=list)

    def run(self, steps: list[Step]) -> "World":
        """Run all steps. Each takes effect at a time between its start and its end, and a read follows it."""
        for number, step in enumerate(steps):
            now = 100 + 10 * number
            self.history.append(self._take(f"j{number}", step, now - step.early, now + step.late))
            self.history.append(read(now + 1, {at: (self.ends[at], list(self.log[at])) for at in self.log}))
        return self

    def _take(self, job: str, step: Step, start: int, end: int) -> Operation:
        expected: dict[int, int | None] = {
            at: max(self.ends[at] - step.behind, 0) if step.checked else None for at in step.partitions
        }
        count = 2 * max(step.chunks, 1)
        asked: dict[str, Any] = {
            "counts": dict.fromkeys(step.partitions, count),
            "chunk_records": 2 if step.chunks else None,
        }
        if any(
            found.offset >= offset for at, offset in expected.items() if offset is not None for found in self.log[at]
        ):
            return append(job, start, None if step.unheard else end, expected, kind="CONFLICT", **asked)
        if step.unheard and not step.applied:
            return append(job, start, None, expected, **asked)
        ranges = {at: self._put(job, at, count, step.gap) for at in step.partitions}
        return append(job, start, None if step.unheard else end, expected, ranges=ranges, **asked)

    def _put(self, job: str, partition: int, count: int, gap: int) -> tuple[int, int]:
        base = self.ends[partition]
        self.log[partition] += [Found(base + n, each) for n, each in enumerate(records_of(job, partition, count))]
        self.ends[partition] = base + count + gap
        return base, self.ends[partition]
