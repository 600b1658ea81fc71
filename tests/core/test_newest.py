"""Removal of records that a newer record of the same key supersedes, within a limit of memory."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cas.spark.reading import read
from spark_cas.spark.reading.read import newest_of_keys

KEYS = st.one_of(st.none(), st.sampled_from([b"", b"a", b"b", b"cc"]), st.binary(max_size=3))


def batches_of(keys, sizes):
    """Yield records with these keys in batches of these sizes and a last batch. The values are the positions."""
    rows = pa.record_batch({"key": pa.array(keys, pa.binary()), "value": pa.array(range(len(keys)), pa.int64())})
    at = 0
    for size in sizes:
        yield rows.slice(at, size)
        at += size
    yield rows.slice(at)


def told(batches):
    return [(row["key"], row["value"]) for batch in batches for row in batch.to_pylist()]


@given(st.lists(KEYS, max_size=60), st.lists(st.integers(0, 9), max_size=9), st.sampled_from([1, 60, 200, 10**9]))
def test_the_newest_record_of_each_key_is_left_in_its_place(keys, sizes, most_bytes):
    left = told(newest_of_keys(batches_of(keys, sizes), most_bytes))
    assert set(left) <= {(key, at) for at, key in enumerate(keys)}
    assert [at for _, at in left] == sorted({at for _, at in left})
    assert dict(left) == {key: at for at, key in enumerate(keys)}


@pytest.mark.parametrize("records", [10, 10_000])
def test_of_few_keys_one_record_each_is_left_however_many_there_are(records):
    keys = [f"{at % 10}".encode() for at in range(records)]
    left = told(newest_of_keys(batches_of(keys, [100] * 99), 5_000))
    assert left == [(f"{at % 10}".encode(), at) for at in range(records - 10, records)]


def test_records_are_passed_unchanged_if_keys_are_unique():
    given_batches = list(batches_of([f"{at}".encode() for at in range(1_000)], [100] * 9))
    asked = iter(given_batches)
    left = newest_of_keys(asked, given_batches[0].nbytes)
    assert told([next(left)]) == told(given_batches[:1])
    assert len(list(asked)) == 9
    left = newest_of_keys(iter(given_batches), given_batches[0].nbytes)
    assert all(mine is theirs for mine, theirs in zip([*left][1:], given_batches[1:], strict=True))


def test_where_half_of_it_is_old_more_is_compared():
    keys = [f"{at // 2}".encode() for at in range(1_000)]
    left = told(newest_of_keys(batches_of(keys, [100] * 9), 1))
    assert left == [(f"{at}".encode(), 2 * at + 1) for at in range(500)]


def test_no_key_is_one_more_key():
    assert told(newest_of_keys(batches_of([None, b"a", None], []))) == [(b"a", 1), (None, 2)]
    assert told(newest_of_keys([])) == []


def test_batches_of_one_record_are_not_held_in_any_number(monkeypatch):
    compare, held = read._newest, []

    def watched(batches):
        held.append(len(batches))
        return compare(batches)

    monkeypatch.setattr(read, "_newest", watched)
    keys = [f"{at}".encode() for at in range(1_000)]
    assert len(told(newest_of_keys(batches_of(keys, [1] * 999), 100_000))) == 1_000
    assert max(held) < 60
