"""Spark's own schema in the metadata of a Parquet file must agree with the columns of the file."""

import datetime as dt
import json
from contextlib import suppress
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException

from spark_cas.programs.errors import UsageError
from spark_cas.programs.input.columnar_files import columnar_rows
from spark_cas.programs.input.listing import list_input
from spark_cas.programs.load_input import pinned_settings
from tests.programs.loading import all_records

pytestmark = pytest.mark.spark

KEY = b"org.apache.spark.sql.parquet.row.metadata"
TIME = dt.datetime(2024, 7, 1, 12)  # noqa: DTZ001 - each test gives the zone
INNER = [{"a": 1, "b": 2}]
PAIR = pa.struct([("a", pa.int64()), ("b", pa.int64())])
ONE_FIELD = {"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": True, "metadata": {}}]}
ARRAY = {"type": "array", "elementType": ONE_FIELD, "containsNull": True}


def field(name, kind, **metadata):
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


@pytest.fixture
def write(tmp_path):
    def write(name, columns, *fields):
        file = tmp_path / "in" / f"{name}.parquet"
        file.parent.mkdir(exist_ok=True)
        schema = json.dumps({"type": "struct", "fields": fields}).encode()
        pq.write_table(pa.table(columns).replace_schema_metadata({KEY: schema} if fields else None), file)

    return write


@pytest.fixture
def read(spark, tmp_path):
    def read(path=tmp_path / "in", columns="*"):
        files = list_input([str(path)], spark).files
        with pinned_settings(spark):
            frame, positions = columnar_rows(spark, files, "parquet", {})
            return frame.orderBy(*positions).drop(*positions).selectExpr(columns).toArrow().to_pylist()

    return read


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array([70000], pa.int32()), "short"),
        (pa.array([300], pa.int32()), "byte"),
        (pa.array([19000], pa.int32()), "date"),
        (pa.array([1], pa.int32()), "long"),
        (pa.array([1], pa.int8()), "integer"),
        (pa.array([2**32 - 1], pa.uint32()), "integer"),
        (pa.array([1], pa.int64()), "timestamp"),
        (pa.array([1], pa.int64()), "decimal(18,2)"),
        (pa.array([TIME], pa.timestamp("us")), "timestamp"),
        (pa.array([TIME], pa.timestamp("us", "UTC")), "timestamp_ntz"),
        (pa.array(["x"]), "binary"),
        (pa.array([b"x"]), "string"),
        (pa.array([Decimal("1.25")], pa.decimal128(10, 2)), "decimal(10,1)"),
        (pa.array([1], pa.int32()), "interval day to second"),
        (pa.array([1], pa.int64()), "interval year to month"),
        (pa.array([[300]], pa.list_(pa.int32())), {"type": "array", "elementType": "byte", "containsNull": True}),
        (pa.array([1.5], pa.float32()), "double"),
    ],
    ids=str,
)
def test_other_type_than_that_of_the_column_is_rejected(write, read, column, kind):
    write("a", {"id": [1], "odd": column}, field("id", "long"), field("odd", kind))
    with pytest.raises(UsageError, match=r"a\.parquet.*odd.*Write the file again"):
        read()


@pytest.mark.parametrize(
    "column",
    [
        pa.array([INNER], pa.list_(PAIR)),
        pa.array([INNER], pa.large_list(PAIR)),
        pa.array([INNER], pa.list_(PAIR, 1)),
    ],
    ids=["list", "large-list", "fixed-size-list"],
)
def test_field_of_a_list_that_the_metadata_does_not_name_is_rejected(write, read, column):
    write("a", {"odd": column}, field("odd", ARRAY))
    with pytest.raises(UsageError, match=r"a\.parquet.*odd\.element\.b"):
        read()


def test_field_of_a_map_key_that_the_metadata_does_not_name_is_rejected(write, read):
    column = pa.array([[(INNER[0], 1)]], pa.map_(PAIR, pa.int64()))
    kind = {"type": "map", "keyType": ONE_FIELD, "valueType": "long", "valueContainsNull": True}
    write("a", {"odd": column}, field("odd", kind))
    with pytest.raises(UsageError, match=r"a\.parquet.*odd\.key\.b"):
        read()


def test_column_that_only_the_metadata_names_is_rejected(write, read):
    write("a", {"id": [1]}, field("id", "long"), field("odd", "long"))
    with pytest.raises(UsageError, match=r"a\.parquet.*odd"):
        read()


def test_each_file_with_its_own_schema_is_compared(write, read):
    write("a", {"id": pa.array([1], pa.int32())}, field("id", "integer"))
    write("b", {"id": pa.array([300], pa.int32())}, field("id", "byte"))
    with pytest.raises(UsageError, match=r"b\.parquet.*id"):
        read()


def test_default_value_for_a_column_that_a_file_lacks_is_rejected(write, read):
    default = {"CURRENT_DEFAULT": "7", "EXISTS_DEFAULT": "7"}
    write("a", {"id": [1], "odd": [1]}, field("id", "long"), field("odd", "long", **default))
    assert read() == [{"id": 1, "odd": 1}]
    write("b", {"id": [2]})
    with pytest.raises(UsageError, match=r"b\.parquet.*odd.*a\.parquet"):
        read()


def test_no_row_is_appended_if_a_schema_differs(write, load, tmp_path):
    write("a", {"odd": pa.array([70000], pa.int32())}, field("odd", "short"))
    code, report, said = load(
        "--input", str(tmp_path / "in" / "a.parquet"), "--value-json", "--partitions", "1", "--job", "j"
    )
    assert (code, report["rows"]) == (2, 0)
    assert "a.parquet" in said


SPARK_ROW = """SELECT 1Y AS i8, 2S AS i16, 3 AS i32, 4L AS i64, 1.5F AS f, 2.5D AS d, true AS b, 's' AS s,
    X'00ff' AS raw, DATE '2024-07-01' AS day, TIMESTAMP '2024-07-01 12:00:00 UTC' AS at,
    TIMESTAMP_NTZ '2024-07-01 12:00:00' AS ntz,
    1.25BD AS small, 12345678901.25BD AS middle, 12345678901234567890123456789012345.25BD AS large,
    INTERVAL '1-2' YEAR TO MONTH AS ym, INTERVAL '3' MONTH AS m, INTERVAL '1 02:03:04' DAY TO SECOND AS ds,
    INTERVAL '5' HOUR AS h, named_struct('x', 1Y, 'y', array(named_struct('z', 2S))) AS nested,
    map(named_struct('k', 1Y), array(DATE '2024-07-01')) AS keyed, array(map('a', TIMESTAMP '2024-07-01')) AS l,
    's' COLLATE UTF8_LCASE AS lower"""


@pytest.mark.parametrize("legacy", ["true", "false"])
@pytest.mark.parametrize("timestamps", ["INT96", "TIMESTAMP_MICROS"])
def test_all_types_that_spark_writes_are_read(spark, read, tmp_path, legacy, timestamps):
    own = {
        "spark.sql.parquet.writeLegacyFormat": legacy,
        "spark.sql.parquet.outputTimestampType": timestamps,
        "spark.sql.session.timeZone": "UTC",
    }
    as_json = "to_json(struct(* EXCEPT (keyed), map_entries(keyed) AS keyed)) AS row"
    with pinned_settings(spark, own):
        frame = spark.sql(SPARK_ROW).coalesce(1)
        frame.write.parquet(str(tmp_path / "spark"))
        expected = frame.selectExpr(as_json).toArrow().to_pylist()
    assert read(tmp_path / "spark", as_json) == expected


def test_chars_defaults_and_user_types_that_spark_writes_are_read(spark, read, tmp_path):
    from pyspark.ml.linalg import Vectors

    spark.sql(
        "CREATE TABLE chars (c CHAR(3), v VARCHAR(5), n INT DEFAULT 7) USING parquet LOCATION '{}'".format(
            tmp_path / "c"
        )
    )
    try:
        spark.sql("INSERT INTO chars (c, v) VALUES ('x', 'y')")
    finally:
        spark.sql("DROP TABLE chars")
    assert read(tmp_path / "c") == [{"c": "x  ", "v": "y", "n": 7}]
    spark.createDataFrame([(Vectors.dense([1.0]),)], ["v"]).coalesce(1).write.parquet(str(tmp_path / "u"))
    assert len(read(tmp_path / "u")) == 1


def test_nulls_without_a_type_that_spark_writes_are_read(spark, write, read, tmp_path):
    with suppress(AnalysisException):  # older versions of Spark do not write this type
        spark.sql("SELECT 1 AS id, NULL AS nothing").coalesce(1).write.parquet(str(tmp_path / "spark"))
        assert read(tmp_path / "spark") == [{"id": 1, "nothing": None}]
    write("a", {"id": [1], "odd": [True]}, field("id", "long"), field("odd", "void"))
    with pytest.raises(UsageError, match=r"a\.parquet.*odd"):
        read()


def test_char_is_not_padded(write, load, tmp_path):
    write("a", {"s": ["ab"]}, field("s", "string", __CHAR_VARCHAR_TYPE_STRING="char(5)"))
    code, _, said = load(
        "--input", str(tmp_path / "in" / "a.parquet"), "--value-json", "--partitions", "1", "--job", "j"
    )
    assert code == 0, said
    assert [json.loads(row["value"]) for _, row in all_records(load.log)[0]] == [{"s": "ab"}]
