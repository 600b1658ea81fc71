"""How the store's writes lie in the log: one record a key, as any reader of a changelog has it, and who leads.

A write is a record of its key and value, a deletion a record without a value. A leader record says which node leads
the shard from there on: its key is reserved, and it has no value, so that a state has no row of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_cas import RECORDS
from spark_cas.core.records import HEADERS

LEADER_KEY = b"spark_cas.kv/leader"
_LEADER_HEADER = "spark_cas.kv.leader"

READ_COLUMNS = ("key", "value", "headers")
"""The columns that `Changes.read` needs."""


def table_of(writes: Sequence[tuple[bytes, bytes | None]]) -> pa.Table:
    """Writes in their order, as records in `RECORDS`."""
    keys = pa.array([key for key, _ in writes], pa.binary())
    values = pa.array([value for _, value in writes], pa.binary())
    return _table(keys, values, pa.nulls(len(writes), HEADERS))


def leader_record(address: str) -> pa.Table:
    """The record that names a leader."""
    headers = pa.array([[{"key": _LEADER_HEADER, "value": address.encode()}]], HEADERS)
    return _table(pa.array([LEADER_KEY], pa.binary()), pa.nulls(1, pa.binary()), headers)


def _table(keys: pa.Array, values: pa.Array, headers: pa.Array) -> pa.Table:
    times = pa.nulls(len(keys), RECORDS.field("timestamp").type)
    return pa.Table.from_arrays([keys, values, headers, times], schema=RECORDS)


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads a shard, and since which offset."""

    address: str
    offset: int


@dataclass(frozen=True, slots=True)
class Changes:
    """What records at consecutive offsets do to a state."""

    keys: dict[bytes, tuple[bytes | None, int]]
    """Of each key the newest value, None for a deletion, and its offset."""
    leader: Leader | None = None
    """The newest leader among them."""

    @classmethod
    def read(cls, base_offset: int, records: pa.RecordBatch) -> "Changes":
        """Return the changes of records of any producer, the first at ``base_offset``.

        Records without a key change nothing. Records without the column ``headers`` name no leader.
        """
        keys, values = records.column("key").to_pylist(), records.column("value").to_pylist()
        found = {key: (value, base_offset + at) for at, (key, value) in enumerate(zip(keys, values, strict=True))}
        found.pop(None, None)
        leader = None
        if found.pop(LEADER_KEY, None) and "headers" in records.schema.names:
            named = pc.indices_nonzero(pc.equal(records.column("key"), pa.scalar(LEADER_KEY, pa.binary())))
            for at in reversed(named.to_pylist()):
                address = _leader_in(records.column("headers")[at].as_py() or [])
                if address is not None:
                    leader = Leader(address, base_offset + at)
                    break
        return cls(found, leader)


def _leader_in(headers: list[dict[str, Any]]) -> str | None:
    """The address in the headers of a leader record; None where somebody else used the key."""
    for header in headers:
        if header and header["key"] == _LEADER_HEADER and header["value"] is not None:
            return str(header["value"], errors="replace")
    return None
