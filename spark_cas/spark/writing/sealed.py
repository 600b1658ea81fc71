"""Put all rows of a frame into one task, followed by a trailer row with their number.

One task with all rows commits a load in one transaction. Spark does not report to a task how many others there are.
So the last row has the row count. If the frame was split, filtered or moved after `route`, the count does not match,
and nothing is appended.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from spark_cas.core.errors import NotRoutedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MOVED = (
    "Nothing was appended. With atomic=load on Kafka all rows are in one task: use spark_cas.route(df, options) with "
    "the options of the write, and change nothing between it and the write."
)


def sealed(df: "DataFrame") -> "DataFrame":
    """Return the rows in one task, partition by partition, followed by the trailer row."""
    # All columns are nullable, because the trailer row has no key and no value.
    schema = StructType([StructField(each.name, each.dataType, nullable=True) for each in df.schema])
    return df.coalesce(1).mapInArrow(_sealing(to_arrow_schema(schema)), schema)


def _sealing(without_rows: pa.Schema) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def seal(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows, schema = 0, without_rows
        for batch in batches:
            rows += batch.num_rows
            # Spark marks columns as not nullable, but all batches must have the schema of the trailer row.
            schema = pa.schema([field.with_nullable(nullable=True) for field in batch.schema])
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
        columns = [pa.nulls(1, field.type) for field in schema]
        columns[schema.get_field_index("partition")] = pa.array([-1 - rows], pa.int32())
        yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return seal


def unsealed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows without the trailer row. Raises NotRoutedError at the end if the row count does not match."""
    rows, told = 0, None
    for batch in batches:
        if batch.num_rows == 0:
            continue
        lowest = pc.min(batch.column("partition")).as_py()
        if told is not None or (
            lowest is not None and lowest < 0 and lowest != batch.column("partition")[-1].as_py()
        ):
            break
        told = None if lowest is None or lowest >= 0 else -1 - lowest
        found = batch if told is None else batch.slice(0, batch.num_rows - 1)
        rows += found.num_rows
        yield found
    else:
        if told == rows or (told is None and rows == 0):
            return
    raise NotRoutedError(
        f"the rows of this task are not all that were routed: others may be in other tasks. {_MOVED}"
    )
