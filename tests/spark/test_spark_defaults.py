"""The settings of Spark that come along: conf/spark-defaults.conf."""

from pathlib import Path

import pyarrow as pa
import pytest

FILE = Path(__file__).parents[2] / "conf" / "spark-defaults.conf"
BYTES = 80_000_000
"""More than a batch has where Spark's own limit holds."""


@pytest.fixture
def settings(spark):
    """Those of SQL, which the session has while the test runs."""
    given = dict(line.split(maxsplit=1) for line in FILE.read_text().splitlines() if line.startswith("spark.sql."))
    before = {name: spark.conf.get(name) for name in given}
    for name, value in given.items():
        spark.conf.set(name, value)
    yield given
    for name, value in before.items():
        spark.conf.set(name, value)


def test_rows_alone_end_a_batch(spark, settings):
    """With a limit of bytes Spark would measure a batch before each row."""
    rows = int(settings["spark.sql.execution.arrow.maxRecordsPerBatch"])

    def count(batches):
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows]})

    values = spark.range(0, rows, 1, 1).selectExpr(f"repeat('x', {BYTES // rows}) AS value")
    assert [each.rows for each in values.mapInArrow(count, "rows long").collect()] == [rows]
