import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given

from spark_cas.core.records import (
    RECORD_OVERHEAD_BYTES,
    RECORDS,
    fill_timestamps,
    record_sizes,
    records_of_bytes,
)
from tests.support.strategies import record_batches


def size_of(row: dict[str, Any]) -> int:
    entries = [entry for entry in row["headers"] or [] if entry is not None]
    return (
        RECORD_OVERHEAD_BYTES
        + len(row["key"] or b"")
        + len(row["value"] or b"")
        + sum(len((entry["key"] or "").encode()) + len(entry["value"] or b"") for entry in entries)
    )


@given(record_batches(odd=True))
def test_sizes_are_those_of_each_row(batch: pa.RecordBatch):
    assert record_sizes(batch).tolist() == [size_of(row) for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("row", "size"),
    [
        ({"key": None, "value": None, "headers": None, "timestamp": None}, 0),
        ({"key": b"", "value": b"", "headers": [], "timestamp": 5}, 0),
        ({"key": b"abc", "value": None, "headers": None, "timestamp": None}, 3),
        ({"key": b"abc", "value": b"0123456789", "headers": None, "timestamp": None}, 13),
        ({"key": None, "value": None, "headers": [{"key": "é", "value": b"xy"}], "timestamp": None}, 4),
        ({"key": None, "value": None, "headers": [{"key": "h", "value": None}] * 3, "timestamp": None}, 3),
    ],
)
def test_sizes_by_example(row: dict[str, Any], size: int):
    batch = pa.RecordBatch.from_pylist([row], schema=RECORDS)
    assert record_sizes(batch).tolist() == [RECORD_OVERHEAD_BYTES + size]


def test_header_bytes_under_a_null_slot_do_not_count():
    whole = pa.RecordBatch.from_pylist(
        [
            {"key": b"k", "value": b"v", "headers": [{"key": "abc", "value": b"defg"}], "timestamp": None},
            {"key": b"k", "value": b"v", "headers": [{"key": "h", "value": b"x"}], "timestamp": None},
        ],
        schema=RECORDS,
    )
    headers = whole.column("headers")
    masked = pa.ListArray.from_arrays(
        headers.offsets, headers.values, type=headers.type, mask=pa.array([True, False])
    )
    batch = whole.set_column(2, RECORDS.field("headers"), masked)
    assert record_sizes(batch).tolist() == [RECORD_OVERHEAD_BYTES + 2, RECORD_OVERHEAD_BYTES + 4]


@given(record_batches(odd=True))
def test_only_null_timestamps_are_filled(batch: pa.RecordBatch):
    table = pa.Table.from_batches([batch], RECORDS)
    filled = fill_timestamps(table, 1_700_000_000_123)
    assert filled.schema.equals(RECORDS)
    assert filled.drop_columns("timestamp").equals(table.drop_columns("timestamp"))
    before = table.column("timestamp").cast(pa.int64()).to_pylist()
    after = filled.column("timestamp").cast(pa.int64()).to_pylist()
    assert after == [1_700_000_000_123 if each is None else each for each in before]


@pytest.mark.parametrize("count", [0, 1, 9])
def test_records_of_bytes_have_these_and_nothing_else(count: int):
    keys = [None, b"", b"k", b"\0\xff" * 9][:count] * 3
    values = keys[::-1]
    nothing = [None] * len(keys)
    made = records_of_bytes(keys, values)
    made.validate(full=True)
    assert made.equals(pa.table([keys, values, nothing, nothing], schema=RECORDS))


def imports_pandas(statement: str) -> bool:
    program = f"import sys\n{statement}\nprint('pandas' in sys.modules)"
    return (
        subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True).stdout == "True\n"
    )


def test_records_of_bytes_take_no_import_of_pandas():
    made = "from spark_cas.core.records import records_of_bytes as made; made([b'k', None], [None, b'v'])"
    assert not imports_pandas(made)
    assert imports_pandas(f"{made}; import pyarrow; pyarrow.array([1])")
