"""A load gives the same bytes in every session."""

import datetime as dt
from contextlib import suppress
from decimal import Decimal
from warnings import catch_warnings

import pyarrow as pa
import pyarrow.orc as po
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSourceReader

from spark_cas.programs.arguments import LoadRequest
from spark_cas.programs.errors import UsageError
from spark_cas.programs.load_input import PINNED, ordered_rows, pinned_settings

pytestmark = pytest.mark.spark

OTHER = {
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.legacy.ctePrecedencePolicy": "LEGACY",
    "spark.sql.functionResolution.sessionOrder": "first",
    "spark.sql.storeAssignmentPolicy": "LEGACY",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.columnNameOfCorruptRecord": "id",
    "spark.sql.sources.useV1SourceList": "",
    "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInRead": "LEGACY",
    "spark.sql.orc.impl": "hive",
    "spark.sql.avro.datetimeRebaseModeInRead": "LEGACY",
}
"""A different value for each setting that is not true or false."""

# The result of each expression depends on its setting.
EXPRESSIONS = {
    "spark.sql.session.timeZone": "date_format(at, 'yyyy-MM-dd HH:mm')",
    "spark.sql.timestampType": "typeof(timestamp '2024-01-01 00:00:00')",
    "spark.sql.legacy.timeParserPolicy": "to_timestamp('2024-7-1', 'yyyy-MM-dd')",
    "spark.sql.legacy.interval.enabled": "typeof(day - date '2024-01-01')",
    "spark.sql.ansi.enabled": "cast('x' as int)",
    "spark.sql.ansi.doubleQuotedIdentifiers": '"id"',
    "spark.sql.caseSensitive": "ID",
    "spark.sql.parser.escapedStringLiterals": r"'a\nb'",
    "spark.sql.variable.substitute": "'${spark.app.name}'",
    "spark.sql.legacy.consecutiveStringLiterals.enabled": "'a''b'",
    "spark.sql.legacy.exponentLiteralAsDecimal.enabled": "typeof(1e3)",
    "spark.sql.decimalOperations.allowPrecisionLoss": "typeof(amount * amount * amount)",
    "spark.sql.mapKeyDedupPolicy": "map('a', 1, 'a', 2)",
    "spark.sql.legacy.allowHashOnMapType": "hash(map('a', 1))",
    "spark.sql.legacy.castComplexTypesToString.enabled": "cast(nested as string)",
    "spark.sql.legacy.negativeIndexInArrayInsert": "array_insert(array('a', 'b'), -1, 'x')",
    "spark.sql.function.concatBinaryAsString": "typeof(concat(raw, raw))",
    "spark.sql.function.eltOutputAsString": "typeof(elt(1, raw, raw))",
    "spark.sql.legacy.lpadRpadAlwaysReturnString": "typeof(lpad(raw, 5))",
    "spark.sql.chunkBase64String.enabled": "base64(repeat('x', 100))",
    "spark.sql.legacy.javaCharsets": "encode('a', 'windows-1252')",
    "spark.sql.legacy.codingErrorAction": "encode('\u20ac', 'US-ASCII')",
    "spark.sql.legacy.truncateForEmptyRegexSplit": "split('abcd', '', 2)",
    "spark.sql.jsonGenerator.ignoreNullFields": "to_json(nested)",
    "spark.sql.legacy.json.allowEmptyString.enabled": """from_json('{"a": ""}', 'a int', map('mode', 'FAILFAST'))""",
    "spark.sql.legacy.nullValueWrittenAsQuotedEmptyStringCsv": "to_csv(named_struct('a', cast(null as int)))",
}
AT = dt.datetime(2024, 7, 1, 1, 2, 3, 456789)  # noqa: DTZ001 - the type of the column gives it a zone, or none
OLD = dt.datetime(1500, 1, 1)  # noqa: DTZ001 - see above
TABLE = pa.table(
    {
        "id": pa.array([1, 2], pa.int64()),
        "raw": pa.array([b"ab", b"\xff"], pa.binary()),
        "at": pa.array([AT, None], pa.timestamp("us", "UTC")),
        "local": pa.array([AT, OLD], pa.timestamp("us")),
        "day": pa.array([dt.date(2024, 7, 1), dt.date(1500, 1, 1)], pa.date32()),
        "amount": pa.array([Decimal("12345.6789"), None], pa.decimal128(30, 4)),
        "nested": pa.array([{"a": None, "b": 1}, None], pa.struct([("a", pa.string()), ("b", pa.int32())])),
    }
)


def _parquet(spark, files, name):
    return spark.read.parquet(f"{files}/{name}")


def _csv(spark, files):
    return (
        spark.read.schema("id INT, at TIMESTAMP, bad INT")
        .options(header="true", mode="FAILFAST")
        .csv(f"{files}/a.csv")
    )


# The result of each of these frames depends on its setting.
FILES = {
    "spark.sql.files.ignoreCorruptFiles": lambda spark, files: spark.read.schema("id INT").parquet(
        f"{files}/cut.parquet"
    ),
    "spark.sql.sources.partitionColumnTypeInference.enabled": lambda spark, files: _parquet(spark, files, "folders"),
    "spark.sql.sources.useV1SourceList": lambda spark, files: _parquet(spark, files, "a.parquet").select(
        "id", "_metadata.row_index"
    ),
    "spark.sql.csv.parser.columnPruning.enabled": lambda spark, files: _csv(spark, files).select("id"),
    "spark.sql.parquet.binaryAsString": lambda spark, files: _parquet(spark, files, "a.parquet"),
    "spark.sql.parquet.inferTimestampNTZ.enabled": lambda spark, files: _parquet(spark, files, "a.parquet"),
    "spark.sql.parquet.mergeSchema": lambda spark, files: _parquet(spark, files, "two"),
    "spark.sql.orc.mergeSchema": lambda spark, files: spark.read.orc(f"{files}/orc"),
    "spark.sql.parquet.int96AsTimestamp": lambda spark, files: _parquet(spark, files, "int96.parquet"),
    "spark.sql.parquet.int96RebaseModeInRead": lambda spark, files: _parquet(spark, files, "int96.parquet"),
    "spark.sql.parquet.datetimeRebaseModeInRead": lambda spark, files: _parquet(spark, files, "a.parquet"),
    "spark.sql.legacy.parquet.nanosAsLong": lambda spark, files: _parquet(spark, files, "nanos.parquet"),
}

UNSTABLE = [
    "uuid()",
    "coalesce(t, string(rand(5)))",
    "transform(array(t), x -> uuid())[0]",
    "monotonically_increasing_id()",
    "shuffle(split(t, ';'))[0]",
    "(SELECT uuid())",
    "reflect('java.util.UUID', 'randomUUID')",
    "aes_encrypt(t, 'abcdefghijklmnop')",
    "aes_encrypt(t, 'abcdefghijklmnop', 'CBC')",
    "coalesce(cast(t AS TIMESTAMP), date_trunc('millisecond', current_timestamp()))",
    "now() AS day",
    "`now`()",
    "IDENTIFIER('n' || 'ow')()",
    "current_date",
    "`current_timestamp`",
    "curdate()",
    "localtimestamp()",
    "unix_timestamp()",
    "(SELECT now())",
    "timestamp'now'",
    "coalesce(cast(t AS TIMESTAMP), ' Today ')",
    "user",
    "current_catalog()",
    "input_file_name()",
    "input_file_block_start()",
    "explode(split(t, ';'))",
    "json_tuple(t, 'a')",
    "max(t)",
    "count(*)",
    "lag(t) OVER (ORDER BY id)",
    "window(cast(t AS TIMESTAMP), '10 minutes', '5 minutes').start",
]
STABLE = [
    "concat(t, 'now ()', \"user ()\", `the now () time`)",
    "concat_ws(', ', session_user, upper('window(s)'))",
    "aes_encrypt(concat(t, ', ', id), 'abcdefghijklmnop', 'ECB')",
    "filter(split(t, ';'), user -> user < 'today is')[0]",
    "unix_timestamp(cast(t AS TIMESTAMP), 'y')",
    "CASE WHEN t = 'today' THEN '\"now\"' ELSE id END",
    "(SELECT max(string(r.id)) FROM range(9) AS r WHERE r.id = cast(id AS INT))",
    "date_trunc('millisecond', coalesce(try_cast(t AS TIMESTAMP), timestamp'2026-11-30 00:00:00'))",
]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    other = pa.table({"id": pa.array([3], pa.int64()), "more": ["x"]})
    for name in ("folders/region=007", "two", "orc"):
        (folder / name).mkdir(parents=True)
    pq.write_table(TABLE, folder / "a.parquet")
    pq.write_table(TABLE, folder / "folders" / "region=007" / "a.parquet")
    pq.write_table(TABLE, folder / "two" / "a.parquet")
    pq.write_table(other, folder / "two" / "b.parquet")
    po.write_table(TABLE.select(["id", "day"]), folder / "orc" / "a.orc")
    po.write_table(other, folder / "orc" / "b.orc")
    pq.write_table(TABLE.select(["local"]), folder / "int96.parquet", use_deprecated_int96_timestamps=True)
    pq.write_table(pa.table({"at": pa.array([1], pa.timestamp("ns"))}), folder / "nanos.parquet")
    (folder / "cut.parquet").write_bytes(b"PAR1")
    (folder / "a.csv").write_text("id,at,bad\n1,2024-07-01 01:02:03,2\n3,2024-07-01 01:02:03\n")
    return folder


@pytest.fixture
def session(spark):
    return spark.newSession()


def outcome(frame):
    """Build a frame. Return its types and rows, or the class of the error."""
    try:
        built = frame()
        return built.schema.simpleString(), sorted(map(repr, built.toArrow().to_pylist()))
    except Exception as error:  # noqa: BLE001 - errors of the JVM and of Arrow, too
        return type(error)


def result(spark, files, name):
    """Return the result that depends on one setting."""
    if name in FILES:
        return outcome(lambda: FILES[name](spark, files))
    return outcome(lambda: spark.read.parquet(f"{files}/a.parquet").selectExpr(EXPRESSIONS[name]))


def other_value(name):
    return OTHER[name] if name in OTHER else {"true": "false", "false": "true"}[PINNED[name]]


def has_setting(session, name):
    """Return whether the version of Spark has a setting. Version 4.0 lacks two of the settings."""
    try:
        return session.conf.get(name) is not None
    except PySparkException:
        assert not hasattr(DataSourceReader, "pushFilters")
        return False


@pytest.mark.full
@pytest.mark.parametrize("name", [*EXPRESSIONS, *FILES])
def test_setting_changes_rows_and_pinned_setting_does_not(session, files, name):
    is_known = has_setting(session, name)
    with pinned_settings(session):
        expected = result(session, files, name)
        session.conf.set(name, other_value(name))
        assert (result(session, files, name) != expected) == is_known
    session.conf.set(name, other_value(name))
    with pinned_settings(session):
        assert result(session, files, name) == expected


def test_rows_are_the_same_if_all_settings_differ(session, files):
    with pinned_settings(session):
        expected = {name: result(session, files, name) for name in [*EXPRESSIONS, *FILES]}
    for name in {*PINNED, *EXPRESSIONS, *FILES}:
        session.conf.set(name, other_value(name))
    with pinned_settings(session):
        assert {name: result(session, files, name) for name in expected} == expected


@pytest.mark.parametrize("kind", ["session", "connect_session"])
def test_each_setting_is_pinned_and_restored(request, kind):
    session = request.getfixturevalue(kind)
    with catch_warnings(action="ignore"):  # Connect warns about deprecated settings
        for name in list(PINNED)[::2]:
            session.conf.set(name, other_value(name))
    before = dict(session.conf.getAll)
    with suppress(KeyboardInterrupt), pinned_settings(session, {"spark.sql.shuffle.partitions": "3"}):
        during = {name: session.conf.get(name) for name in [*PINNED, "spark.sql.shuffle.partitions"]}
        raise KeyboardInterrupt
    assert {name: during[name] for name in PINNED} == dict(PINNED)
    assert during["spark.sql.shuffle.partitions"] == "3"
    assert session.conf.getAll == before


def test_setting_that_cannot_be_changed_is_an_error_with_its_name(session):
    before = dict(session.conf.getAll)
    with (
        pytest.raises(UsageError, match=r"spark\.sql\.warehouse\.dir"),
        pinned_settings(session, {"spark.sql.warehouse.dir": "/elsewhere"}),
    ):
        pass
    assert session.conf.getAll == before


@pytest.mark.parametrize("kind", ["session", "connect_session"])
def test_expression_with_another_value_or_row_in_a_rerun_is_rejected(request, kind):
    session = request.getfixturevalue(kind)
    query = (
        "SELECT * FROM VALUES (1, 'a;b', 'x', 'y'), (2, null, 'x', 'y') AS (id, t, session_user, `the now () time`)"
    )

    def built(key="id", value="t", **others):
        given = LoadRequest((), "query", "log", f"string({key})", value, query=query, **others)
        ordered_rows(session, given, [])

    with pinned_settings(session):
        for text in STABLE:
            built(value=f"string({text})")
        for text in UNSTABLE:
            with pytest.raises(UsageError, match="--value: an expression must give one value"):
                built(value=text)
        for text in ("now()", "uuid()"):
            others = ({"headers": (("h", text),)}, {"timestamp": f"cast({text} AS TIMESTAMP)"}, {"order_by": (text,)})
            for each in ({"key": text}, *others):
                with pytest.raises(UsageError, match="an expression must give one value"):
                    built(**each)
