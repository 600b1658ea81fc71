"""The arguments that librdkafka gets for a record, as it reads them from memory."""

import ctypes
import subprocess
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cas.core.records import RECORDS, fill_timestamps
from spark_cas.log.kafka.accelerators import librdkafka as c
from spark_cas.log.kafka.accelerators import record_arrays
from spark_cas.log.kafka.accelerators.record_arrays import arguments_of
from tests.support.strategies import record_batches

TOPIC, PARTITION, TAG = 2**47, 3, 7
LIKE_ALL = [(c.V_RKT, TOPIC), (c.V_PARTITION, PARTITION), (c.V_OPAQUE, TAG)]


def read(batch: pa.RecordBatch) -> Iterator[dict]:
    """Yield the records of all arguments. Asserts that each has the common arguments, and otherwise only its own."""
    for addresses, counts in arguments_of(batch, TOPIC, PARTITION, TAG):
        assert len(addresses) == len(counts)
        for address, count in zip(addresses, counts, strict=True):
            units = (c.VU * count).from_address(address)
            assert [(each.vtype, each.first) for each in units[:3]] == LIKE_ALL
            value, key, time, *headers = units[3:]
            assert [each.vtype for each in (value, key, time)] == [c.V_VALUE, c.V_KEY, c.V_TIMESTAMP]
            assert {each.vtype for each in headers} <= {c.V_HEADER}
            yield {
                "key": bytes_at(key.first, key.second),
                "value": bytes_at(value.first, value.second),
                "headers": [(ctypes.string_at(each.first), bytes_at(each.second, each.third)) for each in headers],
                "timestamp": time.first,
            }


def bytes_at(address: int, size: int) -> bytes | None:
    return ctypes.string_at(address, size) if address else None


def as_read(batch: pa.RecordBatch) -> list[dict]:
    times = batch.column("timestamp").cast(pa.int64()).to_pylist()
    return [
        {
            "key": row["key"],
            "value": row["value"],
            "headers": [(each["key"].encode(), each["value"]) for each in row["headers"] or []],
            "timestamp": time,
        }
        for row, time in zip(batch.drop_columns("timestamp").to_pylist(), times, strict=True)
    ]


@given(record_batches(min_rows=1), st.integers(1, 60))
def test_each_record_has_its_arguments_however_few_are_there_at_a_time(batch, at_a_time):
    [timed] = fill_timestamps(pa.Table.from_batches([batch]), 1_700_000_000_000).to_batches()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_arrays, "_UNITS", at_a_time)
        assert list(read(timed)) == as_read(timed)


def test_one_record_with_many_headers_makes_the_array_no_larger():
    rows = [{"value": b"%d" % each, "headers": [], "timestamp": each} for each in range(1, 10_000)]
    rows[5_000]["headers"] = [{"key": f"h{each}", "value": b"%d" % each} for each in range(1_000)]
    batch = pa.RecordBatch.from_pylist(rows, schema=RECORDS)
    assert max(len(counts) for _, counts in arguments_of(batch, TOPIC, PARTITION, TAG)) < 10
    assert list(read(batch)) == as_read(batch)


def test_planner_sends_records_without_pandas():
    """The import of pandas takes 0.7 s. The records are a plan and the tombstone of another one."""
    program = """
import sys
from spark_cas.core.records import record_sizes, records_of_bytes
from spark_cas.log.kafka.client.sending import held_back, refuse_unsendable
from spark_cas.log.kafka.accelerators.record_arrays import messages_of
records = records_of_bytes([b"plan", b"gone"], [b"value", None])
refuse_unsendable(records)
print(held_back(records, 1000), messages_of(records, 1)["len"], *map(record_sizes, records.to_batches()))
print("pandas" in sys.modules)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert ran.stdout == "2 [5 0] [41 36]\nFalse\n"
