"""The digest covers every row and every bit of it, and not the Arrow representation of the rows."""

import struct
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
import xxhash
from hypothesis import assume, given
from hypothesis import strategies as st

from spark_cas.core.digest import RunningDigest
from spark_cas.core.records import HEADERS, RECORDS

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Row = tuple[Any, ...]

few_bytes = st.none() | st.binary(max_size=4)
headers = st.none() | st.lists(st.none() | st.tuples(st.none() | st.text(max_size=2), few_bytes), max_size=3)
times = st.none() | st.integers(-(2**40), 2**40).map(lambda ms: EPOCH + timedelta(milliseconds=ms))
fields = (few_bytes, few_bytes, headers, times)
some_rows = st.lists(st.tuples(*fields), max_size=8)


def batch(rows: list[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else [[]] * 4
    return pa.record_batch(
        [pa.array(column, field.type) for column, field in zip(columns, RECORDS, strict=True)],
        schema=RECORDS,
    )


def digest_of(*batches: pa.RecordBatch) -> str:
    digest = RunningDigest()
    for each in batches:
        digest.update(each)
    return digest.hexdigest()


def reference(rows: list[Row]) -> str:
    """Compute the digest by the definition in the docstring of ``RunningDigest``, row by row."""
    streams = [b""] * 10

    def put(stream: int, content: str | bytes | None, length_of_null: int = -1) -> None:
        content = content.encode() if isinstance(content, str) else content
        streams[stream] += struct.pack("<q", length_of_null if content is None else len(content))
        streams[stream + 1] += content or b""

    for key, value, row_headers, time in rows:
        put(0, key)
        put(2, value)
        streams[4] += struct.pack("<q", -(2**63) if time is None else (time - EPOCH) // timedelta(milliseconds=1))
        streams[5] += struct.pack("<q", len(row_headers or []))
        for header in row_headers or []:
            put(6, header and header[0], -2 if header is None else -1)
            put(8, header and header[1])
    parts = [
        b"spark_cas rows 1",
        struct.pack("<q", len(rows)),
        *(xxhash.xxh3_128(s).digest() for s in streams),
    ]
    return xxhash.xxh3_128(b"".join(parts)).hexdigest()


def same(rows: list[Row]) -> list[Row]:
    """Normalize rows, so that equal digests mean equal rows."""
    return [(key, value, row_headers or [], time) for key, value, row_headers, time in rows]


# Fixed vectors, from the plainest rows to rows with all parts of a record.
FIXED = [
    ([], "a9a34d1b342327ef0b1c8d196b47b119"),
    ([(None, None, None, None)], "160558baef47f060c3772358036918e7"),
    ([(b"", b"", [], EPOCH)], "820a524f4c75931dedb0a1638e716737"),
    ([(b"key", b"value", None, None)], "36ece0068ced328b13f2be8dae3f2001"),
    (
        [
            (
                b"k1",
                b"v1",
                [("trace", b"\x00\x01"), ("é", None)],
                EPOCH + timedelta(milliseconds=1_700_000_000_123),
            ),
            (None, b"v2", None, None),
            (b"k3", None, [], EPOCH - timedelta(milliseconds=1)),
        ],
        "ea18b332dc0d921381127a5411d92c3f",
    ),
]


@pytest.mark.parametrize(("rows", "expected"), FIXED)
def test_the_definition_never_changes(rows: list[Row], expected: str) -> None:
    """Jobs in progress store such digests. If one changed, these jobs could not resume."""
    assert digest_of(batch(rows)) == expected


@given(some_rows)
def test_follows_its_definition(rows: list[Row]) -> None:
    assert digest_of(batch(rows)) == reference(rows)


@given(some_rows, st.lists(st.integers(0, 8), max_size=3))
def test_batch_boundaries_do_not_matter(rows: list[Row], cuts: list[int]) -> None:
    edges = sorted([0, *(min(cut, len(rows)) for cut in cuts), len(rows)])
    pieces = list(pairwise(edges))
    whole = batch(rows)
    expected = digest_of(whole)
    assert digest_of(*(batch(rows[a:b]) for a, b in pieces)) == expected
    assert digest_of(*(whole.slice(a, b - a) for a, b in pieces)) == expected


@given(some_rows, some_rows, some_rows)
def test_rows_around_a_slice_do_not_matter(before: list[Row], rows: list[Row], after: list[Row]) -> None:
    assert digest_of(batch(before + rows + after).slice(len(before), len(rows))) == digest_of(batch(rows))


@given(st.data(), some_rows.filter(bool))
def test_any_change_of_one_field_changes_it(data: st.DataObject, rows: list[Row]) -> None:
    at = data.draw(st.integers(0, len(rows) - 1))
    column = data.draw(st.integers(0, 3))
    changed = list(rows[at])
    changed[column] = data.draw(fields[column])
    others = [*rows[:at], tuple(changed), *rows[at + 1 :]]
    assert (digest_of(batch(rows)) == digest_of(batch(others))) == (same(rows) == same(others))


@given(some_rows, some_rows)
def test_other_rows_or_another_order_change_it(some: list[Row], others: list[Row]) -> None:
    assume(same(some + others) != same(others + some))
    assert digest_of(batch(some + others)) != digest_of(batch(others + some))
    assert len({digest_of(batch(rows)) for rows in (some, some + others)}) == 1 + bool(others)


@given(st.binary(min_size=1, max_size=6), st.data())
def test_moved_bytes_change_it(content: bytes, data: st.DataObject) -> None:
    """Cut the same bytes in two ways into the keys and values of two rows, or of two headers."""
    cut = st.tuples(*[st.integers(0, len(content))] * 3).map(sorted)
    one, other = data.draw(cut), data.draw(cut)
    assume(one != other)

    def parts(cuts: list[int]) -> list[bytes]:
        return [content[a:b] for a, b in zip([0, *cuts], [*cuts, len(content)], strict=True)]

    def as_rows(cuts: list[int]) -> list[Row]:
        a, b, c, d = parts(cuts)
        return [(a, b, None, None), (c, d, None, None)]

    def as_headers(cuts: list[int]) -> list[Row]:
        a, b, c, d = parts(cuts)
        return [(None, None, [(a.hex(), b), (c.hex(), d)], None)]

    assert digest_of(batch(as_rows(one))) != digest_of(batch(as_rows(other)))
    assert digest_of(batch(as_headers(one))) != digest_of(batch(as_headers(other)))


def test_a_header_that_moves_to_the_next_row_changes_it() -> None:
    here: list[Row] = [(b"k", b"v", [("a", b"1"), ("b", b"2")], None), (b"k", b"v", [], None)]
    there: list[Row] = [(b"k", b"v", [("a", b"1")], None), (b"k", b"v", [("b", b"2")], None)]
    assert digest_of(batch(here)) != digest_of(batch(there))


def with_garbage(rows: list[Row]) -> pa.RecordBatch:
    """Return the rows as a batch that has a value in memory for each null."""
    garbage = (b"garbage", b"rubbish", [("junk", b"junk"), ("waste", b"waste")], EPOCH + timedelta(days=1))
    columns = []
    for i, field in enumerate(RECORDS):
        filled = pa.array([garbage[i] if row[i] is None else row[i] for row in rows], field.type)
        if field.name == "headers":
            filled = pa.ListArray.from_arrays(filled.offsets, headers_with_garbage(filled), type=HEADERS)
        columns.append(masked(filled, [row[i] is None for row in rows]))
    return pa.record_batch(columns, schema=RECORDS)


def headers_with_garbage(filled: pa.ListArray) -> pa.StructArray:
    entries = filled.values.to_pylist()
    names = ["dirt" if e is None or e["key"] is None else e["key"] for e in entries]
    values = [b"dirt" if e is None or e["value"] is None else e["value"] for e in entries]
    dirty = pa.StructArray.from_arrays(
        [
            masked(pa.array(names, pa.string()), [e is not None and e["key"] is None for e in entries]),
            masked(pa.array(values, pa.binary()), [e is not None and e["value"] is None for e in entries]),
        ],
        fields=list(HEADERS.value_type),
    )
    return masked(dirty, [e is None for e in entries])


def masked(array: pa.Array, nulls: list[bool]) -> pa.Array:
    """Return the array with the same memory, and with these slots declared null."""
    validity = pa.array([not null for null in nulls], pa.bool_()).buffers()[1]
    own, children = array.type.num_buffers, []
    if pa.types.is_list(array.type):
        own, children = 2, [array.values]
    elif pa.types.is_struct(array.type):
        own, children = 1, [array.field(i) for i in range(array.type.num_fields)]
    buffers = [validity, *array.buffers()[1:own]]
    return pa.Array.from_buffers(array.type, len(array), buffers, children=children)


@given(some_rows, st.integers(0, 8))
def test_garbage_under_nulls_does_not_matter(rows: list[Row], start: int) -> None:
    dirty = with_garbage(rows)
    dirty.validate(full=True)
    assert digest_of(dirty) == digest_of(batch(rows))
    assert digest_of(dirty.slice(start)) == digest_of(batch(rows[start:]))


def test_hash_continues_after_a_read() -> None:
    digest = RunningDigest()
    rows: list[Row] = [(b"a", b"1", None, None), (b"b", b"2", None, None)]
    assert (digest.rows, digest.hexdigest()) == (0, digest_of())
    digest.update(batch(rows[:1]))
    assert (digest.rows, digest.hexdigest()) == (1, digest_of(batch(rows[:1])))
    assert digest.hexdigest() == digest_of(batch(rows[:1]))
    digest.update(batch(rows[1:]))
    assert (digest.rows, digest.hexdigest()) == (2, digest_of(batch(rows)))


@pytest.mark.parametrize(
    "schema",
    [
        RECORDS.remove(3),
        RECORDS.set(0, pa.field("key", pa.large_binary())),
        RECORDS.set(0, pa.field("key", pa.string())),
        RECORDS.set(3, pa.field("timestamp", pa.timestamp("us", tz="UTC"))),
        pa.schema([RECORDS.field(i) for i in (1, 0, 2, 3)]),
    ],
)
def test_another_schema_is_refused(schema: pa.Schema) -> None:
    """If the digest read another memory layout as RECORDS, its result would be meaningless."""
    digest = RunningDigest()
    with pytest.raises(TypeError, match="RECORDS"):
        digest.update(pa.RecordBatch.from_pylist([{}], schema=schema))
    assert (digest.rows, digest.hexdigest()) == (0, digest_of())
