"""Properties 12 to 14 of `check_log`: the observations of concurrent readers.

A read is an operation ``read`` with the result ``seen``. For each partition that it read in one step, ``seen`` has
the end offset, the number of records below it, and their digest (`chained`).
"""

import hashlib
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from functools import cache

from tests.history.jobs import Job
from tests.history.operations import OK, Operation
from tests.history.placement import Placement
from tests.history.records import chained
from tests.history.violation import Violation

READ = "read"


def reads(history: Iterable[Operation], placement: Placement) -> Iterator[Violation]:
    """Return the reads that do not match the log."""
    found = [each for each in history if each.name == READ and each.outcome == OK]
    prefixes = {partition: _Prefixes(placement, partition) for partition in placement.log}
    yield from _ends(found, placement)
    shares = cache(lambda looked: {at: _shares(placement, at, looked) for at in looked if at in placement.log})
    for read in found:
        share, shares_of = 0, shares(frozenset(map(int, read.result["seen"])))
        for text, (end_offset, count, digest) in read.result["seen"].items():
            if int(text) not in prefixes:
                yield Violation(13, f"{read.process} read partition {text}, which is not there")
                continue
            prefix = prefixes[int(text)]
            at = prefix.below(end_offset)
            share ^= shares_of[int(text)][at]
            if (count, digest) != (at, prefix.digests[at]):
                told = f"{count} records below {end_offset} of partition {text}, where {at} lie in the end"
                yield Violation(13, f"{read.process} read {told}, or others")
        if share:
            yield Violation(14, f"{read.process} saw a part of {_torn(read, placement)}")


def _ends(found: Iterable[Operation], placement: Placement) -> Iterator[Violation]:
    parts = [part for part in placement.parts.values() if part.job.acknowledged]
    parts.sort(key=lambda part: part.job.end_ns)
    newest: dict[int, tuple[int, str]] = {}
    at = 0
    for read in sorted(found, key=lambda each: each.start_ns):
        while at < len(parts) and parts[at].job.end_ns < read.start_ns:
            part, at = parts[at], at + 1
            newest[part.partition] = max(newest.get(part.partition, (-1, "")), (part.offsets[-1], str(part)))
        for text, (end_offset, _, _) in read.result["seen"].items():
            offset, last = newest.get(int(text), (-1, ""))
            if end_offset <= offset:
                yield Violation(
                    12, f"{read.process} read the end offset {end_offset} of partition {text} after {last}"
                )


class _Prefixes:
    """The digest of each prefix of a partition."""

    def __init__(self, placement: Placement, partition: int) -> None:
        self._offsets = [found.offset for found in placement.log[partition]]
        self.digests = [0]
        for found in placement.log[partition]:
            self.digests.append(chained(self.digests[-1], found))

    def below(self, offset: int) -> int:
        return bisect_left(self._offsets, offset)


def _shares(placement: Placement, partition: int, looked: Collection[int]) -> list[int]:
    """For each prefix of a partition, return the XOR of the `_share` of its records."""
    shares = [0]
    for found, job in zip(placement.log[partition], placement.owners[partition], strict=True):
        shares.append(shares[-1] ^ _share(placement, job, partition, found.offset, looked))
    return shares


def _share(placement: Placement, job: Job | None, partition: int, offset: int, looked: Collection[int]) -> int:
    """Return a number for the last record of an append in each partition that was read; their XOR is 0.

    The XOR over a reader's prefixes is 0 if the reader saw each append in all of these partitions or in none.
    Otherwise it is 0 with a probability of 2**-64.
    """
    if job is None or job.chunk_records is not None:
        return 0
    part = placement.parts.get((job.name, partition))
    if part is None or part.offsets[-1] != offset:
        return 0
    first, *others = sorted(at for at in job.records if at in looked)
    if partition != first:
        return _number(job.name, partition)
    rest = 0
    for other in others:
        rest ^= _number(job.name, other)
    return rest


def _number(name: str, partition: int) -> int:
    return int.from_bytes(hashlib.blake2b(f"{partition}/{name}".encode(), digest_size=8).digest())


def _torn(read: Operation, placement: Placement) -> str:
    seen = {int(text): end_offset for text, (end_offset, _, _) in read.result["seen"].items()}
    for job in placement.jobs.values():
        parts = [part for part in placement.of(job) if part.offsets and part.partition in seen]
        if job.chunk_records is None and len({part.offsets[-1] < seen[part.partition] for part in parts}) > 1:
            return f"job {job.name}"
    return "an append over several partitions"
