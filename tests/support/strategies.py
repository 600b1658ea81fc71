"""Hypothesis strategies for random records."""

import itertools
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from spark_cas.core.records import RECORDS

_TIMES_MS = st.integers(1, 2**42)  # not every backend can store the timestamp 0
_ANY_TIMES_MS = st.integers(-(2**45), 2**45)


def rows(*, odd: bool = False) -> st.SearchStrategy[dict[str, Any]]:
    """Generate a record as a dict.

    Args:
        odd: include values that the schema permits but some logs cannot store. These are null headers in a list,
            header keys that are null or contain NUL, and times before 1970.
    """
    keys: st.SearchStrategy[str | None] = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=4)
    if odd:
        keys = st.none() | st.text(max_size=4)
    header = st.fixed_dictionaries({"key": keys, "value": st.none() | st.binary(max_size=4)})
    entries: st.SearchStrategy[dict[str, Any] | None] = st.none() | header if odd else header
    return st.fixed_dictionaries(
        {
            "key": st.none() | st.binary(max_size=6),
            "value": st.none() | st.binary(max_size=40),
            "headers": st.none() | st.lists(entries, max_size=3),
            "timestamp": st.none() | (_ANY_TIMES_MS if odd else _TIMES_MS),
        }
    )


def record_batches(*, min_rows: int = 0, max_rows: int = 20, odd: bool = False) -> st.SearchStrategy[pa.RecordBatch]:
    """Generate a batch in `RECORDS`, possibly as a slice of a larger batch. For ``odd`` see `rows`."""
    lists = st.lists(rows(odd=odd), min_size=min_rows, max_size=max_rows)
    around = st.lists(rows(odd=odd), max_size=2)
    return st.builds(_slice_of, around, lists, around)


@st.composite
def cuts(draw: st.DrawFn, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Split the rows of a batch into any number of batches, in order. Some may be empty."""
    inner = draw(st.lists(st.integers(0, batch.num_rows), max_size=4).map(sorted))
    bounds = [0, *inner, batch.num_rows]
    return [batch.slice(a, b - a) for a, b in itertools.pairwise(bounds)]


def _slice_of(
    before: list[dict[str, Any]], kept: list[dict[str, Any]], after: list[dict[str, Any]]
) -> pa.RecordBatch:
    whole = pa.RecordBatch.from_pylist([*before, *kept, *after], schema=RECORDS)
    return whole.slice(len(before), len(kept))
