"""The actions on a batch by a partition's ledger entry, as a table, and the one order of a batch's rows."""

from dataclasses import replace
from itertools import permutations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cas.core.digest import joined_digest, multiset_digest, row_digests
from spark_cas.core.errors import CheckpointMismatchError, JobMismatchError
from spark_cas.core.micro_batch import (
    OFFSET,
    Batch,
    batch_so_far,
    begun_after,
    forgot_none,
    in_order,
    missing_rows,
    unexpired_ms,
)
from spark_cas.core.plan import BatchProgress, Plan, Progress
from spark_cas.core.recorded_fields import from_json, to_json
from spark_cas.core.records import RECORDS
from tests.support.strategies import record_batches

BEGUN = Progress("job", 0, 0, "0", 0, 0, 0, 0, complete=False, committed_at_ms=5, task="begin/0")


def entry(query: str, number: int, *, complete: bool, after: int = 0) -> Progress:
    return replace(BEGUN, rows=9, batch=BatchProgress(query, number, 2, "ab", complete, after))


def so_far(progress: Progress | None, query: str = "q", number: int = 7) -> BatchProgress:
    return batch_so_far(Batch(query, number), "job", 3, progress)


@pytest.mark.parametrize("before", [None, BEGUN, entry("q", 6, complete=True), entry("q", 0, complete=True)])
def test_next_batch_is_new(before: Progress | None):
    assert so_far(before) == BatchProgress("q", 7, 0, "0" * 32, complete=False)


@pytest.mark.parametrize("complete", [False, True])
def test_replayed_batch_matches_the_ledger(complete: bool):
    assert so_far(entry("q", 7, complete=complete)) == BatchProgress("q", 7, 2, "ab", complete)


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize(
    ("query", "number", "error", "said"),
    [
        ("q", 8, CheckpointMismatchError, "its checkpoint is older than the log, or was reset"),
        ("other", 6, JobMismatchError, "belongs to streaming query other"),
        ("other", 7, JobMismatchError, "belongs to streaming query other"),
        ("other", 8, JobMismatchError, "the checkpoint was deleted"),
    ],
)
def test_batch_out_of_order_is_rejected(query: str, number: int, error: type[Exception], said: str, complete: bool):
    with pytest.raises(error, match=rf"partition 3: .*{said}") as refused:
        so_far(entry(query, number, complete=complete))
    assert "Nothing of " in str(refused.value)


def test_a_batch_after_one_that_is_half_there_is_refused():
    with pytest.raises(CheckpointMismatchError, match=r"2 rows of batch 6 .* lacks the others.* next batch is 6"):
        so_far(entry("q", 6, complete=False))


DAY_MS = 24 * 3_600_000
KEPT_MS = unexpired_ms(None)
PLAN = Plan("job", "log", 0, (None,), (0,), pinned_at_ms=3)


@pytest.mark.parametrize(
    ("ledger", "after", "sure_until"),
    [
        ([], 3, 3 + KEPT_MS),
        ([None, None], 3, 3 + KEPT_MS),
        ([None, BEGUN], 5, None),
        ([entry("q", 6, complete=True)], 5, None),
        ([entry("other", 6, complete=True)], 3, 3 + KEPT_MS),
        ([entry("q", 7, complete=True), None], 3, 3 + KEPT_MS),
        ([entry("q", 7, complete=False, after=4), None], 4, 4 + KEPT_MS),
        ([entry("q", 7, complete=True, after=9), entry("q", 7, complete=True, after=8)], 9, 9 + KEPT_MS),
        ([entry("q", 7, complete=True, after=9), BEGUN], 9, None),
        ([entry("other", 7, complete=True, after=9)], 3, 3 + KEPT_MS),
        ([entry("q", 8, complete=True, after=9)], 3, 3 + KEPT_MS),
    ],
)
def test_evidence_that_the_ledger_has_all_of_a_batch(
    ledger: list[Progress | None], after: int, sure_until: int | None
):
    batch = Batch("q", 7)
    assert begun_after(batch, PLAN, ledger) == after
    if sure_until is None:
        assert forgot_none(batch, PLAN, ledger, 9 * KEPT_MS, lambda: KEPT_MS)
    else:
        assert forgot_none(batch, PLAN, ledger, sure_until - 1, lambda: KEPT_MS)
        assert not forgot_none(batch, PLAN, ledger, sure_until, lambda: KEPT_MS)


@pytest.mark.parametrize(("kept", "days"), [(None, 3.5), (7, 3.5), (30, 3.5), (1, 0.5)])
def test_age_below_which_an_entry_has_not_expired(kept: int | None, days: float):
    assert unexpired_ms(None if kept is None else kept * DAY_MS) == days * DAY_MS


def test_entries_written_before_there_were_streams_are_read():
    load = replace(BEGUN, rows=9, complete=True)
    assert from_json(Progress, to_json(load).replace(',"batch":null', "")) == load
    assert from_json(Progress, to_json(load).replace('"batch":null,', "")) == load
    stream = entry("q", 7, complete=True)
    assert from_json(Progress, to_json(stream)) == stream


@given(st.data(), record_batches(odd=True), st.permutations(["key", "value", "timestamp"]), st.integers(1, 3))
def test_rows_have_one_order_for_any_input_order(
    data: st.DataObject, records: pa.RecordBatch, columns: list[str], count: int
):
    shuffled = records.take(pa.array(data.draw(st.permutations(range(records.num_rows))), pa.int64()))
    one, other = (in_order(pa.Table.from_batches([each]), columns[:count]) for each in (records, shuffled))
    assert one.schema == RECORDS
    assert one.combine_chunks() == other.combine_chunks() or same_rows(one, other)
    first = [value.as_py() for value in one.column(columns[0])]
    given_ = [value for value in first if value is not None]
    assert given_ == sorted(given_)
    assert first == given_ + [None] * (len(first) - len(given_))


def same_rows(one: pa.Table, other: pa.Table) -> bool:
    """Compare two tables. Null headers are equal to an empty list, as in a log."""

    def plain(table: pa.Table) -> list[dict]:
        return [{**row, "headers": row["headers"] or []} for row in table.to_pylist()]

    return plain(one) == plain(other)


def test_all_columns_break_ties():
    rows = [
        {"key": b"k", "value": value, "headers": [{"key": "h", "value": header}], "timestamp": None}
        for value in (b"a", b"b")
        for header in (b"1", b"2")
    ]
    orders = {
        str(in_order(pa.Table.from_pylist(list(each), RECORDS), ["key"]).to_pylist()) for each in permutations(rows)
    }
    assert len(orders) == 1


@pytest.mark.parametrize(
    ("order_by", "expected"), [(None, b"cbad"), ([], b"abcd"), (["timestamp"], b"cbad"), (["value"], b"abcd")]
)
def test_offsets_are_the_order_of_rows_of_a_log(order_by: list[str] | None, expected: bytes):
    offsets = [2, 1, 0, None]
    rows = [{"key": b"k", "value": bytes([each]), "headers": None, "timestamp": None} for each in b"abcd"]
    table = pa.Table.from_pylist(rows, RECORDS).append_column(OFFSET, pa.array(offsets, pa.int64()))
    result = in_order(table, order_by)
    assert result.schema == RECORDS
    assert b"".join(result.column("value").to_pylist()) == expected


def digests_of(rows: pa.Table) -> list[bytes]:
    return sorted(digest for batch in rows.to_batches() for digest in row_digests(batch))


def held_rows(rows: pa.Table) -> BatchProgress:
    return BatchProgress("q", 1, rows.num_rows, multiset_digest(rows), complete=True, uncertain_from=0)


@given(record_batches(), record_batches(), st.data())
def test_rows_that_the_log_does_not_hold_are_returned(records: pa.RecordBatch, others: pa.RecordBatch, data):
    mine = pa.Table.from_batches([records])
    is_held = data.draw(st.lists(st.booleans(), min_size=mine.num_rows, max_size=mine.num_rows))
    held = mine.filter(pa.array(is_held, pa.bool_()))
    own = set(digests_of(mine)) | set(digests_of(without_times(mine)))
    foreign = pa.Table.from_batches([others])
    foreign = foreign.filter(pa.array([digest not in own for digest in ordered_digests(foreign)], pa.bool_()))
    there = pa.concat_tables([foreign, with_times(held)])
    there = there.take(pa.array(data.draw(st.permutations(range(there.num_rows))), pa.int64()))
    rest = missing_rows(mine, there, held_rows(held))
    assert rest is not None
    assert sorted(digests_of(rest) + digests_of(held)) == digests_of(mine)


def ordered_digests(rows: pa.Table) -> list[bytes]:
    return [digest for batch in without_times(rows).to_batches() for digest in row_digests(batch)]


def without_times(rows: pa.Table) -> pa.Table:
    return rows.set_column(3, RECORDS.field("timestamp"), pa.nulls(rows.num_rows, RECORDS.field("timestamp").type))


def with_times(rows: pa.Table) -> pa.Table:
    """Return the rows as a log stores them: it sets missing timestamps."""
    times = rows.column("timestamp").fill_null(pa.scalar(5, RECORDS.field("timestamp").type))
    return rows.set_column(3, RECORDS.field("timestamp"), times)


def values(*rows: str) -> pa.Table:
    return pa.Table.from_pylist([{"value": row.encode(), "timestamp": 1} for row in rows], RECORDS)


@pytest.mark.parametrize(
    ("there", "held"),
    [
        ("", "a"),
        ("a", "aa"),
        ("ab", "a"),
        ("ax", "x"),
        ("aab", "aab"),
    ],
    ids=["removed", "one removed", "an equal row of another writer", "a row that is not in the batch", "fewer now"],
)
def test_rows_that_cannot_be_distinguished_are_not_guessed(there: str, held: str):
    assert missing_rows(values("a", "b"), values(*there), held_rows(values(*held))) is None


def test_newest_records_are_the_rows_if_an_equal_one_of_another_writer_precedes_them():
    missing = missing_rows(values("a", "b"), values("b", "a"), held_rows(values("a")))
    assert missing is not None
    assert missing.column("value").to_pylist() == [b"b"]


def test_order_of_the_remaining_rows_is_kept():
    rest = missing_rows(values(*"dcbab"), values(*"xbd"), held_rows(values(*"bd")))
    assert rest is not None
    assert rest.column("value").to_pylist() == [b"c", b"a", b"b"]
    assert joined_digest(multiset_digest(rest), multiset_digest(values(*"bd"))) == multiset_digest(values(*"dcbab"))
