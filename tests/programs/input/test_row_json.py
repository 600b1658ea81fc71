"""A row as JSON keeps every digit of every value, in the forms of docs/loading-types.md."""

import base64
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException

from spark_cas.core.errors import SchemaError
from spark_cas.programs.errors import UsageError, plain_error
from spark_cas.programs.input.row_json import row_json
from spark_cas.programs.load_input import pinned_settings
from tests.programs.input.typed_rows import SCALARS, assert_equal

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def pinned(spark):
    session = spark.newSession()
    with pinned_settings(session):
        yield session


def texts(frame, **arguments):
    return [each["json"] for each in frame.select(row_json(frame, **arguments).alias("json")).collect()]


FORMS = {
    "cast(null as int)": "null",
    "true": "true",
    "cast(-128 as tinyint)": "-128",
    "-9223372036854775808L": "-9223372036854775808",
    "9223372036854775807L": "9223372036854775807",
    "cast('99999999999999999999999999999999999999' as decimal(38, 0))": "99999999999999999999999999999999999999",
    "cast('-1.50' as decimal(38, 2))": "-1.50",
    "cast('1e-38' as decimal(38, 38))": "1E-38",
    "0.1D": "0.1",
    "-0.0D": "-0.0",
    "1.7976931348623157E308D": "1.7976931348623157E308",
    "4.9E-324D": "4.9E-324",
    "cast('3.4028235E38' as float)": "3.4028235E38",
    "timestamp '2024-07-01 12:00:00.123456'": '"2024-07-01T12:00:00.123456Z"',
    "timestamp '2024-07-01 12:00:00+02:00'": '"2024-07-01T10:00:00.000000Z"',
    "timestamp '294247-01-10 04:00:54.775807'": '"+294247-01-10T04:00:54.775807Z"',
    "timestamp '-290308-12-21 19:59:06'": '"-290308-12-21T19:59:06.000000Z"',
    "timestamp_ntz '2024-03-31 02:30:00.000001'": '"2024-03-31T02:30:00.000001"',
    "timestamp_ntz '12345-01-01 00:00:00'": '"+12345-01-01T00:00:00.000000"',
    "date '0001-01-01'": '"0001-01-01"',
    "date '1582-10-10'": '"1582-10-10"',
    "date '12345-01-01'": '"+12345-01-01"',
    "x'00ff'": '"AP8="',
    "cast(repeat('x', 100) as binary)": f'"{base64.b64encode(b"x" * 100).decode()}"',
    "'\\u00e9\\u0000\\n\"\\\\/\\u2028\\U0001F600'": '"\u00e9\\u0000\\n\\"\\\\/\u2028\U0001f600"',
    "time '23:59:59.999999'": '"23:59:59.999999"',
    "interval '1-2' year to month": '"P1Y2M"',
    "interval '3' month": '"P0Y3M"',
    "make_ym_interval(-178956970, -8)": '"-P178956970Y8M"',
    "interval '-1 2:3:4.567' day to second": '"-P1DT2H3M4.567000S"',
    "interval '0' second": '"P0DT0H0M0.000000S"',
    "interval '-106751991 04:00:54.775808' day to second": '"-P106751991DT4H0M54.775808S"',
    "named_struct('b', null, 'a', named_struct('x', array(1, null)))": '{"b":null,"a":{"x":[1,null]}}',
    "cast(null as struct<a: interval day>)": "null",
    "named_struct('a', array(interval '1' day, null))": '{"a":["P1DT0H0M0.000000S",null]}',
    "map('b', 1, 'a', cast(null as int))": '{"b":1,"a":null}',
    "map(date '2024-01-01', interval '1' month)": '{"2024-01-01":"P0Y1M"}',
    "map(timestamp '2024-01-01 00:00:00', 1)": '{"2024-01-01T00:00:00.000000Z":1}',
    "map(timestamp_ntz '2024-01-01 00:00:00', 1)": '{"2024-01-01T00:00:00.000000":1}',
    "map(cast('0' as decimal(38, 20)), 1)": '{"0.00000000000000000000":1}',
    "map(cast('1e-30' as decimal(38, 30)), 1)": '{"0.000000000000000000000000000001":1}',
    "map(cast(repeat('x', 100) as binary), 1)": f'{{"{base64.b64encode(b"x" * 100).decode()}":1}}',
    "map(interval '1' month, 1)": '{"P0Y1M":1}',
    "map(1.5D, 1)": '{"1.5":1}',
    "map(true, 1)": '{"true":1}',
    "array()": "[]",
    "cast('a' as char(3))": '"a"',
    "'a' collate UNICODE_CI": '"a"',
}


def test_each_type_has_its_form(pinned):
    expressions = [f"{each} AS c{number}" for number, each in enumerate(FORMS)]
    [text] = texts(pinned.sql("SELECT " + ", ".join(expressions)))
    fields = ",".join(f'"c{number}":{form}' for number, form in enumerate(FORMS.values()))
    assert text == f"{{{fields}}}"


def test_connect_gives_the_same_text_without_columns_that_are_left_out(connect_session):
    query = "SELECT 1 AS id, map(interval '1' day, array(1.5D)) AS m, timestamp '2024-07-01' AS at, 2 AS _file"
    with pinned_settings(connect_session):
        rows = texts(connect_session.sql(query), without=["_file"])
    assert rows == ['{"id":1,"m":{"P1DT0H0M0.000000S":[1.5]},"at":"2024-07-01T00:00:00.000000Z"}']


def test_names_of_columns_are_kept(pinned):
    frame = pinned.sql("SELECT 1 AS `a.b`, 2 AS `c``d`, named_struct('e.f', interval '1' day) AS `\u00e9\"`")
    assert texts(frame) == ['{"a.b":1,"c`d":2,"\u00e9\\"":{"e.f":"P1DT0H0M0.000000S"}}']


@pytest.mark.parametrize(
    "expression",
    [
        "double('NaN')",
        "float('-Infinity')",
        "array(1.5D, double('Infinity'))",
        "named_struct('x', map('k', array(named_struct('y', double('NaN')))))",
        "map(double('NaN'), 1)",
        "cast(x'61ff' as string)",
        "array(named_struct('s', cast(x'61ff' as string)))",
        "map(cast(x'61ff' as string), 1)",
    ],
)
def test_value_that_json_cannot_hold_is_rejected(pinned, expression):
    frame = pinned.sql(f"SELECT {expression} AS v")
    with pytest.raises(PySparkException) as raised:
        texts(frame)
    assert isinstance(plain_error(raised.value), UsageError)


def test_map_with_equal_keys_is_rejected(pinned, tmp_path):
    twice = pa.array([[[("a", 1), ("a", 2)]]], pa.list_(pa.map_(pa.string(), pa.int32())))
    pq.write_table(pa.table({"m": twice}), tmp_path / "twice.parquet")
    with pytest.raises(PySparkException) as raised:
        texts(pinned.read.parquet(f"{tmp_path}/twice.parquet"))
    assert isinstance(plain_error(raised.value), UsageError)


@pytest.mark.parametrize(
    "columns",
    [
        "parse_json('1') AS v",
        "map(array(1), 1) AS v",
        "make_interval(1) AS v",
        "array(named_struct('g', st_geomfromwkb(x'0101000000000000000000f03f0000000000000040'))) AS v",
        "1 AS a, 2 AS a",
        "1 AS a, 2 AS A",
        "named_struct('a', 1, 'A', 2) AS v",
    ],
)
def test_columns_without_an_exact_form_are_rejected_on_the_driver(pinned, columns):
    with pytest.raises(SchemaError):
        row_json(pinned.sql(f"SELECT {columns}"))


FIELDS = {name: kind for name, (kind, _) in SCALARS.items()}
VALUES = {name: st.none() | strategy for name, (_, strategy) in SCALARS.items()}
NESTED = pa.struct([("x", pa.list_(pa.struct(list(FIELDS.items())))), ("y", pa.map_(pa.string(), pa.float64()))])
KIND = pa.schema([*FIELDS.items(), ("n", NESTED)])
STRUCTS = st.fixed_dictionaries(
    {
        "x": st.none() | st.lists(st.none() | st.fixed_dictionaries(VALUES), max_size=2),
        "y": st.none() | st.dictionaries(st.text(max_size=3), VALUES["f64"], max_size=2).map(dict.items).map(list),
    }
)


@given(rows=st.lists(st.fixed_dictionaries({**VALUES, "n": st.none() | STRUCTS}), min_size=1, max_size=20))
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_text_is_that_of_an_independent_rendering(pinned, tmp_path, rows):
    pq.write_table(pa.Table.from_pylist(rows, KIND), tmp_path / "rows.parquet")
    frame = pinned.read.parquet(f"{tmp_path}/rows.parquet")
    for row, text in zip(rows, texts(frame), strict=True):
        assert_equal(pa.struct(KIND), row, json.loads(text, parse_float=str, parse_int=str, object_pairs_hook=list))
