"""The records of the store: one record for each write, and leader records.

A write is a record with its key and value. A deletion is a record without a value. Any reader of a changelog can read
both. A leader record names the node that leads the shard from that offset on. It has a reserved key and no value, so
it adds no row to the state.
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
    """Return writes as records in the `RECORDS` schema, in the same order."""
    keys = pa.array([key for key, _ in writes], pa.binary())
    values = pa.array([value for _, value in writes], pa.binary())
    return _table(keys, values, pa.nulls(len(writes), HEADERS))


def leader_record(address: str) -> pa.Table:
    """Return the record that makes the node at ``address`` the leader."""
    headers = pa.array([[{"key": _LEADER_HEADER, "value": address.encode()}]], HEADERS)
    return _table(pa.array([LEADER_KEY], pa.binary()), pa.nulls(1, pa.binary()), headers)


def _table(keys: pa.Array, values: pa.Array, headers: pa.Array) -> pa.Table:
    times = pa.nulls(len(keys), RECORDS.field("timestamp").type)
    return pa.Table.from_arrays([keys, values, headers, times], schema=RECORDS)


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader of a shard, and the offset of its leader record."""

    address: str
    offset: int


@dataclass(frozen=True, slots=True)
class Changes:
    """The effect of records at consecutive offsets on a state."""

    keys: dict[bytes, tuple[bytes | None, int]]
    """The newest value and its offset, by key. The value of a deleted key is None."""
    leader: Leader | None = None
    """The newest leader that the records name."""

    @classmethod
    def read(cls, base_offset: int, records: pa.RecordBatch) -> "Changes":
        """Return the changes in records of any producer; the first record is at ``base_offset``.

        Records without a key change nothing. Without the column ``headers``, the records name no leader.
        """
        keys, values = records.column("key").to_pylist(), records.column("value").to_pylist()
        latest = {key: (value, base_offset + at) for at, (key, value) in enumerate(zip(keys, values, strict=True))}
        latest.pop(None, None)
        leader = None
        if latest.pop(LEADER_KEY, None) and "headers" in records.schema.names:
            leader_rows = pc.indices_nonzero(pc.equal(records.column("key"), pa.scalar(LEADER_KEY, pa.binary())))
            for at in reversed(leader_rows.to_pylist()):
                address = _leader_in(records.column("headers")[at].as_py() or [])
                if address is not None:
                    leader = Leader(address, base_offset + at)
                    break
        return cls(latest, leader)


def _leader_in(headers: list[dict[str, Any]]) -> str | None:
    """Return the address in the headers of a leader record; None if another producer used the key."""
    for header in headers:
        if header and header["key"] == _LEADER_HEADER and header["value"] is not None:
            return str(header["value"], errors="replace")
    return None
