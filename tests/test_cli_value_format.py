"""`spark-cas read --value-format`. The schema registry is a test double."""

import json

import pyarrow as pa
import pytest

from spark_cas import append_once, open_log, raise_for_outcome
from spark_cas.core.records import RECORDS
from tests.support.programs import run_cli
from tests.support.schema_registry import registry_double

KINDS = [
    "double",
    "bytes",
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
    {"type": "array", "items": "boolean"},
]
ALL = {"type": "record", "name": "R", "fields": [{"name": f"f{at}", "type": kind} for at, kind in enumerate(KINDS)]}
# NaN; a byte; 1970-01-02; a millisecond; 1.50; an array with true.
NUMBERS = bytes.fromhex("00 00000001 000000000000f87f 02ff 02 02 040096 020100")


@pytest.fixture
def shown(tmp_path):
    """A function that appends values to a new log, and runs `spark-cas read`."""

    def shown(values, *arguments, headers=None):
        address = str(tmp_path / "log")
        rows = [dict.fromkeys(RECORDS.names) | {"value": each, "headers": headers} for each in values]
        with open_log(address) as log:
            log.create(1)
            table = pa.Table.from_pylist(rows, RECORDS)
            raise_for_outcome(append_once(log, 0, table, job="load", expected_offset=0), 0)
        return run_cli("read", address, *arguments)

    return shown


def test_json_is_a_part_of_the_object(shown):
    values = [b'{\n"a": [1.50, 1e400, 12345678901234567.89]}', None, b"7"]
    ended = shown(values, "--json", "--value-format", "json")
    assert '"value": {"a":[1.50,1e400,12345678901234567.89]}, ' in ended.out
    assert [json.loads(line)["value"] for line in ended.out.splitlines()][1:] == [None, 7]
    assert ended.code == 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "\t1\t<null>=x\th=y"),
        (("--headers", "h=y"), "\t1\t<null>=x\th=y"),
        (("-f", "%h\\n"), "NULL=x,h=y"),
        (("--json",), '"headers": [{"key": null, "value": "x"}, {"key": "h", "value": "y"}]}'),
    ],
)
def test_null_headers_and_keys_are_shown(shown, arguments, expected):
    headers = [None, {"key": None, "value": b"x"}, {"key": "h", "value": b"y"}]
    ended = shown([b"1"], *arguments, headers=headers)
    assert (ended.code, ended.out[-len(expected) - 1 :]) == (0, expected + "\n"), ended.err


def test_json_is_one_line(shown):
    ended = shown([b'{\n"a": 1}'], "-f", "%s\\n", "--value-format", "json")
    assert ended.out == '{"a":1}\n'


@pytest.mark.parametrize("value", [b"", b"{", b"\xff", b"NaN", b'{"a":1,"a":2}'])
def test_other_values_are_an_error_with_their_position(shown, value):
    ended = shown([b"1", value], "--value-format", "json", "--json")
    assert (ended.code, len(ended.out.splitlines())) == (6, 1)
    assert "[UNREADABLE_RECORD]" in ended.err
    assert '"offset":1' in ended.err


def test_avro_values_are_json_that_every_parser_reads(shown):
    with registry_double() as double:
        double.register("r", ALL)
        headers = [None, {"key": None, "value": b"x"}]  # neither has the schema
        ended = shown([NUMBERS], "--value-format", "avro", "--registry", double.url, "--json", headers=headers)
    assert json.loads(ended.out, parse_constant=pytest.fail)["value"] == {
        "f0": "nan",
        "f1": "/w==",
        "f2": "1970-01-02",
        "f3": "1970-01-01T00:00:00.001000+00:00",
        "f4": "1.50",
        "f5": [True],
    }


def test_an_unknown_schema_is_an_error_with_its_position(shown):
    with registry_double() as double:
        ended = shown([NUMBERS], "--value-format", "avro", "--registry", double.url, "--registry-option",
                      "max.retries=0")  # fmt: skip
    assert ended.code == 6
    assert "[UNREADABLE_RECORD] partition 0, offset 0" in " ".join(ended.err.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ("--value-format", "avro"),
        ("--value-format", "json", "--registry", "http://127.0.0.1:1"),
        ("--registry-option", "timeout=1"),
        ("--value-format", "xml"),
        ("--value-format", "avro", "--registry", "http://loader:hunter2@127.0.0.1:1"),
    ],
)
def test_arguments_that_contradict_each_other_are_rejected(shown, arguments):
    ended = shown([b"1"], *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert "hunter2" not in ended.err
