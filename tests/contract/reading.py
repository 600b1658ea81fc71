"""Reads of ranges, and records that are read unchanged."""

import time
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_cas.core.offsets import OffsetRange
from spark_cas.core.outcome import Appended
from spark_cas.core.records import RECORDS
from spark_cas.log.backend import Backend
from tests.contract.base import ContractBase, NewBackend
from tests.support.strategies import record_batches
from tests.support.writing import TIME_MS, JobWriter, append_foreign, plan_of, records_in


def as_kept(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Normalize rows: a log may store no headers and null headers as the same."""
    return [row | {"headers": row["headers"] or []} for row in rows]


def with_number_times(records: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """Return rows with timestamps as milliseconds."""
    at = RECORDS.get_field_index("timestamp")
    return as_kept(records.set_column(at, "timestamp", records.column("timestamp").cast(pa.int64())).to_pylist())


def append_at(writer: JobWriter, *times_ms: int) -> None:
    """Append one chunk of records with these timestamps."""
    rows = [{"key": None, "value": None, "timestamp": each} for each in times_ms]
    assert isinstance(writer.append(pa.Table.from_pylist(rows, RECORDS)), Appended)


class ReadContract(ContractBase):
    """Every range within the bounds is readable, and no other."""

    def test_every_range_is_read_exactly(self, backend: Backend) -> None:
        for values in ["abc", "d", "efgh", "i"]:
            append_foreign(backend, 0, *values)
        kept = records_in(backend, 0)
        assert [row["value"] for _, row in kept] == [b"%c" % each for each in b"abcdefghi"]
        end = backend.bounds(0).end_offset
        for base in range(end + 1):
            for upto in range(base, end + 1):
                read = [
                    (first + at, row)
                    for first, records in backend.read(0, OffsetRange(base, upto))
                    for at, row in enumerate(records.to_pylist())
                ]
                assert read == [(offset, row) for offset, row in kept if base <= offset < upto]

    def test_offsets_increase_and_records_have_the_schema(self, backend: Backend) -> None:
        for values in ["abc", "d", "efgh"]:
            append_foreign(backend, 0, *values)
        seen = 0
        for first, records in backend.read(0, backend.bounds(0).range):
            assert isinstance(records, pa.RecordBatch)
            assert records.schema.equals(RECORDS)
            assert first >= seen
            seen = first + records.num_rows
        assert seen <= backend.bounds(0).end_offset

    @pytest.mark.parametrize(("base", "end"), [(-4, 1), (0, 1), (1, 1), (5, 8)])
    def test_ranges_past_the_end_are_refused(self, backend: Backend, base: int, end: int) -> None:
        append_foreign(backend, 0, "a", "b", "c", "d")
        log_end = backend.bounds(0).end_offset
        requested = OffsetRange(log_end + base, log_end + end)
        named = f"offsets {requested.base_offset} to {requested.end_offset} were requested.* 0 to {log_end}"
        with pytest.raises(ValueError, match=named):
            list(backend.read(0, requested))

    def test_append_during_a_read_is_not_in_the_range(self, backend: Backend) -> None:
        append_foreign(backend, 0, "a")
        append_foreign(backend, 0, "b")
        reading = backend.read(0, backend.bounds(0).range)
        read = next(reading)[1].to_pylist()
        append_foreign(backend, 0, "c")
        read += [row for _, records in reading for row in records.to_pylist()]
        assert [row["value"] for row in read] == [b"a", b"b"]

    @pytest.mark.parametrize(
        "columns",
        [("value",), ("timestamp", "key"), ("headers",), ("headers", "timestamp", "value", "key"), ()],
        ids=lambda columns: "+".join(columns) or "none",
    )
    def test_only_some_columns(self, backend: Backend, columns: tuple[str, ...]) -> None:
        append_foreign(backend, 0, "a", "b")
        append_foreign(backend, 0, "c")
        offsets = OffsetRange(1, 3)
        whole = [batch for _, batch in backend.read(0, offsets)]
        read = [batch for _, batch in backend.read(0, offsets, columns)]
        assert [batch.num_rows for batch in read] == [batch.num_rows for batch in whole]
        assert read == [batch.select(list(columns)) for batch in whole]

    def test_the_bounds_of_several_partitions_at_once(self, backend: Backend) -> None:
        append_foreign(backend, 1, "a", "b")
        append_foreign(backend, 2, "c")
        for waiting in (True, False):
            assert backend.bounds_of([], waiting=waiting) == ()
            found = backend.bounds_of([2, 0, 1], waiting=waiting)
            assert found == tuple(backend.bounds(each) for each in (2, 0, 1))

    def test_offset_since_is_the_first_record_at_least_as_new(self, backend: Backend) -> None:
        """The timestamps of the chunks are old, so a transaction marker of the log is newer than all records."""
        assert backend.offset_since(0, 0) is None
        writer = JobWriter(backend, plan_of(backend, "job"))
        for times in [(5, 3), (9, 2, 7), (1,), (12, 4)]:
            append_at(writer, *times)
        kept = [(offset, row["timestamp"].timestamp() * 1000) for offset, row in records_in(backend, 0)]
        assert [time for _, time in kept] == [5, 3, 9, 2, 7, 1, 12, 4]
        for since in (-5, *range(14), TIME_MS, round(time.time() * 1000) - 60_000, 2**61):
            expected = next((offset for offset, time in kept if time >= since), None)
            assert backend.offset_since(0, since) == expected, since
        assert backend.offset_since(1, 0) is None

    def test_offset_since_follows_new_records(self, backend: Backend) -> None:
        writer = JobWriter(backend, plan_of(backend, "job"))
        append_at(writer, 5)
        assert backend.offset_since(0, TIME_MS) is None
        append_at(writer, 6, TIME_MS, 7)
        append_at(writer, TIME_MS)
        (expected, _) = next(each for each in records_in(backend, 0) if each[1]["timestamp"].timestamp() > 1)
        assert backend.offset_since(0, TIME_MS) == expected

    def test_offset_since_ignores_trimmed_records(self, backend: Backend) -> None:
        writer = JobWriter(backend, plan_of(backend, "job"))
        for times in [(TIME_MS, 5), (7, 6), (8, 4)]:
            append_at(writer, *times)
        backend.trim(0, records_in(backend, 0)[2][0])
        kept = [offset for offset, _ in records_in(backend, 0)]
        assert [backend.offset_since(0, since) for since in (0, 7, 8, 9, TIME_MS)] == [
            kept[0],
            kept[0],
            kept[2],
            None,
            None,
        ]

    def test_offset_since_is_never_below_the_start(self, backend: Backend) -> None:
        for values in ["ab", "cd", "ef"]:
            append_foreign(backend, 0, *values)
        backend.trim(0, records_in(backend, 0)[4][0])
        first = records_in(backend, 0)[0][0]
        assert backend.offset_since(0, 0) == first
        assert backend.offset_since(0, TIME_MS) == first

    def test_any_records_survive_a_round_trip(self, new_backend: NewBackend) -> None:
        @settings(max_examples=self.examples, deadline=None)
        @given(st.lists(record_batches(max_rows=8), min_size=1, max_size=3))
        def check(batches: list[pa.RecordBatch]) -> None:
            with new_backend() as backend:
                backend.create(1)
                writer = JobWriter(backend, plan_of(backend, "job"))
                went_in: list[dict[str, Any]] = []
                for batch in batches:
                    table = pa.Table.from_batches([batch], RECORDS)
                    outcome = writer.append(table)
                    assert isinstance(outcome, Appended)
                    filled = batch.column("timestamp").null_count > 0
                    assert (outcome.timestamp_ms is not None) == filled
                    assert not filled or outcome.timestamp_ms in range(TIME_MS, round(time.time() * 1000) + 1)
                    for row in with_number_times(batch):
                        row["timestamp"] = outcome.timestamp_ms if row["timestamp"] is None else row["timestamp"]
                        went_in.append(row)
                came_back = [
                    row
                    for _, records in backend.read(0, backend.bounds(0).range)
                    for row in with_number_times(records)
                ]
                assert came_back == went_in

        check()
