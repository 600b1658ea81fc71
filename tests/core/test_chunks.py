import itertools
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cas.core.chunks import ChunkBuffer, ChunkLimits
from spark_cas.core.errors import RecordTooLargeError
from spark_cas.core.records import RECORD_OVERHEAD_BYTES, RECORDS, record_sizes
from tests.support.strategies import cuts, record_batches

ROOMY = ChunkLimits(max_records=1_000, max_bytes=1_000_000, max_seconds=1_000)
LARGEST_DRAWN = 200
"""No drawn record takes more bytes than this."""


def rows_of(count: int, size: int = 0) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{"key": b"%d" % i, "value": b"." * size, "headers": None, "timestamp": None} for i in range(count)],
        schema=RECORDS,
    )


def bytes_in(table: pa.Table) -> int:
    return sum(int(record_sizes(batch).sum()) for batch in table.to_batches())


@given(
    record_batches(max_rows=40).flatmap(cuts),
    st.integers(1, 12),
    st.integers(LARGEST_DRAWN, 1_000),
)
def test_chunks_are_the_input_cut_within_the_limits(batches: list[pa.RecordBatch], max_records: int, max_bytes: int):
    limits = ChunkLimits(max_records, max_bytes, max_seconds=1_000)
    buffer = ChunkBuffer(limits, 0)
    full = [chunk for batch in batches for chunk in buffer.add(batch, now=0.0, first_row=0)]
    held, held_bytes = buffer.records, buffer.bytes
    rest = buffer.take()
    assert pa.concat_tables([*full, rest]).equals(pa.Table.from_batches(batches, RECORDS))
    assert (held, held_bytes) == (rest.num_rows, bytes_in(rest))
    for chunk in [*full, rest]:
        assert chunk.num_rows <= max_records
        assert bytes_in(chunk) <= max_bytes
        assert chunk.schema.equals(RECORDS)
    for chunk, after in itertools.pairwise([*full, rest]):
        first = record_sizes(after.slice(0, 1).to_batches()[0])[0]
        assert chunk.num_rows == max_records or bytes_in(chunk) + first > max_bytes, "a chunk was cut early"
    assert rest.num_rows > 0 or not any(batch.num_rows for batch in batches), "the last rows were not held back"


def test_full_chunk_is_kept_until_more_rows_arrive():
    buffer = ChunkBuffer(ChunkLimits(max_records=3), 0)
    assert list(buffer.add(rows_of(3), now=0.0, first_row=0)) == []
    assert buffer.records == 3
    (full,) = buffer.add(rows_of(1), now=0.0, first_row=3)
    assert (full.num_rows, buffer.records) == (3, 1)


def test_an_empty_batch_moves_nothing():
    buffer = ChunkBuffer(ChunkLimits(max_records=1, max_seconds=0), 0)
    assert list(buffer.add(rows_of(1), now=0.0, first_row=0)) == []
    assert list(buffer.add(rows_of(0), now=99.0, first_row=1)) == []
    assert buffer.take().num_rows == 1


def test_waiting_chunk_is_released_with_the_next_rows():
    buffer = ChunkBuffer(ChunkLimits(max_seconds=30), 0)
    assert list(buffer.add(rows_of(2), now=100.0, first_row=0)) == []
    assert list(buffer.add(rows_of(2), now=129.9, first_row=2)) == []
    (waited,) = buffer.add(rows_of(2), now=130.0, first_row=4)
    assert (waited.num_rows, buffer.records) == (4, 2)
    assert list(buffer.add(rows_of(1), now=159.9, first_row=6)) == []
    (waited,) = buffer.add(rows_of(1), now=160.0, first_row=7)
    assert (waited.num_rows, buffer.records) == (3, 1)


def test_chunk_restarts_after_a_release():
    buffer = ChunkBuffer(ROOMY, 0)
    assert list(buffer.add(rows_of(2), now=0.0, first_row=0)) == []
    assert buffer.take().num_rows == 2
    assert (buffer.records, buffer.bytes, buffer.take().num_rows) == (0, 0, 0)


def test_a_record_that_just_fits_is_a_chunk():
    limits = ChunkLimits(max_bytes=RECORD_OVERHEAD_BYTES + 11)
    buffer = ChunkBuffer(limits, 0)
    full = list(buffer.add(rows_of(3, size=10), now=0.0, first_row=0))
    assert [chunk.num_rows for chunk in [*full, buffer.take()]] == [1, 1, 1]


def test_too_large_record_is_named_and_its_batch_rejected():
    size = RECORD_OVERHEAD_BYTES + 11
    buffer = ChunkBuffer(ChunkLimits(max_bytes=size, max_bytes_setting="option maximum"), 5)
    batch = pa.concat_batches([rows_of(2), rows_of(1, size=11)])
    with pytest.raises(
        RecordTooLargeError, match=rf"row 42 of partition 5 \(key 0\) takes {size + 1} bytes.* {size}\."
    ) as raised:
        list(buffer.add(batch, now=0.0, first_row=40))
    assert "Raise option maximum" in raised.value.message
    assert (buffer.records, buffer.bytes) == (0, 0)


def test_a_record_larger_than_the_log_takes_is_named_with_that_limit():
    size = RECORD_OVERHEAD_BYTES + 11
    buffer = ChunkBuffer(ChunkLimits(max_record_bytes=size), 0)
    assert list(buffer.add(rows_of(3, size=10), now=0.0, first_row=0)) == []
    with pytest.raises(RecordTooLargeError, match=rf"row 4 .* takes {size + 1} bytes.* at most {size} bytes"):
        list(buffer.add(pa.concat_batches([rows_of(1), rows_of(1, size=11)]), now=0.0, first_row=3))
    assert buffer.records == 3


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (None, "row 3 of partition 0 takes"),
        (b"N1\n\xff", r"row 3 of partition 0 (key N1\n\xff) takes"),
        ("é".encode() * 1_000, f"row 3 of partition 0 (key {'é' * 60}…) takes"),
    ],
)
def test_key_of_a_large_record_is_readable_and_short(key, name):
    batch = pa.RecordBatch.from_pylist([{"key": key, "value": b"." * 100}], schema=RECORDS)
    with pytest.raises(RecordTooLargeError) as raised:
        list(ChunkBuffer(ChunkLimits(max_bytes=100), 0).add(batch, now=0.0, first_row=3))
    assert raised.value.message.startswith(name)


@pytest.mark.parametrize(
    "limits",
    [{"max_records": 0}, {"max_bytes": 0}, {"max_seconds": -1.0}, {"max_records": -5}, {"max_record_bytes": 0}],
)
def test_limits_that_no_row_could_pass_are_refused(limits: dict[str, Any]):
    with pytest.raises(ValueError, match="at least one record"):
        ChunkLimits(**limits)
