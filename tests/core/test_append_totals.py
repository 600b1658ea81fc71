import pyarrow as pa

from spark_cas.core.offsets import OffsetRange
from spark_cas.core.outcome import NO_TOTALS, Appended, Appends, Tally

CHUNK = Appended(OffsetRange(3, 5), 2, 7, start_offset=1, has_offset=True, resolved=False)


def said(*appended: Appended) -> Appends:
    so_far = NO_TOTALS
    for each in appended:
        so_far = so_far.and_then(each)
    return so_far


def test_of_no_append_nothing_is_known():
    closing = Appended(OffsetRange(5, 5), 0, None, 4, has_offset=True, resolved=True)
    assert said(closing) == NO_TOTALS == Appends(None, None, None, None, None)
    assert NO_TOTALS.has_timestamp is None
    assert said(CHUNK, closing) == said(CHUNK)


def test_tries_and_aborted_rows_are_counted_over_all_chunks():
    retried = Appended(OffsetRange(9, 11), 2, 8, 2, has_offset=True, resolved=True, attempts=3, aborted_rows=4)
    assert said(CHUNK, retried, retried) == Appends(7, 8, timestamp_ms=8, has_offset=True, start_offset=2)


def test_timestamp_is_the_newest_reported_one():
    without = Appended(OffsetRange(5, 7), 2, None, 1, has_offset=True, resolved=False)
    assert (CHUNK.has_timestamp, without.has_timestamp) == (True, False)
    assert (said(CHUNK, without).timestamp_ms, said(CHUNK, without).has_timestamp) == (7, True)
    assert (said(without).timestamp_ms, said(without).has_timestamp) == (None, False)


def test_chunk_without_reported_offsets_is_counted():
    proven = Appended(OffsetRange(5, 7), 2, None, 1, has_offset=False, resolved=False)
    assert said(CHUNK, proven, CHUNK).has_offset is False


def test_tally_counts_chunks_with_rows_and_a_restarted_transaction_as_retries():
    records = pa.table({"key": pa.array([1, 2], pa.int64())})
    closing = Appended(OffsetRange(5, 5), 0, None, 4, has_offset=True, resolved=True, attempts=5)
    tally = Tally().and_then(CHUNK, records).and_then(closing, records.slice(2))
    assert tally == Tally(bytes=16, chunks=1)
    retried = Appended(OffsetRange(9, 11), 2, 8, 2, has_offset=True, resolved=True, attempts=3)
    assert tally.restarted().and_then(retried, records) == Tally(bytes=16, chunks=1, retries=3)
