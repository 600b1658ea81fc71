"""Records as histories name them, and a running digest of those that a reader has seen."""

from typing import NamedTuple

import xxhash


class Record(NamedTuple):
    """A key and a value. In one log no two appends of a history send equal records: the value names the append."""

    key: str
    value: str


class Found(NamedTuple):
    """A record that a reader found, and where."""

    offset: int
    record: Record


def chained(before: int, found: Found) -> int:
    """The digest of some records and one behind them, from the digest of the former: 0 of none.

    64 bits of xxh3 over the digest before, the offset, the key and the value. Of constant size, as in S2's
    verification: who reads on need not keep what it has read.
    """
    offset, (key, value) = found
    line = f"{before}/{offset}/{len(key)}/{key}/{value}"
    return xxhash.xxh3_64_intdigest(line.encode())
