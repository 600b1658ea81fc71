"""Parquet and ORC input: merged columns, literal names, exact folder texts, and the order of each file."""

import base64
import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyarrow.parquet.encryption import CryptoFactory, EncryptionConfiguration, KmsClient, KmsConnectionConfig

from spark_cas.programs import load_input
from spark_cas.programs.errors import UsageError
from spark_cas.programs.input.columnar_files import ORC_SETTINGS, columnar_rows
from spark_cas.programs.input.footers import footer_rows
from spark_cas.programs.input.listing import list_input
from spark_cas.programs.load_input import pinned_settings
from spark_cas.spark.versions import HAS_READ_LIMITS
from tests.programs.input.reading import settings
from tests.programs.loading import all_records

pytestmark = pytest.mark.spark

WRITERS = {"parquet": pq.write_table, "orc": orc.write_table}
NO_INSTANTS = "before 4.2, Spark does not read ORC files with timestamps that have a time zone"
ODD_NAMES = ("a b%20c", "e[1]", "e1", "ü{x}", "q?", "plus+")


@pytest.fixture(params=WRITERS)
def kind(request):
    return request.param


@pytest.fixture
def write(kind, tmp_path):
    def write(name, **columns):
        file = tmp_path / "in" / f"{name}.{kind}"
        file.parent.mkdir(parents=True, exist_ok=True)
        WRITERS[kind](pa.table(columns), str(file))
        return file

    return write


@pytest.fixture
def read(spark, kind, tmp_path):
    def read():
        files = list_input([str(tmp_path / "in")], spark).files
        with pinned_settings(spark, ORC_SETTINGS if kind == "orc" else {}):
            frame, positions = columnar_rows(spark, files, kind, {})
            rows = frame.orderBy(*positions).drop(*positions).toArrow()
        return rows.to_pylist()

    return read


def test_column_that_only_some_files_have_is_null_in_the_others(write, read):
    write("a", id=[1], s=pa.array([{"x": 1}]))
    write("b", id=[2], t=["y"], s=pa.array([{"x": 2, "y": "new"}]))
    assert read() == [
        {"id": 1, "s": {"x": 1, "y": None}, "t": None},
        {"id": 2, "s": {"x": 2, "y": "new"}, "t": "y"},
    ]


def test_conflicting_types_are_rejected_by_file_and_column(write, read):
    amount = Decimal("1.50")
    write("a", id=pa.array([1], pa.int64()), amount=pa.array([amount], pa.decimal128(5, 2)))
    write("b", amount=pa.array([amount * 10**20], pa.decimal128(30, 2)))
    assert [row["amount"] for row in read()] == [amount, amount * 10**20]
    write("b", id=["one"])
    with pytest.raises(UsageError, match=r"b\.\w+.*id"):
        read()


def test_names_that_differ_only_by_case_are_rejected(write, read):
    write("a", id=[1])
    write("b", Id=[1])
    with pytest.raises(UsageError, match="Id"):
        read()


@pytest.mark.parametrize("kind", ["parquet"], indirect=True)
def test_names_in_a_key_that_differ_only_by_case_are_rejected(write, read):
    key = pa.struct([("a", pa.int64()), ("A", pa.int64())])
    write("a", m=pa.array([[({"a": 1, "A": 2}, 3)]], pa.map_(key, pa.int64())))
    with pytest.raises(UsageError, match=r"m\.key\.A"):
        read()


def test_empty_file_is_rejected(write, read, kind, tmp_path):
    write("a", id=[1])
    (tmp_path / "in" / f"b.{kind}").touch()
    with pytest.raises(UsageError, match=rf"b\.{kind}"):
        read()


def test_cut_file_is_rejected_by_its_name(write, read):
    write("a", id=[1, 2])
    file = write("b", id=[1, 2])
    data = file.read_bytes()
    for size in (*range(1, len(data), 20), len(data) - 1):
        file.write_bytes(data[:size])
        with pytest.raises(UsageError, match=r"b\.\w+"):
            read()


@pytest.mark.parametrize(
    "column",
    [
        pa.array([{"x": 1}], pa.struct([("x", pa.timestamp("ns"))])),
        pa.array([1], pa.time64("us")),
        pa.array([1.5], pa.float16()),
        pa.array([None], pa.decimal256(50, 2)),
    ],
    ids=["nanoseconds", "time", "float16", "decimal"],
)
@pytest.mark.parametrize("kind", ["parquet"], indirect=True)
def test_parquet_type_that_spark_does_not_read_is_rejected_by_column(write, read, column):
    write("a", id=[1], odd=column)
    with pytest.raises(UsageError, match=r"odd.*a\.parquet"):
        read()


@pytest.mark.parametrize("kind", ["parquet"], indirect=True)
def test_column_that_metadata_of_spark_hides_is_rejected(spark, write, read, tmp_path):
    spark.sql("SELECT 1 AS id, named_struct('x', 1) AS s").coalesce(1).write.parquet(str(tmp_path / "spark"))
    [file] = (tmp_path / "spark").glob("*.parquet")
    table = pq.read_table(file)
    (tmp_path / "in").mkdir()
    pq.write_table(table, tmp_path / "in" / "a.parquet")
    assert read() == [{"id": 1, "s": {"x": 1}}]
    pq.write_table(table.append_column("vat", pa.array([19])), tmp_path / "in" / "b.parquet")
    with pytest.raises(UsageError, match=r"b\.parquet.*vat"):
        read()
    inner = pa.struct([("x", pa.int32()), ("y", pa.int32())])
    nested = table.set_column(1, "s", pa.array([{"x": 1, "y": 2}], inner))
    pq.write_table(nested.replace_schema_metadata(table.schema.metadata), tmp_path / "in" / "b.parquet")
    with pytest.raises(UsageError, match=r"b\.parquet.*s\.y"):
        read()


@pytest.mark.parametrize("name", ["_metadata", "_Metadata"])
def test_column_with_the_name_of_the_hidden_column_of_spark_is_rejected(write, read, name):
    write("a", id=[1])
    assert read() == [{"id": 1}]
    write("b", id=[2], **{name: pa.array([{"row_index": 1, "file_block_start": 1}])})
    with pytest.raises(UsageError, match=rf"b\.\w+.*{name}.*[Rr]ename"):
        read()


def test_old_dates_are_not_shifted(write, read, kind):
    if kind == "orc" and not HAS_READ_LIMITS:
        pytest.skip(NO_INSTANTS)
    first = dt.date(1582, 10, 15 if kind == "parquet" else 25)
    days = [dt.date(1, 1, 1), dt.date(1500, 1, 1), dt.date(1582, 10, 4), first, dt.date(9999, 12, 31)]
    times = [dt.datetime.combine(day, dt.time(1)) for day in days]
    write("a", day=days, at=pa.array(times, pa.timestamp("us", "UTC")))
    rows = read()
    assert [row["day"] for row in rows] == days
    assert [row["at"].replace(tzinfo=None) for row in rows] == times


@pytest.mark.parametrize(
    "column",
    [
        pa.array([dt.date(1582, 10, 5)]),
        pa.array([dt.date(1582, 10, 14)]),
        pa.array([dt.datetime(1582, 10, 14, 23, 59, 59)], pa.timestamp("us")),  # noqa: DTZ001 - the type has no zone
        pytest.param(
            pa.array([{"x": [dt.datetime(1582, 10, 5)]}], pa.struct([("x", pa.list_(pa.timestamp("us", "UTC")))])),  # noqa: DTZ001
            marks=pytest.mark.skipif(not HAS_READ_LIMITS, reason=NO_INSTANTS),
        ),
    ],
    ids=["first", "last", "time", "nested"],
)
@pytest.mark.parametrize("kind", ["orc"], indirect=True)
def test_days_of_orc_that_spark_shifts_are_rejected(write, load, column, tmp_path):
    write("a", odd=column)
    code, report, said = load("--input", str(tmp_path / "in"), "--format", "orc", "--value-json", "--partitions", "1")
    assert (code, report["rows"]) == (2, 0)
    assert "odd" in said


@pytest.mark.parametrize("kind", ["orc"], indirect=True)
def test_timestamps_of_orc_need_jvms_in_utc(spark, write, read):
    write("a", x=[1], s=pa.array([{"t": None}], pa.struct([("t", pa.timestamp("us"))])))
    zones = spark._jvm.java.util.TimeZone
    before = zones.getDefault()
    zones.setDefault(zones.getTimeZone("Europe/Berlin"))
    try:
        with pytest.raises(UsageError, match="Berlin"):
            read()
    finally:
        zones.setDefault(before)
    assert read() == [{"x": 1, "s": {"t": None}}]


NANOSECONDS = [1, -999, 1_719_835_200_123_456_001]


@pytest.mark.parametrize("number", NANOSECONDS)
@pytest.mark.parametrize("is_nested", [False, True])
def test_fraction_of_a_microsecond_is_rejected(kind, read, tmp_path, number, is_nested):
    def write(numbers):
        times = pa.array(numbers, pa.timestamp("ns"))
        structs = pa.StructArray.from_arrays([times], names=["t"])
        column = pa.ListArray.from_arrays(list(range(len(times) + 1)), structs) if is_nested else times
        file, table = tmp_path / "in" / f"a.{kind}", pa.table({"x": list(range(len(numbers))), "odd": column})
        file.parent.mkdir(exist_ok=True)
        if kind == "orc":
            orc.write_table(table, str(file))
        else:
            pq.write_table(table, file, use_deprecated_int96_timestamps=True)

    write([1000, None, number])
    with pytest.raises(UsageError, match="odd"):
        read()
    write([1000, None, number // 1000 * 1000 % 10**18])
    assert len(read()) == 3


@pytest.mark.parametrize("kind", ["orc"], indirect=True)
def test_fraction_of_a_second_before_1970_in_orc_of_pyarrow_is_rejected(write, read):
    write("a", odd=pa.array([-2_000_000, 1], pa.timestamp("us")))
    assert len(read()) == 2
    write("a", odd=pa.array([-1_500_000], pa.timestamp("us")))
    with pytest.raises(UsageError, match=r"odd .*a\.orc .*1970"):
        read()


@pytest.mark.parametrize("kind", ["parquet"], indirect=True)
def test_int96_keeps_microseconds_of_all_years(read, tmp_path):
    times = [dt.datetime(1, 1, 1, 0, 0, 0, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)]  # noqa: DTZ001
    (tmp_path / "in").mkdir()
    table = pa.table({"at": pa.array(times, pa.timestamp("us"))})
    pq.write_table(table, tmp_path / "in" / "a.parquet", use_deprecated_int96_timestamps=True)
    assert [row["at"].replace(tzinfo=None) for row in read()] == times


@pytest.mark.parametrize(
    "kind_of_list", [pa.list_, pa.large_list, lambda item: pa.list_(item, 1)], ids=["list", "large", "fixed"]
)
@pytest.mark.parametrize("kind", ["parquet"], indirect=True)
def test_int96_in_lists_of_arrow_is_read(read, tmp_path, kind_of_list):
    def write(number):
        table = pa.table({"odd": pa.array([[number]], kind_of_list(pa.timestamp("ns")))})
        pq.write_table(table, tmp_path / "in" / "a.parquet", use_deprecated_int96_timestamps=True)

    (tmp_path / "in").mkdir()
    write(1_000)
    assert [row["odd"][0].microsecond for row in read()] == [1]
    write(1_001)
    with pytest.raises(UsageError, match="odd"):
        read()


@pytest.mark.parametrize("kind", ["parquet"], indirect=True)
def test_parquet_without_columns_is_rejected(write, read):
    write("a", id=[1])
    write("b")
    with pytest.raises(UsageError, match=r"b\.parquet.*no column"):
        read()


class _Keys(KmsClient):  # type: ignore[misc] # PyArrow has no types for it
    """Stores each key in plain text."""

    def __init__(self, _):
        super().__init__()

    def wrap_key(self, key_bytes, _):
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key, _):
        return base64.b64decode(wrapped_key)


def _write_encrypted(file, *, plaintext_footer):
    settings = EncryptionConfiguration(footer_key="f", column_keys={"c": ["id"]}, plaintext_footer=plaintext_footer)
    properties = CryptoFactory(_Keys).file_encryption_properties(KmsConnectionConfig(), settings)
    table = pa.table({"id": [1]})
    with pq.ParquetWriter(file, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)


def _write_overflow(file):
    pq.write_table(pa.table({"t": pa.array([2**62], pa.timestamp("ms"))}), file)


def _write_wrong_byte(file):
    numbers = pa.table({"id": [1, 2**40, 2**50]})  # the statistics have the first and the last
    pq.write_table(numbers, file, compression="none", use_dictionary=False, write_page_checksum=True)
    file.write_bytes(file.read_bytes().replace((2**40).to_bytes(8, "little"), (2**41).to_bytes(8, "little")))


UNREADABLE = {
    "checksum": (_write_wrong_byte, "[INPUT_UNREADABLE] [FAILED_READ_FILE.NO_HINT]"),
    "brotli": (lambda file: pq.write_table(pa.table({"id": [1]}), file, compression="brotli"), "BrotliCodec"),
    "overflow": (_write_overflow, "overflow"),
    "encrypted-column": (lambda file: _write_encrypted(file, plaintext_footer=True), "rypt"),
    "encrypted": (lambda file: _write_encrypted(file, plaintext_footer=False), "is encrypted"),
}


@pytest.mark.parametrize("problem", UNREADABLE)
def test_parquet_that_stays_unreadable_ends_with_exit_code_2(load, tmp_path, problem):
    write, message = UNREADABLE[problem]
    file = tmp_path / "a.parquet"
    write(file)
    code, report, said = load("--input", str(file), "--value-json", "--partitions", "1")
    assert (code, report["rows"]) == (2, 0)
    assert "a.parquet" in said
    assert message in said


@pytest.mark.parametrize("kind", ["orc"], indirect=True)
def test_union_of_orc_is_rejected_by_column(write, read):
    union = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1]), pa.array(["b"])])
    write("a", id=[1])
    write("b", odd=pa.StructArray.from_arrays([union], ["u"]))
    with pytest.raises(UsageError, match=r"odd.*b\.orc.*union"):
        read()


@pytest.mark.skipif(HAS_READ_LIMITS, reason="this version of Spark reads them")
@pytest.mark.parametrize("kind", ["orc"], indirect=True)
def test_times_with_a_zone_that_spark_does_not_read_are_rejected_by_column(write, read):
    write("a", id=[1])
    write("b", at=pa.array([0], pa.timestamp("us", "UTC")))
    with pytest.raises(UsageError, match=r"column at .*b\.orc.*pyspark"):
        read()


@pytest.mark.parametrize("kind", ["orc"], indirect=True)
def test_columns_that_spark_would_take_by_place_are_rejected(spark, write, read):
    write("a", x=[1], _color=["red"])
    write("b", _color=["green"])
    with pytest.raises(UsageError, match=r"b\.orc.*_color"):
        read()


@pytest.mark.parametrize("kind", ["orc"], indirect=True)
def test_columns_of_orc_are_taken_by_name_whatever_the_session_says(spark, write, read):
    write("a", x=[1], y=["a"])
    write("b", y=["b"], x=[2])
    with settings(spark, {"orc.force.positional.evolution": "true", "hive.exec.orc.skip.corrupt.data": "true"}):
        assert read() == [{"x": 1, "y": "a"}, {"x": 2, "y": "b"}]


def test_footers_count_the_rows_of_local_files_and_of_others(write, spark, kind, tmp_path, request):
    write("a", id=[1, 2])
    write("e[1]", other=[3])
    files = list_input([str(tmp_path / "in")], spark).files
    assert footer_rows(spark, files, kind) == 3
    assert footer_rows(request.getfixturevalue("connect_session"), files, kind) == 3


def test_job_with_other_rows_than_the_footers_is_an_error(write, load, kind, tmp_path, monkeypatch):
    def without_a_row(*arguments):
        frame, positions = columnar_rows(*arguments)
        return frame.where("id <> 2"), positions

    write("a", id=[1, 2, 3])
    command = ("--input", str(tmp_path / "in"), "--format", kind, "--value-json", "--partitions", "1", "--job")
    assert load(*command, "right")[1]["input"]["rows"] == 3
    monkeypatch.setattr(load_input, "columnar_rows", without_a_row)
    code, report, said = load(*command, "wrong")
    assert (code, report["status"], report["error"], report["rows"]) == (5, "different", "RowCountError", 2)
    assert "3" in said
    code, report, _ = load(*command, "wrong", "--verify")
    assert (code, report["error"], report["rows"]) == (5, "RowCountError", 2)


def test_each_name_is_taken_literally(write, read):
    for name in ODD_NAMES:
        write(name, file=[name])
    assert sorted(row["file"] for row in read()) == sorted(ODD_NAMES)


def test_columns_have_the_order_of_the_first_file(write, read):
    write("A", x=[1], y=[1], z=[1])
    write("[b]", z=[2], y=[2])
    assert [list(row) for row in read()] == [["x", "y", "z"]] * 2


@pytest.mark.parametrize("width", [1, 150])
@pytest.mark.parametrize("kind", ["orc"], indirect=True)
def test_maps_of_orc_keep_their_order_and_equal_keys_are_rejected(write, load, tmp_path, width):
    def command(job):
        return "--input", str(tmp_path / "in"), "--format", "orc", "--value", "to_json(m)", "--job", job

    others = {f"c{number}": [number] for number in range(width)}
    kind = pa.map_(pa.string(), pa.int64())
    write("a", m=pa.array([[("b", 1), ("a", 2)]], kind), **others)
    code, _, said = load(*command("order"), "--partitions", "1")
    assert code == 0, said
    assert [row["value"] for _, row in all_records(load.log)[0]] == [b'{"b":1,"a":2}']
    write("a", m=pa.array([[("b", 1), ("b", 2)]], kind), **others)
    code, report, _ = load("--input", str(tmp_path / "in"), "--format", "orc", "--value-json", "--job", "equal")
    assert (code, report["rows"]) == (2, 0)


def test_folders_become_text_and_never_replace_a_column(write, read, tmp_path):
    write("region=007/hour=00/a", id=[1])
    assert read() == [{"id": 1, "region": "007", "hour": "00"}]
    write("region=8/hour=__HIVE_DEFAULT_PARTITION__/b", id=[2])
    assert read()[1] == {"id": 2, "region": "8", "hour": None}
    write("c", id=[3])
    with pytest.raises(UsageError, match=r"c\."):
        read()


def test_folder_with_the_name_of_a_column_is_rejected(write, read):
    write("Id=7/a", id=[1])
    with pytest.raises(UsageError, match="Id"):
        read()


def test_rows_keep_the_order_of_their_file(write, load, kind, tmp_path):
    """The values decrease, so that no other order gives the same result."""
    count = 5_000
    for file in range(3):
        write(f"f{file}", n=[f"{file}-{count - row:05}" for row in range(count)])
    code, report, said = load(
        *("--input", str(tmp_path / "in"), "--format", kind, "--key", "'k'", "--value", "n"),
        *("--partitions", "1", "--job", "load-1"),
    )
    assert (code, report["rows"]) == (0, 3 * count), said
    found = [row["value"].decode() for _, row in all_records(load.log)[0]]
    assert found == [f"{file}-{count - row:05}" for file in range(3) for row in range(count)]


def test_microseconds_and_nulls_of_a_row_are_in_its_json(write, load, kind, tmp_path):
    if kind == "orc" and not HAS_READ_LIMITS:
        pytest.skip(NO_INSTANTS)
    times = pa.array([1_719_835_200_123_456, None], pa.timestamp("us", tz="UTC"))
    write("a", id=[1, 2], ts=times)
    assert load("--input", str(tmp_path / "in"), "--format", kind, "--value-json", "--partitions", "1")[0] == 0
    found = [json.loads(row["value"]) for _, row in all_records(load.log)[0]]
    assert found == [{"id": 1, "ts": "2024-07-01T12:00:00.123456Z"}, {"id": 2, "ts": None}]
