"""The Spark settings that docs/performance.md recommends for small rows."""

from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks.session import SMALL_ROWS
from tests.spark.session_settings import session_settings

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]

ROOT = Path(__file__).parents[2]
BYTES = 80_000_000
"""More bytes than a batch holds under Spark's default limit."""


def test_batch_above_the_default_limit_is_not_split(spark):
    """No batch reaches the limit in bytes, and Spark does not measure the batch before each row."""
    rows = int(SMALL_ROWS["spark.sql.execution.arrow.maxRecordsPerBatch"])

    def count(batches):
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows]})

    values = spark.range(0, rows, 1, 1).selectExpr(f"repeat('x', {BYTES // rows}) AS value")
    with session_settings(spark, SMALL_ROWS):
        assert [each.rows for each in values.mapInArrow(count, "rows long").collect()] == [rows]


@pytest.mark.parametrize("file", ["docs/performance.md", "conf/spark-defaults.conf"])
def test_benchmarks_use_the_recommended_settings(file):
    text = (ROOT / file).read_text()
    assert [name for name, value in SMALL_ROWS.items() if f"{name} {value}\n" not in text] == []
