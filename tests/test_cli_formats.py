"""The output of `spark-cas`: JSON, formats of kcat, records by key, header and age, and completion in bash."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_cas import append_once, open_log, raise_for_outcome
from spark_cas.cli.command_line import print_error
from spark_cas.cli.commands import command_line
from spark_cas.core.errors import ConflictError
from spark_cas.core.load_locks import LoadLock, LoadLocks
from spark_cas.core.records import RECORDS
from tests.kafka import clients
from tests.support.programs import run_cli

ROOT = Path(__file__).parents[1]
HOUR_MS = 3_600_000
ROWS: list[dict[str, Any]] = [
    {"key": "Søren".encode(), "value": b"old", "headers": None, "age_ms": 3 * HOUR_MS},
    {"key": b"N1", "value": "日本\x9b".encode(), "headers": [{"key": "h", "value": b"1"}], "age_ms": 1_800_000},
    {"key": None, "value": None, "headers": None, "age_ms": 1_000},
    {
        "key": b"N1",
        "value": b"\xff\n",
        "headers": [{"key": "h", "value": b"2"}, {"key": "i", "value": None}],
        "age_ms": 0,
    },
]


@pytest.fixture
def log(tmp_path):
    """A log with the rows in the second of two partitions."""
    address = str(tmp_path / "flights")
    with open_log(address) as opened:
        opened.create(2)
    fill(address)
    return address


@pytest.fixture(params=["directory", pytest.param("topic", marks=pytest.mark.kafka)])
def each_log(request):
    """The same in a directory and in a topic."""
    if request.param == "directory":
        return request.getfixturevalue("log")
    bootstrap = request.getfixturevalue("broker").bootstrap
    address = f"kafka://{bootstrap}/{clients.create_topic(bootstrap, 2)}"
    fill(address)
    return address


def fill(address):
    now_ms = time.time_ns() // 1_000_000
    rows = [
        {name: each.get(name) for name in RECORDS.names} | {"timestamp": now_ms - each["age_ms"]} for each in ROWS
    ]
    with open_log(address) as opened:
        table = pa.Table.from_pylist(rows, RECORDS)
        raise_for_outcome(append_once(opened, 1, table, job="load", expected_offset=0), 1)


def shown(*argv):
    ended = run_cli(*argv)
    assert ended.code == 0, ended.err
    return ended.out.splitlines()


def objects(*argv):
    return [*map(json.loads, shown(*argv))]


def offsets_in(*argv):
    return [each["offset"] for each in objects(*argv, "--json")]


def refused(*argv):
    ended = run_cli(*argv)
    assert (ended.code, ended.out) == (2, "")
    return " ".join(ended.err.split())


def test_json_of_the_state_of_a_log(log):
    offsets = [
        {"partition": 0, "start_offset": 0, "end_offset": 0},
        {"partition": 1, "start_offset": 0, "end_offset": 4},
    ]
    assert objects("offsets", log, "--json") == offsets
    (entry,) = objects("progress", log, "--json")
    assert entry.pop("committed_at_ms") > 0
    assert entry == {
        "job": "load",
        "partition": 1,
        "rows": 4,
        "base_offset": 0,
        "end_offset": 4,
        "chunks": 1,
        "complete": True,
    }
    with open_log(log) as opened:
        opened.put_load_locks(LoadLocks(1, (LoadLock("next", "run", ((0, 2),), "", 5),)))
        log_id = opened.layout().log_id
    (state,) = objects("describe", log, "--json")
    (job,) = state.pop("jobs")
    assert state == {
        "log": "flights",
        "log_id": log_id,
        "layout_epoch": 0,
        "partitions": offsets,
        "load_locks": [{"job": "next", "partitions": [0, 1], "granted_at_ms": 5}],
    }
    assert job == objects("jobs", log, "--json")[0]
    assert (job["job"], job["state"], job["rows"]) == ("load", "complete", 4)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_json_is_utf_8_without_escaped_letters(log, encoding):
    ended = subprocess.run(
        [sys.executable, "-m", "spark_cas.cli", "read", log, "--json"],
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=True,
    )
    text = ended.stdout.decode("utf-8")
    assert "Søren" in text
    assert '"日本\\u009b"' in text, "control characters are escaped"
    assert [json.loads(line)["key"] for line in text.splitlines()] == ["Søren", "N1", None, "N1"]


def test_fields_of_an_error_are_only_printed_with_json(log, capsys):
    error = ConflictError("another writer appended.", partition=1, actual_offset=4)
    print_error(error)
    assert capsys.readouterr().err == "error: [CONFLICT] another writer appended.\n"
    print_error(error, with_fields=True)
    assert capsys.readouterr().err == f"error: {error}\n"
    plain = run_cli("abort", "load", log)
    assert (plain.code, plain.err.rstrip().endswith("}")) == (2, False)


def test_damaged_chunk_has_its_own_exit_code(log):
    next(Path(log).glob("partition=00001/*")).write_bytes(b"damaged")
    ended = run_cli("read", log, "--json")
    assert (ended.code, ended.err.startswith("error: [CHUNK_DAMAGED] ")) == (6, True)


def test_records_by_key_header_and_age(each_log):
    log = each_log
    assert offsets_in("read", log, "--key", "N1") == [1, 3]
    assert offsets_in("read", log, "--key", "Søren") == [0]
    assert offsets_in("read", log, "--key", "N") == []
    assert offsets_in("read", log, "--key", "N1", "--limit", "1") == [1]
    assert offsets_in("tail", log, "--key", "N1", "-n", "1") == [3]
    assert offsets_in("tail", log, "--key", "Søren", "-n", "1") == [0]
    assert offsets_in("read", log, "--headers", "h=1") == [1]
    assert offsets_in("read", log, "--headers", "h=1", "--headers", "i=2") == []
    assert offsets_in("read", log, "--key", "N1", "--headers", "h=2") == [3]
    assert offsets_in("read", log, "--since", "1h") == [1, 2, 3]
    assert offsets_in("read", log, "--since", "1d", "--partition", "1", "--key", "N1") == [1, 3]
    assert offsets_in("read", log, "--since", "0s") == []
    assert "--since: expected a time such as" in refused("read", log, "--since", "soon")
    assert "Remove --since" in refused("read", log, "--since", "1h", "--partition", "1", "--from", "1")
    assert "startingTimestamp" in refused("read", log, "--since", "1h", "--log-option", "startingTimestamp=1")


def test_offset_beyond_the_end_names_partition_and_end(log):
    for argument in ("--from", "--to"):
        message = refused("read", log, "--partition", "1", argument, "600")
        assert f"{argument} 600: partition 1 starts at offset 0 and ends at 4" in message


def test_format_writes_the_bytes_of_each_record(each_log):
    log, name = each_log, Path(each_log).name
    form = r"%t|%p|%o|%k|%K|%s|%S|%h|%%\t\x41\n"
    ended = subprocess.run(
        [sys.executable, "-m", "spark_cas.cli", "read", log, "-f", form],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=True,
    )
    assert ended.stdout == (
        f"{name}|1|0|Søren|6|old|3||%\tA\n{name}|1|1|N1|2|日本\x9b|8|h=1|%\tA\n{name}|1|2||-1||-1||%\tA\n".encode()
        + f"{name}|1|3|N1|2|".encode()
        + b"\xff\n|2|h=2,i=NULL|%\tA\n"
    )
    times = [int(line) for line in shown("read", log, "--format", r"%T\n")]
    assert times == [each["timestamp_ms"] for each in objects("read", log, "--json")]
    assert run_cli("tail", log, "-n", "1", "-f", "%o,").out == "3,"
    for wrong in ("%x", "%", r"\q", "\\", r"\x4"):
        assert "--format: expected a format" in refused("read", log, "-f", wrong)
    assert "not allowed with" in refused("read", log, "--json", "-f", "%s")


def completed(*words):
    """Return the completions of bash for the last word."""
    script = run_cli("completion").out
    program = 'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _spark_cas; printf "%s\\n" "${COMPREPLY[@]}"'
    ended = subprocess.run(
        ["bash", "-c", f"{script}\n{program}", "bash", "spark-cas", *words],
        capture_output=True,
        text=True,
        check=True,
    )
    return ended.stdout.split()


def test_completion_in_bash():
    assert set(completed("")) == set(command_line().commands)
    assert completed("tr") == ["trim"]
    assert completed("trim", "--d") == ["--dry-run"]
    assert completed("load", "--max-bytes") == ["--max-bytes-per-chunk"]
    assert completed("read", "/data") == [], "bash completes file names"
