"""Compare Spark's schema in the metadata of Parquet files with the columns of the files.

Spark reads a file by this schema, and converts or drops values that do not fit. Other programs may copy the metadata
to a file with other columns.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from spark_cas.programs.errors import UsageError, plain_error
from spark_cas.spark.jvm import java_session, jvm_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_SCHEMA = "org.apache.spark.sql.parquet.row.metadata"
"""Metadata key of a Parquet file for Spark's schema."""
_DEFAULT = "EXISTS_DEFAULT"
"""Key in the metadata of a field. Its value replaces the null of files that lack the column."""
_NULLS = "spark.sql.parquet.reader.respectUnknownTypeAnnotation.enabled"
"""Setting of Spark that keeps a column without a type, whose values are all null, apart from other columns."""
_MONTHS = frozenset({"interval year", "interval month", "interval year to month"})
_Place = tuple[str, ...]
_Kind = str | dict[str, Any]
"""A type in Spark's JSON format."""


def check_spark_metadata(spark: "SparkSession", path: str) -> list[str]:
    """Check that Spark's schema in a Parquet file agrees with the columns of the file.

    Returns:
        names of the columns that have a default value for files without the column

    Raises:
        UsageError: for a column that differs
    """
    recorded, actual = _schemas(spark, path)
    difference = next(_differences(recorded, actual, ()), None)
    if difference:
        raise UsageError(
            f"--input: Spark's schema of file {path} differs from its columns: {difference}. Nothing was appended. "
            f"Write the file again without the metadata {SPARK_SCHEMA}."
        )
    return [each["name"] for each in recorded["fields"] if _DEFAULT in each["metadata"]]


def _schemas(spark: "SparkSession", path: str) -> tuple[Any, Any]:
    """Return Spark's schema in a Parquet file, and the schema that Spark derives from the columns of the file."""
    jvm: Any = jvm_of(spark)  # only Spark itself knows how it converts a column
    state = java_session(spark).sessionState()
    place = jvm.org.apache.hadoop.fs.Path(path)
    parquet, sources = jvm.org.apache.parquet.hadoop, jvm.org.apache.spark.sql.execution.datasources.parquet
    try:
        source = parquet.util.HadoopInputFile.fromPath(place, state.newHadoopConf())
        reader = parquet.ParquetFileReader.open(source)
        try:
            footer = reader.getFooter()
        finally:
            reader.close()
        settings = state.conf().clone()
        settings.setConfString(_NULLS, "true")
        converter = sources.ParquetToSparkSchemaConverter(settings)
        recorded = sources.ParquetFileFormat.readSchemaFromFooter(parquet.Footer(place, footer), converter)
        actual = converter.convert(footer.getFileMetaData().getSchema())
    except Exception as error:
        raise UsageError(
            f"--input: Spark cannot read the schema of file {path}: {plain_error(error)}. Nothing was appended. "
            f"Write the file again, or remove it from the input."
        ) from error
    return json.loads(recorded.json()), json.loads(actual.json())


def _differences(recorded: _Kind, actual: _Kind, place: _Place) -> Iterator[str]:
    """Yield each difference between two types."""
    match recorded, actual:
        case {"type": "udt", "sqlType": stored}, _:
            yield from _differences(stored, actual, place)
        case {"type": "struct", "fields": left}, {"type": "struct", "fields": right}:
            yield from _differences_of_fields(_by_name(left), _by_name(right), place)
        case {"type": "array", "elementType": left}, {"type": "array", "elementType": right}:
            yield from _differences(left, right, (*place, "element"))
        case {"keyType": left_key, "valueType": left}, {"keyType": right_key, "valueType": right}:
            yield from _differences(left_key, right_key, (*place, "key"))
            yield from _differences(left, right, (*place, "value"))
        case _ if _stored(recorded) != actual:
            yield f"column {'.'.join(place)} is {_short(actual)}, and its type in the metadata is {_short(recorded)}"


def _differences_of_fields(recorded: Mapping[str, Any], actual: Mapping[str, Any], place: _Place) -> Iterator[str]:
    for name in [*recorded, *actual]:
        column = ".".join((*place, name))
        if name not in actual:
            yield f"the file does not have column {column} of the metadata"
        elif name not in recorded:
            yield f"the metadata does not have column {column} of the file"
        else:
            yield from _differences(recorded[name], actual[name], (*place, name))


def _by_name(fields: Iterable[Any]) -> dict[str, Any]:
    return {each["name"]: each["type"] for each in fields}


def _stored(kind: _Kind) -> _Kind:
    """Return the type of the column that Spark writes for a type: a number without annotation for intervals."""
    if isinstance(kind, str) and kind.startswith("interval "):
        return "integer" if kind in _MONTHS else "long"
    return kind


def _short(kind: _Kind) -> str:
    return str(kind["type"] if isinstance(kind, dict) else kind)
