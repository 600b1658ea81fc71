"""Put all rows of a micro-batch into one task, followed by an end marker with their number.

One task with all rows commits them in one transaction. Spark does not report to a task how many others there are. If
the frame was split, filtered or moved after `route`, the number does not match, and nothing is appended. A Python
stage makes the marker, because Spark neither sorts a stream nor unites it with a batch.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from spark_cas.spark.writing.end_markers import marker_batch
from spark_cas.spark.writing.end_of_stream import whole_input

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def sealed(df: "DataFrame") -> "DataFrame":
    """Return the rows in one task, partition by partition, followed by the end marker."""
    # All columns are nullable, because the marker has no key.
    schema = StructType([StructField(each.name, each.dataType, nullable=True) for each in df.schema])
    return df.coalesce(1).mapInArrow(_sealing(to_arrow_schema(schema)), schema)


def _sealing(without_rows: pa.Schema) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def seal(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows, schema = 0, without_rows
        # This stage can be cut off too. The number of rows at the end would then be too low.
        for batch in whole_input(iter(batches)):
            rows += batch.num_rows
            # Spark marks columns as not nullable, but all batches must have the schema of the marker.
            schema = pa.schema([field.with_nullable(nullable=True) for field in batch.schema])
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
        yield marker_batch(rows, schema)

    return seal
