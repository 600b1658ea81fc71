"""The digest of a batch covers every row, its count and every bit of it, and neither order nor batch boundaries."""

import struct
from datetime import timedelta

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from spark_cas.core.digest import joined_digest, multiset_digest, row_digests
from spark_cas.core.records import RECORDS
from tests.core.test_digest import EPOCH, Row, batch, some_rows
from tests.support.strategies import cuts, record_batches


def digest_of(*batches: pa.RecordBatch) -> str:
    return multiset_digest(pa.Table.from_batches(batches, RECORDS))


def reference(rows: list[Row]) -> str:
    """Compute the digest by the definition in the docstring of ``multiset_digest``, row by row."""

    def length(content: bytes | None) -> bytes:
        return struct.pack("<q", -1 if content is None else len(content))

    total = 0
    for key, value, headers, time in rows:
        ms = -(2**63) if time is None else (time - EPOCH) // timedelta(milliseconds=1)
        text = (
            length(key) + length(value) + struct.pack("<qq", ms, len(headers or [])) + (key or b"") + (value or b"")
        )
        for header in headers or []:
            name, content = (None, None) if header is None else header
            name = None if name is None else name.encode()
            text += (struct.pack("<q", -2) if header is None else length(name)) + length(content)
            text += (name or b"") + (content or b"")
        total += xxhash.xxh3_128_intdigest(text)
    return f"{total % 2**128:032x}"


@given(some_rows)
def test_digest_matches_its_docstring(rows: list[Row]):
    assert digest_of(batch(rows)) == reference(rows)


def test_its_values_stay_the_same_across_releases():
    rows = [(b"key", b"value", [("a", b"1"), None], EPOCH), (None, None, None, None), (b"", b"", [], EPOCH)]
    assert digest_of(batch(rows)) == "f3910b5700e4bda211fea76113a5a0ae"
    assert digest_of(batch([])) == joined_digest() == "0" * 32


@given(st.data(), record_batches(odd=True))
def test_order_and_cuts_do_not_matter(data: st.DataObject, records: pa.RecordBatch):
    order = data.draw(st.permutations(range(records.num_rows)))
    shuffled = records.take(pa.array(order, pa.int64()))
    assert digest_of(*data.draw(cuts(shuffled))) == digest_of(records)


@given(record_batches(odd=True), record_batches(odd=True))
def test_digests_join(one: pa.RecordBatch, other: pa.RecordBatch):
    assert joined_digest(digest_of(one), digest_of(other)) == digest_of(one, other)


@given(some_rows, some_rows)
def test_other_rows_or_the_same_at_other_counts_differ(one: list[Row], other: list[Row]):
    def counted(rows: list[Row]) -> list[str]:
        return sorted(repr((key, value, headers or [], time)) for key, value, headers, time in rows)

    assert (digest_of(batch(one)) == digest_of(batch(other))) == (counted(one) == counted(other))
    assert one == [] or digest_of(batch(one * 2)) != digest_of(batch(one))


def test_sums_of_many_rows_carry_from_digit_to_digit():
    row = (b"\x01", b"", None, None)
    number = int.from_bytes(row_digests(batch([row]))[0])
    assert int(digest_of(batch([row] * 5000)), 16) == 5000 * number % 2**128


def test_a_batch_in_another_schema_is_refused():
    with pytest.raises(TypeError, match="schema RECORDS"):
        row_digests(batch([]).select(RECORDS.names[:2]))
