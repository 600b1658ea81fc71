"""Values of each type, and a check that a JSON text has exactly such a value."""

import base64
import datetime as dt
import struct
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

UTC = dt.timezone.utc  # noqa: UP017 - Arrow compares it with its own
DECIMAL = Context(prec=38)
TIMES = st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59))  # noqa: DTZ001 - the column has it
SCALARS: dict[str, Any] = {
    "b": (pa.bool_(), st.booleans()),
    "i8": (pa.int8(), st.integers(-(2**7), 2**7 - 1)),
    "i64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "f32": (pa.float32(), st.floats(width=32, allow_nan=False, allow_infinity=False)),
    "f64": (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    "d": (pa.decimal128(38, 9), st.decimals(-(10**28), 10**28, places=9).map(DECIMAL.plus)),
    "s": (pa.string(), st.text(max_size=8)),
    "bin": (pa.binary(), st.binary(max_size=80)),
    "day": (pa.date32(), st.dates()),
    "at": (pa.timestamp("us", "UTC"), TIMES.map(lambda each: each.replace(tzinfo=UTC))),
    "local": (pa.timestamp("us"), TIMES),
}
"""Name, type and values of a column, for each type that all formats have."""


def assert_equal(kind, value, result):
    """Check that the JSON is exactly the value: digits of numbers, fields and their order, nulls.

    Args:
        kind: the Arrow type of the value
        value: the value as PyArrow's `to_pylist` returns it
        result: parsed JSON, with numbers as text and objects as pairs
    """
    if value is None:
        assert result is None
    elif pa.types.is_struct(kind):
        names = [name for name, _ in result]
        assert names == [each.name for each in kind], names
        for field, (_, each) in zip(kind, result, strict=True):
            assert_equal(field.type, value[field.name], each)
    elif pa.types.is_list(kind):
        for each, one in zip(value, result, strict=True):
            assert_equal(kind.value_type, each, one)
    elif pa.types.is_map(kind):
        for (key, each), (name, one) in zip(value, result, strict=True):
            assert str(key) == name
            assert_equal(kind.item_type, each, one)
    else:
        assert_same_scalar(kind, value, result)


def assert_same_scalar(kind, value, result):
    if pa.types.is_floating(kind):
        code = "<f" if kind == pa.float32() else "<d"
        assert struct.pack(code, float(result)) == struct.pack(code, value), (result, value)
    elif pa.types.is_decimal(kind):
        expected = value.quantize(Decimal(1).scaleb(-kind.scale), context=DECIMAL)
        assert Decimal(result).as_tuple() == expected.as_tuple()
    elif pa.types.is_boolean(kind):
        assert result is value
    elif pa.types.is_integer(kind):
        assert result == str(value)
    elif pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind) or pa.types.is_large_binary(kind):
        assert base64.b64decode(result, validate=True) == value
    elif pa.types.is_timestamp(kind):
        text = value.strftime(f"{value.year:04}-%m-%dT%H:%M:%S.%f") + ("Z" if kind.tz else "")
        assert result == text, (result, text)
    else:
        assert result == (value if isinstance(value, str) else value.isoformat())
