"""`spark-cas load --value-avro`, and `spark-cas read --value-format`. The schema registry is a test double."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_cas import open_log
from tests.long import full
from tests.programs.loading import all_records
from tests.support.programs import run_cli, run_page
from tests.support.schema_registry import registry_double

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

FLIGHT = {
    "type": "record",
    "name": "Flight",
    "fields": [{"name": "tail", "type": "string"}, {"name": "seats", "type": ["null", "long"]}],
}
SEATS = [90, None, -1]
# Each value: the id 1, the length 2 and two bytes, then null as the first type of the union or a long as the second.
ENCODED = [b"\0\0\0\0\1\4N0\2\xb4\1", b"\0\0\0\0\1\4N1\0", b"\0\0\0\0\1\4N2\2\1"]


@pytest.fixture
def double():
    with registry_double() as double:
        double.register("flights-value", FLIGHT)
        yield double


@pytest.fixture
def command(tmp_path, double):
    rows = pa.table({"tail": ["N0", "N1", "N2"], "seats": pa.array(SEATS, pa.int32())})
    pq.write_table(rows, tmp_path / "flights.parquet")
    return ("--input", str(tmp_path / "flights.parquet"), "--key", "tail", "--partitions", "1", "--order-by", "tail",
            "--registry", double.url, "--job", "load-1")  # fmt: skip


def values(path):
    return [row["value"] for partition in all_records(path) for _, row in partition]


def test_rows_are_loaded_as_avro_and_shown_again(load, command, double, path):
    code, report, told = load(*command, "--value-avro", "flights-value@1")
    assert (code, report["rows"]) == (0, 3), told
    assert values(path) == ENCODED
    double.register("flights-value", FLIGHT | {"doc": "version 2"})
    code, report, told = load(*command, "--value-avro", "flights-value@1", "--verify")
    assert (code, report["verified"], report["appended_rows"]) == (0, True, 0), told
    # Another version has other bytes.
    code, report, _ = load(*command, "--value-avro", "flights-value@2", "--verify")
    assert (code, report["error"], values(path)) == (4, "INPUT_CHANGED", ENCODED)

    ended = run_cli("read", path, "--value-format", "avro", "--registry", double.url, "--json")
    assert ended.code == 0, ended.err
    shown = [json.loads(line)["value"] for line in ended.out.splitlines()]
    assert shown == [{"tail": f"N{at}", "seats": seats} for at, seats in enumerate(SEATS)]
    ended = run_cli("tail", path, "-n", "1", "--value-format", "avro", "--registry", double.url, "-f", "%o %s\\n")
    assert ended.out == '2 {"tail": "N2", "seats": -1}\n'


def test_a_rerun_needs_the_version_of_the_first_run(load, command, double, path):
    assert load(*command, "--value-avro", "flights-value")[0] == 0
    requests = len(double.requests)
    assert load(*command, "--value-avro", "flights-value@1")[0] == 0
    assert len(double.requests) == requests, "a rerun of a complete job with a version needs no registry"
    assert load(*command, "--value-avro", "flights-value")[0] == 0
    double.register("flights-value", FLIGHT | {"doc": "version 2"})
    code, report, _ = load(*command, "--value-avro", "flights-value")
    assert (code, report["error"], report["appended_rows"]) == (4, "INPUT_CHANGED", 0)
    assert "--value-avro" in report["message"]
    code, report, told = load(*command, "--value-avro", "flights-value@1", "--verify")
    assert (code, report["verified"], values(path)) == (0, True, ENCODED), told


@pytest.mark.parametrize(
    "fields",
    [
        [{"name": "tail", "type": "string"}, {"name": "seats", "type": "long"}],
        *full(
            [{"name": "tail", "type": "string"}],
            [{"name": "tail", "type": "string"}, {"name": "seats", "type": ["null", "string"]}],
        ),
    ],
    ids=["null", "field that the schema does not have", "other type"],
)
def test_a_row_that_does_not_fit_is_rejected_before_an_append(load, command, double, path, fields):
    double.register("other", FLIGHT | {"fields": fields})
    with open_log(path) as log:
        log.create(1)
    code, report, told = load(*command, "--value-avro", "other")
    assert (code, report["error"], report["appended_rows"]) == (2, "SCHEMA", 0), told
    assert "other" in report["message"]
    assert values(path) == []


def test_a_registry_without_the_subject_is_an_error_before_an_append(load, command, path):
    code, report, _ = load(*command, "--value-avro", "absent")
    assert (code, report["error"], report["appended_rows"]) == (2, "SCHEMA", 0)


def test_json_documents_are_loaded_as_avro(load, double, path, tmp_path):
    (tmp_path / "flights.jsonl").write_text('{"tail": "N0", "seats": 90}\n')
    code, _, told = load("--input", str(tmp_path / "flights.jsonl"), "--schema", "tail STRING, seats BIGINT", "--key",
                         "$.tail", "--value-avro", "flights-value", "--registry", double.url, "--job", "load-1",
                         "--partitions", "1")  # fmt: skip
    assert (code, values(path)) == (0, ENCODED[:1]), told


@pytest.mark.parametrize(
    "arguments",
    [
        ("--value-avro", "flights-value"),
        ("--value-avro", "flights-value", "--value-json", "--registry", "http://localhost:1"),
        ("--value-json", "--registry", "http://localhost:1"),
        ("--value-json", "--registry-option", "timeout=1"),
        ("--format", "text", "--value-avro", "flights-value", "--registry", "http://localhost:1"),
    ],
)
def test_arguments_that_contradict_each_other_are_rejected(arguments):
    ended = run_cli("load", "--input", "flights.parquet", "--log", "log", *arguments)
    assert (ended.code, ended.out) == (2, "")


def test_commands_of_the_page_run(load, double, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"tailnum": ["N0", "N1"]}), "flights.parquet")
    double.register("flights-value", FLIGHT | {"fields": [{"name": "tailnum", "type": "string"}]})
    own = {"/data/": f"{tmp_path}/", "http://localhost:8081": double.url, "flights-value@1": "flights-value@2"}
    loaded, read = run_page("docs/schema-registry.md", own, load.spark)
    assert loaded.code == 0, loaded.err
    assert sorted(json.loads(line)["value"]["tailnum"] for line in read.out.splitlines()) == ["N0", "N1"]
