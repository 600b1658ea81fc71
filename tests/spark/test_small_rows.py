"""The settings of Spark that docs/performance.md advises where rows are small."""

import pyarrow as pa
import pytest

from benchmarks.session import SMALL_ROWS

BYTES = 80_000_000
"""More than a batch has where Spark's own limit holds."""


@pytest.fixture
def small_rows(spark):
    """The session has them while the test runs."""
    before = {name: spark.conf.get(name) for name in SMALL_ROWS}
    for name, value in SMALL_ROWS.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.mark.usefixtures("small_rows")
def test_a_batch_of_more_than_sparks_own_limit_comes_whole(spark):
    """So its bytes end no batch, and Spark does not measure it before each row."""
    rows = int(SMALL_ROWS["spark.sql.execution.arrow.maxRecordsPerBatch"])

    def count(batches):
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows]})

    values = spark.range(0, rows, 1, 1).selectExpr(f"repeat('x', {BYTES // rows}) AS value")
    assert [each.rows for each in values.mapInArrow(count, "rows long").collect()] == [rows]
