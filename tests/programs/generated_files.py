"""Random files of each format of a load, and the keys and values that an independent parser reads from them."""

import bz2
import csv
import datetime as dt
import gzip
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st
from pyarrow import orc

from tests.programs.input.typed_rows import SCALARS, UTC, assert_equal

ODD = " \t\n\r\0\ufeff\"'\\,;|/\x1a\x0b\x0c\x1c\x85\xa0\u2028\u0301\u0a0a\u0d0a\u0a01\u010a\u00e9\U0001f600\uffff"
"""Characters that readers may misinterpret."""
LINE_ENDS = st.sampled_from(["\n", "\r\n", "\r"])
ENCODINGS = st.sampled_from(
    ["utf-8", "utf-8", "utf-8", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1", "cp1252"]
)
NUMBERS = ("0", "-0", "1.10", "1e400", "-1E-7", "12345678901234567890.5", "9" * 60, "0.1", "1E+2", "9007199254740993")
NAMES = ("k", "a b", "a.b", "\u00fc", "x-1", "`q`", "0")
ANY_KEY = object()

Same = Callable[[object, bytes | None], None]
Rows = list[tuple[object, object]]
"""Key and value of each row."""


@dataclass
class Load:
    """Files of one format, and how to compare their rows with those in a log."""

    format: str
    files: list[bytes]
    arguments: list[str]
    parse: Callable[[bytes], Rows] | None
    """Returns the rows of a file as an independent parser reads them. Raises ValueError if it cannot."""
    same: Same
    """Asserts that a value that `parse` returned is in the log."""
    suffixes: list[str]
    """The suffixes of the file names."""
    is_valid: bool = True
    known: tuple[list[Rows], Same] | None = None
    """The rows of each valid file, if `parse` does not return all of each row."""

    def assert_equal(self, records):
        """Check that these records are the rows of all files, in this order."""
        if self.parse is not None:
            assert_same_rows([self.parse(each) for each in self.files], self.same, records)
        if self.is_valid and self.known is not None:
            assert_same_rows(*self.known, records)


def assert_same_rows(files, same, records):
    for (key, value), record in zip(chain(*files), records, strict=True):
        assert key is ANY_KEY or record["key"] == key
        same(value, record["value"])


def same_value(expected, value):
    assert value == expected


def texts(encoding="utf-8", max_size=8):
    odd = [each for each in ODD if is_encodable(each, encoding)]
    return st.text(st.sampled_from(odd) | st.characters(codec=encoding), max_size=max_size)


def is_encodable(text, encoding):
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def sampled_texts(encoding, *choices):
    return st.sampled_from([each for each in choices if is_encodable(each, encoding)])


def compressed(draw, data):
    """Return a file and its suffix. A gzip file has two members."""
    suffix = draw(st.sampled_from(["", "", "", ".gz", ".bz2"]))
    if suffix == ".gz":
        cut = draw(st.integers(0, len(data)))
        return gzip.compress(data[:cut]) + gzip.compress(data[cut:]), suffix
    return (bz2.compress(data) if suffix else data), suffix


def plain(data):
    if data.startswith(b"\x1f\x8b"):
        return gzip.decompress(data)
    return bz2.decompress(data) if data.startswith(b"BZh") else data


def damaged(draw, data):
    """Return the bytes with one of them removed, added or replaced."""
    at = draw(st.integers(0, max(len(data) - 1, 0)))
    byte = draw(st.sampled_from([b"", b'"', b"\n", b"\r", b",", b"\xff", b"\0", b"}", b"a"]))
    return data[:at] + byte + data[at + draw(st.integers(0, 1)) :]


def text_load(draw, name, contents, arguments, parse, same, encoding, known=None):  # noqa: PLR0917 - as many as a load has
    """Return a load of text files. In a few loads, one byte of a file is changed."""
    mark = "\ufeff" if encoding == "utf-8" and draw(st.booleans()) else ""
    raw = [(mark + each).encode(encoding) for each in contents]
    is_valid = parse is None or draw(st.integers(0, 99)) % 32 != 7
    if not is_valid:
        at = draw(st.integers(0, len(raw) - 1))
        raw[at] = damaged(draw, raw[at])
    packed = [compressed(draw, each) for each in raw]
    if encoding != "utf-8":
        arguments = [*arguments, "--read-option", f"encoding={encoding}"]

    def parse_file(data):
        return parse(plain(data).decode(encoding).removeprefix("\ufeff"))

    files, suffixes = map(list, zip(*packed, strict=True))
    return Load(name, files, arguments, parse and parse_file, same, suffixes, is_valid, known)


@st.composite
def text_files(draw):
    encoding = draw(ENCODINGS)
    lines = st.lists(st.tuples(texts(encoding), LINE_ENDS).map("".join), max_size=6).map("".join)
    contents = draw(st.lists(lines, min_size=2, max_size=5))
    contents[0] = "x" + contents[0]

    def parse(text):
        lines = text.split("\n")
        lines = lines[:-1] if lines[-1] == "" else lines
        return [(each.encode(), each.encode()) for each in lines]

    return text_load(draw, "text", contents, ["--key", "value"], parse, same_value, encoding)


@dataclass
class Dialect:
    separator: str
    quote: str
    escape: str
    null: str

    def written(self, draw, value):
        if value is None:
            return self.null
        must_quote = value in ("", self.null) or {self.separator, self.quote, "\n", "\r"} & set(value)
        if not must_quote and draw(st.booleans()):
            return value
        escaped = value.replace(self.escape, 2 * self.escape) if self.escape else value
        return self.quote + escaped.replace(self.quote, (self.escape or self.quote) + self.quote) + self.quote

    def options(self, draw):
        options = {"sep": self.separator, "quote": self.quote, "escape": self.escape, "nullValue": self.null}
        named = [f"{name}={each}" for name, each in options.items() if each or draw(st.booleans())]
        return list(chain(*(["--read-option", each] for each in named)))


DIALECTS = st.builds(
    Dialect,
    st.sampled_from([",", ";", "|", "\t"]),
    st.sampled_from(['"', '"', "'"]),
    st.sampled_from(["", "", "\\"]),
    st.sampled_from(["", "", "NA"]),
)


def csv_text(draw, records, dialect):
    result = ""
    for record in records:
        result += dialect.separator.join(dialect.written(draw, each) for each in record) + draw(LINE_ENDS)
        result += draw(st.sampled_from(["", "", "", "\n", "\r\n", "\r"]))  # empty lines
    return result.rstrip("\r\n") if draw(st.booleans()) else result


@st.composite
def csv_files(draw):
    """Generate text columns. Python's csv module returns null as an empty text, so the rows are known too."""
    encoding, dialect = draw(ENCODINGS), draw(DIALECTS)
    names = draw(st.lists(sampled_texts(encoding, *NAMES), min_size=2, max_size=4, unique=True))
    value = st.none() | texts(encoding) | sampled_texts(encoding, "", " a ", "NA", "1,5", "\ufeffx", 'say "x"')
    record = st.tuples(*[value] * len(names))
    rows = draw(st.lists(st.lists(record, max_size=6), min_size=2, max_size=5))
    rows[0].append(("x",) * len(names))
    contents = [csv_text(draw, [names, *each], dialect) for each in rows]
    maybe_null = ("", dialect.null)

    def parse(text):
        reader = csv.reader(
            io.StringIO(text, newline=""), delimiter=dialect.separator, quotechar=dialect.quote, strict=True
        )
        try:
            found = [each for each in reader if each]
        except csv.Error as error:
            raise ValueError(text) from error
        if found and (found[0] != names or any(len(each) != len(names) for each in found)):
            raise ValueError(text)
        return [(ANY_KEY if each[0] in maybe_null else each[0].encode(), each) for each in found[1:]]

    def same(expected, value):
        for text, (_, each) in zip(expected, json.loads(value, object_pairs_hook=list), strict=True):
            assert each == text or (each is None and text in maybe_null)

    def same_known(expected, value):
        pairs = list(map(list, zip(names, expected, strict=True)))
        assert json.loads(value, object_pairs_hook=lambda found: list(map(list, found))) == pairs

    known = [[(None if row[0] is None else row[0].encode(), row) for row in each] for each in rows]
    arguments = ["--key", f"`{names[0].replace('`', '``')}`", "--value-json", *dialect.options(draw)]
    independent = None if dialect.escape else parse
    return text_load(draw, "csv", contents, arguments, independent, same, encoding, (known, same_known))


def written_number(draw, number):
    text = f"{number:f}"
    return draw(st.sampled_from([text, f"{number:E}", f"+{text}" if number >= 0 else text]))


def written_time(draw, time):
    return draw(st.sampled_from([time.isoformat(), time.isoformat(" "), time.isoformat(timespec="microseconds")]))


TYPED = {
    "i": ("BIGINT", SCALARS["i64"], lambda draw, each: str(each)),
    "b": ("BOOLEAN", SCALARS["b"], lambda draw, each: draw(st.sampled_from([str(each), str(each).lower()]))),
    "f": ("DOUBLE", SCALARS["f64"], lambda draw, each: draw(st.sampled_from([repr(each), repr(each).upper()]))),
    "d": ("DECIMAL(38,9)", SCALARS["d"], written_number),
    "day": ("DATE", SCALARS["day"], lambda draw, each: each.isoformat()),
    "at": ("TIMESTAMP", SCALARS["at"], written_time),
    "local": ("TIMESTAMP_NTZ", SCALARS["local"], written_time),
    "s": ("STRING", SCALARS["s"], lambda draw, each: each),
}
"""Name, SQL type, Arrow type with values, and text of a column."""
TYPED_ROWS = pa.struct([(name, kind) for name, (_, (kind, _), _) in TYPED.items()])
TYPED_SCHEMA = ", ".join(f"{name} {sql}" for name, (sql, _, _) in TYPED.items())


def typed_rows():
    values = {name: st.none() | each for name, (_, (_, each), _) in TYPED.items()}
    return st.lists(st.fixed_dictionaries(values), min_size=1, max_size=6)


def exact_json(kind):
    """Return a function that compares a row with its JSON in the log, by the types of the columns."""

    def same(expected, value):
        found = json.loads(value, parse_int=str, parse_float=str, object_pairs_hook=list)
        assert_equal(kind, expected, found)

    return same


@st.composite
def typed_csv_files(draw):
    """Generate columns of each type. The rows are known."""
    dialect = draw(DIALECTS)
    rows = draw(st.lists(typed_rows(), min_size=2, max_size=5))

    def written(row):
        return [None if row[name] is None else text(draw, row[name]) for name, (_, _, text) in TYPED.items()]

    contents = [csv_text(draw, [list(TYPED), *map(written, each)], dialect) for each in rows]
    arguments = ["--schema", TYPED_SCHEMA, "--key", "s", "--value-json", *dialect.options(draw)]
    known = [[(None if row["s"] is None else row["s"].encode(), row) for row in each] for each in rows]
    return text_load(draw, "csv", contents, arguments, None, same_value, "utf-8", (known, exact_json(TYPED_ROWS)))


@dataclass(frozen=True)
class Number:
    text: str


JSON_SCALARS = (
    st.none()
    | st.booleans()
    | st.sampled_from(NUMBERS).map(Number)
    | st.floats(-1e9, 1e9).map(lambda each: Number(repr(each)))
)
JSON_VALUES = st.recursive(
    JSON_SCALARS | texts(),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(texts(max_size=3), each, max_size=3),
    max_leaves=6,
)
DOCUMENTS = st.fixed_dictionaries(
    {
        "id": st.none() | texts() | st.sampled_from(NUMBERS).map(Number),
        "n": st.none() | st.sampled_from(NUMBERS).map(Number) | texts(),
    },
    optional={"o": st.none() | st.fixed_dictionaries({"x": st.none() | texts()}), "a": st.lists(texts(), max_size=2)},
)


def json_text(draw, value, spaces):
    """Return a value as JSON, with spaces and escapes in random places."""
    random = draw(st.randoms(use_true_random=False))

    def space():
        return random.choice(["", "", *spaces])

    def text(value):
        quoted = json.dumps(value, ensure_ascii=random.random() < 0.5)
        return quoted.replace("/", "\\/") if random.random() < 0.3 else quoted

    def written(value):
        if isinstance(value, Number):
            return value.text
        if isinstance(value, dict):
            members = [
                f"{space()}{text(name)}{space()}:{space()}{written(each)}{space()}" for name, each in value.items()
            ]
            return "{" + (",".join(members) or space()) + "}"
        if isinstance(value, list):
            return "[" + ",".join(f"{space()}{written(each)}{space()}" for each in value) + "]"
        return text(value) if isinstance(value, str) else json.dumps(value)

    return written(value)


def pairs_once(pairs):
    if len(dict(pairs)) != len(pairs):
        raise ValueError(pairs)
    return dict(pairs)


def json_document(text):
    """Return the document of a text. Raises ValueError unless the text is exactly one object."""

    def reject(name):
        raise ValueError(name)

    found = json.loads(
        text, parse_int=Number, parse_float=Number, parse_constant=reject, object_pairs_hook=pairs_once
    )
    json.dumps(found, ensure_ascii=False, default=lambda each: each.text).encode()
    if not isinstance(found, dict):
        raise ValueError(text)  # noqa: TRY004 - the text is wrong, not the argument
    return found


def scalar_text(value):
    """Return the text of a value as JSON path and SQL expressions return it."""
    if value is None:
        return None
    return (value.text if isinstance(value, Number) else value).encode()


def json_load(draw, contents, parse, encoding, arguments):
    """Return a load with a JSON path as the key, or with fields as the key and headers."""
    is_path = draw(st.booleans())
    key = "$.id" if is_path else "id"
    fields = [] if is_path else ["--header", "n=n", "--header", "x=o.x"]

    def same(expected, record):
        assert record == expected.encode()

    return text_load(
        draw, "json", contents, ["--key", key, "--value-json", *fields, *arguments], parse, same, encoding
    )


def first_document():
    return {"id": "first", "n": "n", "o": {"x": "x"}, "a": ["a"]}


@st.composite
def json_line_files(draw):
    encoding = draw(ENCODINGS.filter(lambda each: each not in ("latin-1", "cp1252")))
    documents = draw(st.lists(st.lists(DOCUMENTS, max_size=5), min_size=2, max_size=5))
    documents[0].insert(0, first_document())
    around = st.sampled_from(["", "", " ", "\t", "\r"])

    def line(document):
        return draw(around) + json_text(draw, document, [" ", "\t"]) + draw(around) + "\n"

    contents = [
        "".join(line(each) + draw(st.sampled_from(["", "", "\n", " \n"])) for each in file) for file in documents
    ]
    contents[-1] = contents[-1][: -1 if draw(st.booleans()) else None]

    def parse(text):
        lines = [each.strip(" \t\r") for each in text.split("\n")]
        found = [(json_document(each), each) for each in lines if each]
        return [(scalar_text(each["id"]), text) for each, text in found]

    return json_load(draw, contents, parse, encoding, [])


@st.composite
def json_document_files(draw):
    """Generate files of documents over several lines, alone or in an array."""
    documents = draw(st.lists(st.lists(DOCUMENTS, min_size=1, max_size=4), min_size=2, max_size=5))
    documents[0].insert(0, first_document())
    spaces = [" ", "\t", "\n", "\r\n", "\r"]
    around = st.sampled_from(["", *spaces])
    written = [[json_text(draw, each, spaces) for each in file] for file in documents]

    def content(file):
        if len(file) == 1 and draw(st.booleans()):
            return draw(around) + file[0] + draw(around)
        return "[" + ",".join(draw(around) + each + draw(around) for each in file) + "]" + draw(around)

    contents = list(map(content, written))

    def parse(text):
        text = text.strip(" \t\r\n")
        decoder = json.JSONDecoder(object_pairs_hook=pairs_once)
        if not text.startswith("["):
            return [(scalar_text(json_document(text)["id"]), text)]
        rows, position = [], 1
        json.loads(text)
        while text[position:].lstrip(" \t\r\n,")[:1] not in ("]", ""):
            position = len(text) - len(text[position:].lstrip(" \t\r\n,"))
            _, end = decoder.raw_decode(text, position)
            document = text[position:end]
            rows.append((scalar_text(json_document(document)["id"]), document))
            position = end
        return rows

    return json_load(draw, contents, parse, "utf-8", ["--read-option", "multiLine=true"])


PARQUET_KINDS: dict[str, Any] = {
    "u32": (pa.uint32(), st.integers(0, 2**32 - 1)),
    "u64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "ms": (
        pa.timestamp("ms"),
        SCALARS["local"][1].map(lambda each: each.replace(microsecond=each.microsecond // 1000 * 1000)),
    ),
    "d5": (pa.decimal128(5, 2), st.decimals(-999, 999, places=2)),
    "d18": (pa.decimal128(18, 0), st.integers(-(10**18) + 1, 10**18 - 1).map(Decimal)),
    "large": (pa.large_string(), texts()),
    "fixed": (pa.binary(3), st.binary(min_size=3, max_size=3)),
    "odd": (pa.string(), texts()),
}
GAP = dt.date(1582, 10, 5), dt.date(1582, 10, 24)
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - the column has it


def orc_kinds():
    kinds: dict[str, Any] = dict(SCALARS)
    kinds["day"] = (pa.date32(), SCALARS["day"][1].filter(lambda each: not GAP[0] <= each <= GAP[1]))
    # PyArrow writes fractions of a second before 1970 in a form that other ORC readers reject.
    times = st.integers(0, 9_000_000_000 * 10**6) | st.integers(-9_000_000_000, 0).map(lambda each: each * 10**6)
    local = times.map(lambda each: EPOCH + dt.timedelta(microseconds=each))
    kinds["local"] = (pa.timestamp("us"), local)
    kinds["at"] = (pa.timestamp("us", "UTC"), local.map(lambda each: each.replace(tzinfo=UTC)))
    return {**kinds, "odd": PARQUET_KINDS["odd"], "d5": PARQUET_KINDS["d5"]}


def columns_of(draw, scalars):
    """Return the Arrow type and the values of some columns. The first one is the key."""
    names = draw(st.lists(st.sampled_from(sorted(scalars)), min_size=1, max_size=5, unique=True))
    columns = {"key": (pa.string(), texts()), **{name: scalars[name] for name in names}}
    inner, values = scalars[names[0]]
    nested = {
        "list": (pa.list_(inner), st.lists(st.none() | values, max_size=3)),
        "struct": (
            pa.struct([("x", inner), ("y", pa.list_(pa.string()))]),
            st.fixed_dictionaries({"x": st.none() | values, "y": st.none() | st.lists(texts(), max_size=2)}),
        ),
        "map": (
            pa.map_(pa.string(), inner),
            st.dictionaries(texts(max_size=3), st.none() | values, max_size=3).map(dict.items).map(list),
        ),
        "lists": (pa.list_(pa.list_(inner)), st.lists(st.none() | st.lists(values, max_size=2), max_size=2)),
    }
    for name in draw(st.lists(st.sampled_from(sorted(nested)), max_size=2, unique=True)):
        columns[name] = nested[name]
    return columns


def tables_of(draw, columns):
    """Return some tables. All have the key, and the first one has every column."""
    row = st.fixed_dictionaries({name: st.none() | each for name, (_, each) in columns.items()})
    schema = pa.schema([(name, kind) for name, (kind, _) in columns.items()])
    rows = draw(st.lists(st.lists(row, max_size=8), min_size=2, max_size=5))
    rows[0].append(dict.fromkeys(columns))
    tables = [pa.Table.from_pylist(each, schema) for each in rows]
    for at in range(1, len(tables)):
        missing = draw(st.lists(st.sampled_from(list(columns)[1:]), max_size=1))
        tables[at] = tables[at].drop_columns(missing)
    return schema, tables


def in_utc(kind):
    """Return the type that Spark gives to a column of ORC: all timestamps are in UTC."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([(each.name, in_utc(each.type)) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, in_utc(kind.item_type))
    return pa.list_(in_utc(kind.value_type)) if pa.types.is_list(kind) else kind


def columnar_load(draw, name, schema, files, read):
    def parse(data):
        try:
            found = read(io.BytesIO(data))
        except (pa.ArrowException, OSError) as error:
            raise ValueError(name) from error
        rows = [{name: row.get(name) for name in schema.names} for row in found.to_pylist()]
        return [(None if row["key"] is None else row["key"].encode(), row) for row in rows]

    is_valid = draw(st.integers(0, 99)) % 32 != 7
    if not is_valid:
        cut = draw(st.integers(0, len(files[-1]) - 1))
        files[-1] = files[-1][:cut]
    arguments = ["--key", "key", "--value-json"]
    kind = pa.struct(list(schema))
    same = exact_json(in_utc(kind) if name == "orc" else kind)
    return Load(name, files, arguments, parse, same, [""] * len(files), is_valid)


@st.composite
def parquet_files(draw):
    schema, tables = tables_of(draw, columns_of(draw, {**SCALARS, **PARQUET_KINDS}))
    files = []
    for table in tables:
        content = io.BytesIO()
        pq.write_table(
            table,
            content,
            row_group_size=draw(st.sampled_from([1, 3, 100])),
            compression=draw(st.sampled_from(["none", "snappy", "gzip", "zstd"])),
            use_dictionary=draw(st.booleans()),
            data_page_version=draw(st.sampled_from(["1.0", "2.0"])),
            store_schema=draw(st.booleans()),
            write_statistics=draw(st.booleans()),
            store_decimal_as_integer=draw(st.booleans()),
        )
        files.append(content.getvalue())
    return columnar_load(draw, "parquet", schema, files, pq.read_table)


@st.composite
def orc_files(draw):
    schema, tables = tables_of(draw, columns_of(draw, orc_kinds()))
    files = []
    for table in tables:
        content = io.BytesIO()
        orc.write_table(
            table,
            content,
            compression=draw(st.sampled_from(["uncompressed", "zlib", "snappy", "zstd"])),
            batch_size=draw(st.sampled_from([1, 1024])),
            dictionary_key_size_threshold=draw(st.sampled_from([0.0, 1.0])),
        )
        files.append(content.getvalue())
    return columnar_load(draw, "orc", schema, files, lambda content: orc.ORCFile(content).read())


AVRO_KINDS: dict[str, Any] = {
    "b": ("boolean", SCALARS["b"]),
    "i32": ("int", (pa.int32(), st.integers(-(2**31), 2**31 - 1))),
    "i64": ("long", SCALARS["i64"]),
    "f32": ("float", SCALARS["f32"]),
    "f64": ("double", SCALARS["f64"]),
    "s": ("string", (pa.string(), texts())),
    "bin": ("bytes", SCALARS["bin"]),
    "fixed": ({"type": "fixed", "name": "F", "size": 3}, PARQUET_KINDS["fixed"]),
    "enum": ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, (pa.string(), st.sampled_from("AB"))),
    "d": ({"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 9}, SCALARS["d"]),
    "day": ({"type": "int", "logicalType": "date"}, SCALARS["day"]),
    "at": ({"type": "long", "logicalType": "timestamp-micros"}, SCALARS["at"]),
    "local": ({"type": "long", "logicalType": "local-timestamp-micros"}, SCALARS["local"]),
    "uuid": ({"type": "string", "logicalType": "uuid"}, (pa.string(), st.uuids())),
}


@st.composite
def avro_files(draw):
    names = draw(st.lists(st.sampled_from(sorted(AVRO_KINDS)), min_size=1, max_size=6, unique=True))
    inner, (kind, values) = AVRO_KINDS[names[0]]
    simple = inner if isinstance(inner, str) or "name" not in inner else inner["name"]
    fields: list[Any] = [{"name": "key", "type": ["null", "string"]}]
    fields += [{"name": name, "type": draw(st.permutations(["null", AVRO_KINDS[name][0]]))} for name in names]
    fields.append({"name": "list", "type": {"type": "array", "items": ["null", simple]}})
    fields.append({"name": "map", "type": ["null", {"type": "map", "values": simple}]})
    columns = {
        "key": st.none() | texts(),
        **{name: st.none() | AVRO_KINDS[name][1][1] for name in names},
        "list": st.lists(st.none() | values, max_size=3),
        "map": st.none() | st.dictionaries(texts(max_size=3), values, max_size=2),
    }
    schema: Any = {"type": "record", "name": "Row", "fields": fields}
    rows = draw(st.lists(st.lists(st.fixed_dictionaries(columns), max_size=6), min_size=2, max_size=5))
    rows[0].append(dict.fromkeys(columns) | {"list": []})
    files = []
    for each in rows:
        content = io.BytesIO()
        codec = draw(st.sampled_from(["null", "deflate", "bzip2", "xz"]))
        fastavro.writer(content, schema, each, codec=codec, sync_interval=draw(st.sampled_from([1, 16_000])))
        files.append(content.getvalue())
    typed = [(name, AVRO_KINDS[name][1][0]) for name in names]
    arrow = pa.struct([("key", pa.string()), *typed, ("list", pa.list_(kind)), ("map", pa.map_(pa.string(), kind))])

    def normal(value):
        if isinstance(value, dict):
            return [(name, normal(each)) for name, each in value.items()]
        if isinstance(value, list):
            return list(map(normal, value))
        return str(value) if type(value).__name__ == "UUID" else value

    def parse(data):
        try:
            found: Any = list(fastavro.reader(io.BytesIO(data)))
        except Exception as error:  # fastavro has no error of its own for invalid bytes
            raise ValueError("avro") from error
        values = [{name: normal(each) for name, each in row.items()} for row in found]
        return [(None if row["key"] is None else row["key"].encode(), row) for row in values]

    is_valid = draw(st.integers(0, 99)) % 32 != 7
    if not is_valid:
        files[-1] = damaged(draw, files[-1])
    arguments = ["--key", "key", "--value-json"]
    return Load("avro", files, arguments, parse, exact_json(arrow), [""] * len(files), is_valid)


FILES = {
    "csv": csv_files(),
    "csv with types": typed_csv_files(),
    "json lines": json_line_files(),
    "json documents": json_document_files(),
    "text": text_files(),
    "avro": avro_files(),
    "parquet": parquet_files(),
    "orc": orc_files(),
}
