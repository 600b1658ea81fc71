"""Records of a history, and a running digest of the records that a reader has seen."""

from typing import NamedTuple

import xxhash


class Record(NamedTuple):
    """A key and a value.

    Two appends of a history never send equal records to one log, because the value names the append.
    """

    key: str
    value: str


class Found(NamedTuple):
    """A record that a reader found, and its offset."""

    offset: int
    record: Record


def chained(before: int, found: Found) -> int:
    """Return the digest of a sequence of records from the digest of all but the last. The digest of none is 0.

    The digest is 64 bits of xxh3 over the previous digest, the offset, the key and the value. Its size is constant,
    as in S2's verification, so a reader does not keep the records.
    """
    offset, (key, value) = found
    line = f"{before}/{offset}/{len(key)}/{key}/{value}"
    return xxhash.xxh3_64_intdigest(line.encode())
