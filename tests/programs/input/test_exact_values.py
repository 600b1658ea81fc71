"""Text, and fields of documents, as values of a schema: exact or rejected."""

import datetime as dt
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from spark_cas.core.errors import UnreadableInputError
from spark_cas.programs.errors import UsageError
from spark_cas.programs.input.csv_rows import CsvFormat, CsvReader
from spark_cas.programs.input.csv_text import parse_csv_options
from spark_cas.programs.input.exact_values import NumberFormat, ValueFormats, text_column
from spark_cas.programs.input.json_documents import parse_line
from spark_cas.programs.input.json_rows import FieldError, field_converter
from spark_cas.programs.input.parts import Part

GERMAN = NumberFormat(",", ".")


def column(kind: DataType, numbers=None, zone="UTC"):
    return text_column(StructField("x", kind), ValueFormats(time_zone=zone), numbers)


def value(kind, text, numbers=None, zone="UTC"):
    return column(kind, numbers, zone).values(pa.array([text, None], pa.string()))[0].as_py()


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (ByteType(), "-128", -128),
        (ShortType(), "+5", 5),
        (IntegerType(), "007", 7),
        (LongType(), "9223372036854775807", 9223372036854775807),
        (DecimalType(10, 1), "1.10", Decimal("1.1")),
        (DecimalType(10, 1), "1e3", Decimal("1000.0")),
        (DecimalType(10, 1), "1." + 50 * "0", Decimal("1.0")),
        (DecimalType(38, 38), ".00000000000000000000000000000000000001", Decimal("1E-38")),
        (DecimalType(3, 3), "0.123000", Decimal("0.123")),
        (DecimalType(3, 0), "0.0", Decimal(0)),
        (DoubleType(), "1.10", 1.1),
        (DoubleType(), "+1E2", 100.0),
        (DoubleType(), "9007199254740992", 9007199254740992.0),
        (DoubleType(), "1" + 22 * "0", 1e22),
        (DoubleType(), "5e-324", 5e-324),
        (DoubleType(), "-Infinity", float("-inf")),
        (FloatType(), "16777216", 16777216.0),
        (FloatType(), "3.4028235e38", float(np.float32("3.4028235e38"))),
        (FloatType(), "0.1", float(np.float32("0.1"))),
        (BooleanType(), "TRUE", True),
        (BooleanType(), "false", False),
        (DateType(), "2024-02-29", dt.date(2024, 2, 29)),
        (TimestampType(), "2024-07-01", dt.datetime(2024, 7, 1, tzinfo=dt.UTC)),
        (TimestampType(), "2024-07-01 12:00:00.123456000+02:00", dt.datetime(2024, 7, 1, 10, 0, 0, 123456, dt.UTC)),
        (TimestampType(), "2024-07-01T12:00Z", dt.datetime(2024, 7, 1, 12, tzinfo=dt.UTC)),
        (TimestampNTZType(), "2024-07-01T12:00:00.5", dt.datetime(2024, 7, 1, 12, 0, 0, 500000)),  # noqa: DTZ001
        (TimestampNTZType(), "2024-07-01 12:00:00.123456000", dt.datetime(2024, 7, 1, 12, 0, 0, 123456)),  # noqa: DTZ001
        (BinaryType(), "é\0", b"\xc3\xa9\0"),
        (StringType(), "", ""),
    ],
)
def test_value_is_kept(kind, text, expected):
    assert value(kind, text) == expected


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *[
            (IntegerType(), text)
            for text in ("1.5", "1.0", "2147483648", "0x1F", "", " 1", "1e2", "\u0661", "1\n", "--1")
        ],
        (ByteType(), "128"),
        (ShortType(), "-32769"),
        (LongType(), "9223372036854775808"),
        *[(DecimalType(10, 2), text) for text in ("1.234", "3,5", "1.234,50", "1,234.5", "", ".", "1e", "0x1")],
        (DecimalType(3, 2), "12.34"),
        (DecimalType(31, 31), "11367676121165998467734616"),
        (DecimalType(3, 2), "1e1000000000"),
        (DecimalType(3, 2), "1e-1000000000"),
        *[(DoubleType(), text) for text in ("1e400", "1e-400", "9007199254740993", "1,5", "0x1p3", "1d", "nan", "")],
        (DoubleType(), "0.1000000000000000055511151231257827021181583404541015625"),
        (DoubleType(), "1e99999999999"),
        (FloatType(), "16777217"),
        (FloatType(), "1e39"),
        (FloatType(), "0.123456789"),
        *[(BooleanType(), text) for text in ("yes", "1", "t", "true ", "")],
        *[(DateType(), text) for text in ("2023-02-29", "01.02.2023", "2023-2-1", "2023-02-01T00:00", "")],
        *[(TimestampType(), "2023-02-28" + text) for text in ("T25:00:00", "T12:00:60", "T12:00:00.1234567", "Z")],
        (TimestampType(), "2023-02-30T12:00:00Z"),
        (TimestampNTZType(), "2023-02-28T12:00:00Z"),
    ],
)
def test_value_that_is_not_kept_is_rejected(kind, text):
    with pytest.raises(ValueError):
        value(kind, text)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4))
def test_double_is_kept_or_rejected(number):
    text = f"{number:f}"
    try:
        result = value(DoubleType(), text)
    except ValueError:
        assert Decimal(repr(float(text))) != number
    else:
        assert Decimal(repr(result)) == number


DECIMALS = st.decimals(min_value=-(10**40), max_value=10**40, allow_nan=False, allow_infinity=False)


@given(DECIMALS, st.integers(1, 38), st.integers(0, 38))
def test_decimal_is_kept_or_rejected(number, precision, scale):
    scale = min(scale, precision)
    try:
        assert value(DecimalType(precision, scale), str(number)) == number
    except ValueError:
        digits = Fraction(number) * 10**scale
        assert digits.denominator > 1 or abs(digits) >= 10**precision


def test_local_time_needs_a_zone_in_which_it_is_one_moment():
    noon = dt.datetime(2024, 7, 1, 10, tzinfo=dt.UTC)
    assert value(TimestampType(), "2024-07-01 12:00:00", zone="Europe/Berlin") == noon
    for text in ("2024-03-31 02:30:00", "2024-10-27 02:30:00"):
        with pytest.raises(ValueError):
            value(TimestampType(), text, zone="Europe/Berlin")


def test_rules_of_a_zone_hold_after_2037():
    for year in (2036, 2037, 2040, 9999):
        noon = dt.datetime(year, 7, 1, 10, tzinfo=dt.UTC)
        assert value(TimestampType(), f"{year}-07-01 12:00:00", zone="Europe/Berlin") == noon
        assert value(TimestampType(), f"{year}-07-01 12:00:00", zone="+02:00") == noon
    for text in ("2038-03-28 02:30:00", "2040-03-25 02:30:00", "2040-10-28 02:30:00"):
        with pytest.raises(ValueError):
            value(TimestampType(), text, zone="Europe/Berlin")


@pytest.mark.parametrize(("text", "expected"), [("1.234,50", "1234.50"), ("3,5", "3.50"), ("-1234", "-1234.00")])
def test_locale_reads_its_numbers(text, expected):
    assert value(DecimalType(10, 2), text, GERMAN) == Decimal(expected)
    assert value(DoubleType(), text, GERMAN) == float(expected)


@pytest.mark.parametrize("text", ["1.23", "12.34,5", "1234.567,8", "1,234.5", "1e3"])
def test_locale_rejects_other_numbers(text):
    with pytest.raises(ValueError):
        value(DecimalType(10, 2), text, GERMAN)


@pytest.mark.parametrize("kind", [VarcharType(3), ArrayType(StringType()), MapType(StringType(), StringType())])
def test_type_that_text_does_not_have_is_rejected(kind):
    with pytest.raises(UsageError):
        column(kind)


@pytest.mark.parametrize(
    ("data", "place"),
    [(b'x,y\n"1\n",1\n\n2,z\n', "line 5: column 'y': 'z'"), (b"x,y\n1,1\n2,\n", "line 3: column 'y': a value")],
)
def test_place_of_a_value_is_named(data, place):
    columns = (column(StringType()), text_column(StructField("y", IntegerType(), nullable=False), ValueFormats()))
    reader = CsvReader(Part("file:/a.csv"), CsvFormat(parse_csv_options({})[0], columns))
    with pytest.raises(UnreadableInputError, match=place):
        list(reader.rows([data]))


@pytest.mark.parametrize(
    "options",
    [
        {"inferSchema": "true"},
        {"mode": "PERMISSIVE"},
        {"sep": "||"},
        {"sep": "§"},
        {"quote": "''"},
        {"header": "yes"},
        {"encoding": "utf-99"},
        {"encoding": "base64"},
        {"multiLine": "false", "encoding": "utf-16"},
        {"sep": ",", "delimiter": ";"},
        {"sep": '"'},
    ],
)
def test_option_that_is_not_honoured_is_rejected(options):
    with pytest.raises(UsageError):
        parse_csv_options(options)


def test_options_are_those_of_spark():
    dialect, formats = parse_csv_options({"DELIMITER": r"\t", "quote": "", "Header": "FALSE", "locale": "de-DE"})
    assert (dialect.separator, dialect.quote, dialect.header, formats.locale) == ("\t", "", False, "de-DE")


def check(kind, text, *, nullable=True, scalars_only=False):
    schema = StructType([StructField("x", kind, nullable)])
    convert = field_converter(schema, ValueFormats(), scalars_only=scalars_only)
    documents = [parse_line('{"x":null}' if nullable else '{"x":"1"}'), parse_line(text)]
    return convert(documents, range(len(documents)))


NESTED = StructType([StructField("a", IntegerType())])


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (LongType(), "9007199254740993", 9007199254740993),
        (DecimalType(20, 1), '"1234567890123456789.0"', Decimal("1234567890123456789.0")),
        (DecimalType(20, 1), "1.10", Decimal("1.1")),
        (DoubleType(), '"-Infinity"', float("-inf")),
        (BooleanType(), "true", True),
        (StringType(), '{"a":1.10,"b":"\\u00e9"}', '{"a":1.10,"b":"é"}'),
        (StringType(), "1.10", "1.10"),
        (StringType(), "false", "false"),
        (NESTED, '{"a":1,"b":2,"A":3}', {"a": 1}),
        (NESTED, "null", None),
        (NESTED, "{}", {"a": None}),
        (ArrayType(IntegerType()), "[1,null]", [1, None]),
        (ArrayType(ArrayType(NESTED)), '[[],null,[{"a":1},null]]', [[], None, [{"a": 1}, None]]),
        (MapType(StringType(), IntegerType()), '{"a":1,"b":null}', [("a", 1), ("b", None)]),
        (MapType(StringType(), ArrayType(LongType())), '{"a":[],"":null}', [("a", []), ("", None)]),
        (TimestampType(), '"2024-07-01T12:00:00Z"', dt.datetime(2024, 7, 1, 12, tzinfo=dt.UTC)),
    ],
)
def test_field_is_kept(kind, text, expected):
    assert check(kind, f'{{"x":{text}}}').to_pylist() == [{"x": None}, {"x": expected}]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (LongType(), "1.0"),
        (IntegerType(), "2147483648"),
        (IntegerType(), '"1"'),
        (IntegerType(), "true"),
        (DecimalType(3, 1), "1.25"),
        (DecimalType(3, 1), '"1,2"'),
        (DoubleType(), "1e400"),
        (DoubleType(), '"1.5"'),
        (DoubleType(), "9007199254740993"),
        (DoubleType(), "{}"),
        (BooleanType(), '"true"'),
        (DateType(), '"2023-02-29"'),
        (DateType(), "5"),
        (TimestampType(), '"2024-07-01T12:00:00.1234567Z"'),
        (TimestampType(), "5"),
        (NESTED, "5"),
        (NESTED, '{"a":1.5}'),
        (NESTED, '{"A":1}'),
        (StructType([StructField("a", IntegerType(), nullable=False)]), "{}"),
        (ArrayType(IntegerType()), "{}"),
        (ArrayType(IntegerType()), "[1.5]"),
        (ArrayType(IntegerType(), containsNull=False), "[null]"),
        (MapType(StringType(), IntegerType()), '{"k":"v"}'),
        (MapType(StringType(), IntegerType()), "[]"),
    ],
)
def test_field_that_is_not_kept_is_rejected(kind, text):
    with pytest.raises(FieldError) as error:
        check(kind, f'{{"x":{text}}}')
    assert error.value.record == 1


@pytest.mark.parametrize("text", ["null", None])
def test_field_that_is_not_null_is_required(text):
    with pytest.raises(FieldError):
        check(StringType(), f'{{"x":{text}}}' if text else "{}", nullable=False)


def test_inferred_text_is_a_scalar():
    with pytest.raises(FieldError):
        check(StringType(), '{"x":{}}', scalars_only=True)


@pytest.mark.parametrize("kind", [BinaryType(), MapType(IntegerType(), StringType()), VarcharType(3)])
def test_type_that_json_does_not_have_is_rejected(kind):
    with pytest.raises(UsageError):
        check(kind, "{}")
