"""The program that saves a state: its output, refreshes, and the calls that it rejects."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from jobs.bootstrap_state import main
from spark_cas import append_once, bootstrap, open_log, raise_for_outcome
from spark_cas.core.errors import ChunkDamagedError
from spark_cas.core.offsets import OffsetRange
from spark_cas.core.records import RECORDS
from spark_cas.log.objects import ObjectLog
from spark_cas.programs import saved_state
from spark_cas.programs.saved_state import place_of
from spark_cas.spark.reading.bootstrap import STATE
from tests.kafka import clients
from tests.long import full

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

TEXTS = [
    "",
    " both ends ",
    'say "so"',
    "a,b",
    "two\nlines",
    "dos\r\nlines",
    "old\rmac",
    "#",
    "\\",
    '\\"',
    "\x00",
    "é€𝄞",
]


@pytest.fixture
def run(spark, capsys):
    """A function that runs the program and returns its exit code, its result and the text on stderr."""

    def run(*argv):
        code = main(argv, "bootstrap_state.py", lambda _: spark)
        out, told = capsys.readouterr()
        result = json.loads(out.splitlines()[-1])
        assert result["exit_code"] == code
        return code, result, told

    return run


def append(log, partition, pairs):
    """Append a record for each key and value; None is a tombstone."""
    rows = [{"key": key, "value": value} for key, value in pairs.items()]
    end = log.bounds(partition).end_offset
    records, job = pa.Table.from_pylist(rows, RECORDS), f"{log.topic}-{partition}-{end}"
    raise_for_outcome(append_once(log, partition, records, job=job, expected_offset=end), partition)


def rows_of(df):
    return sorted((tuple(row) for row in df.select(*STATE.names).collect()), key=repr)


def saved(spark, kind, place):
    return rows_of(place_of(spark, kind, place).load().state)


@pytest.mark.parametrize("kind", ["parquet", *full("csv", "table")])
def test_a_refresh_is_equal_to_a_bootstrap_of_everything(spark, run, path, tmp_path, kind):
    first, second, third = [f"state_{at}" if kind == "table" else str(tmp_path / f"state {at}") for at in range(3)]
    arguments = ["--log", path, "--format", kind]
    with open_log(path) as log:
        log.create(2)
        append(log, 0, {text.encode(): text.encode() for text in TEXTS})
        append(log, 0, {b"deleted": b"1", b"changed": b"1", b"kept": b"1"})
        append(log, 1, {b"changed": b"in another partition"})
        try:
            code, result, _ = run(*arguments, "--output", first)
            everything = bootstrap(spark, path)
            assert (code, result["rows"]) == (0, len(TEXTS) + 4)
            assert json.dumps(result["expected_offsets"]) == everything.expected_offsets
            assert saved(spark, kind, first) == rows_of(everything.state)

            append(log, 0, {b"deleted": None, b"changed": b"2", b"new": b"", b"never there": None, b"": b"changed"})
            append(log, 1, {b"changed": None})
            append(log, 1, {b"changed": b"back"})
            run(*arguments, "--output", second, "--since", first)
            everything = rows_of(bootstrap(spark, path).state)
            assert saved(spark, kind, second) == everything
            assert [row[:3] for row in everything if row[0] == b"deleted"] == []
            assert [row[1] for row in everything if row[0] == b"changed"] == [b"2", b"back"]

            log.trim(0, len(TEXTS))
            append(log, 0, {b"new": None})
            # Damage rows of the earlier state: the refresh must not read them. A search for the end may pass them.
            damaged = Path(path) / f"partition=00000/{len(TEXTS):020}.parquet"
            whole = damaged.read_bytes()
            damaged.write_bytes(whole[:4] + bytes(60) + whole[64:])
            with pytest.raises(ChunkDamagedError):
                list(log.read(0, OffsetRange(len(TEXTS), len(TEXTS) + 1)))
            code, result, _ = run(*arguments, "--output", third, "--since", second)
            damaged.write_bytes(whole)
            everything = rows_of(bootstrap(spark, path).state)
            assert (code, result["rows"]) == (0, len(everything))
            assert saved(spark, kind, third) == everything
            assert len(everything) < len(TEXTS)

            code, result, told = run(*arguments, "--output", third)
            assert (code, result["status"]) == (2, "failed")
            assert "Name a new" in told
        finally:
            for place in (first, second, third) if kind == "table" else ():
                spark.sql(f"DROP TABLE IF EXISTS {place}")


def test_what_a_stopped_run_leaves_is_no_state(spark, run, path, tmp_path, monkeypatch):
    place = str(tmp_path / "state")
    with open_log(path) as log:
        log.create(1)
        append(log, 0, {b"a": b"1"})
    arguments = ["--log", path, "--output", place]
    with monkeypatch.context() as stopped:
        stopped.setattr(saved_state._Folder, "write_offsets", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        code, result, _ = run(*arguments)
        assert (code, result["status"]) == (130, "interrupted")
    assert len(list(Path(place).glob("state-*"))) == 1
    code, _, told = run("--log", path, "--output", f"{place}-2", "--since", place)
    assert code == 2
    assert "has no saved state" in told
    # The offsets of a stream's checkpoint, or of a run that was stopped while it wrote them.
    for name, lines in (("checkpoint", ["v1", "{}"]), ("halfway", [])):
        of_another = tmp_path / name / "offsets"
        of_another.mkdir(parents=True)
        for number, line in enumerate(lines):
            (of_another / str(number)).write_text(f"{line}\n")
        code, _, told = run("--log", path, "--output", str(tmp_path / name))
        assert (code, "already has a folder offsets" in told) == (2, True)
        assert [each.read_text() for each in sorted(of_another.iterdir())] == [f"{line}\n" for line in lines]
    code, _, told = run("--log", path, "--output", f"{place}-2", "--since", str(tmp_path / "checkpoint"))
    assert (code, "has no saved state" in told) == (2, True)
    with open_log(path) as log:
        append(log, 0, {b"b": b"2"})
    code, result, _ = run(*arguments)
    assert (code, result["rows"], result["expected_offsets"]) == (0, 2, {"0": 2})
    assert [row[0] for row in saved(spark, "parquet", place)] == [b"a", b"b"]
    assert rows_of(spark.read.parquet(result["state"])) == saved(spark, "parquet", place)
    with monkeypatch.context() as at_once:
        at_once.setattr(saved_state._Folder, "require_free", lambda _: None)
        code, _, told = run(*arguments)
    assert (code, "another program created the folder offsets" in told) == (2, True)
    assert place_of(spark, "parquet", place).load().at.expected_offsets == '{"0": 2}'


def test_state_with_a_lost_file_is_rejected(run, path, tmp_path):
    with open_log(path) as log:
        log.create(1)
        append(log, 0, {b"a": b"1"})
    for kind in ("parquet", "csv"):
        place, arguments = tmp_path / kind, ["--log", path, "--format", kind, "--output"]
        assert run(*arguments, str(place))[0] == 0
        (rows,) = place.glob(f"state-*/*.{kind}")
        removed = rows.rename(tmp_path / rows.name)
        code, result, told = run(*arguments, f"{place}-2", "--since", str(place))
        assert (code, result["error"]) == (2, "UsageError")
        assert "has 0 rows, and the state was saved with 1" in told
    removed.rename(rows)
    (offsets,) = place.glob("offsets/*.txt")
    offsets.with_name(f".{offsets.name}.crc").unlink()
    offsets.write_text(offsets.read_text().replace(', "rows": 1}', "}"))  # as an older version
    code, result, _ = run(*arguments, f"{place}-2", "--since", str(place))
    assert (code, result["rows"]) == (0, 1)


def test_a_refresh_that_could_be_wrong_is_refused(run, path, tmp_path, monkeypatch):
    place = str(tmp_path / "state")
    with open_log(path) as log:
        log.create(1)
        append(log, 0, {b"a": b"1"})
    with monkeypatch.context() as unseen:
        unseen.setattr(ObjectLog, "tombstones_kept_ms", lambda _: 0)
        code, result, told = run("--log", path, "--output", place)
    assert (code, result["error"]) == (6, "TRIMMED")
    assert "--operation DescribeConfigs --topic" in told
    assert run("--log", path, "--output", place)[0] == 0
    refresh = ["--log", path, "--since", place]
    code, result, told = run(*refresh, "--output", f"{place}-csv", "--format", "csv")
    assert (code, result["error"]) == (2, "UsageError")
    assert "is in format parquet" in told
    csv = ["--log", path, "--format", "csv"]
    assert run(*csv, "--output", f"{place}-csv")[0] == 0
    (rows,) = Path(f"{place}-csv").glob("state-*/*.csv")
    rows.with_name(f".{rows.name}.crc").unlink()
    rows.write_text(rows.read_text().replace('"0"', '"x"'))
    assert run(*csv, "--output", f"{place}-damaged", "--since", f"{place}-csv")[0] == 2
    assert not Path(f"{place}-damaged/offsets").exists()
    with open_log(path) as log:
        append(log, 0, {b"a": None})
        append(log, 0, {b"c": b"1", b"\xff": b"no text"})
        log.trim(0, 2)
    code, result, told = run(*refresh, "--output", f"{place}-2")
    assert (code, result["error"]) == (6, "TRIMMED")
    assert "offsets 1 to 1" in told
    loses = ["--log-option", "failOnDataLoss=false"]
    assert run(*refresh, *loses, "--output", f"{place}-3")[1]["rows"] == 2
    code, result, told = run(*refresh, *loses, "--output", f"{place}-4", "--log-option", "startingOffsets=latest")
    assert (code, result["error"]) == (2, "OPTION")
    code, result, told = run("--log", path, "--output", f"{place}-5", "--format", "csv")
    assert (code, result["error"]) == (2, "UsageError")
    assert "Save the state as parquet" in told
    shutil.rmtree(path)
    with open_log(path) as log:
        log.create(1)
        append(log, 0, {b"a": b"1", b"b": b"2", b"c": b"3", b"d": b"4", b"e": b"5"})
    code, result, _ = run(*refresh, "--output", f"{place}-6")
    assert (code, result["error"]) == (3, "TRUNCATED")
    with pytest.raises(SystemExit, match="2"):
        run("--output", place)


def test_a_log_that_is_another_or_shorter_by_the_time_it_is_read_is_told_by_name(run, path, tmp_path, monkeypatch):
    write_rows = saved_state._Folder.write_rows

    def make():
        with open_log(path) as log:
            log.create(1)
            append(log, 0, {b"a": b"1"})
            append(log, 0, {b"b": b"1"})

    def make_anew():
        shutil.rmtree(path)
        make()

    def shorten():
        Path(path, f"partition=00000/{1:020}.parquet").unlink()

    make()
    for change, said in ((make_anew, "recreated"), (shorten, "ends at 1, but the read was planned up to offset 2")):
        with monkeypatch.context() as late:
            write = lambda *given, change=change: change() or write_rows(*given)  # noqa: E731
            late.setattr(saved_state._Folder, "write_rows", write)
            code, result, told = run("--log", path, "--output", str(tmp_path / "state"))
        assert (code, result["error"]) == (3, "TRUNCATED")
        assert said in told
        assert not Path(tmp_path, "state/offsets").exists()


@pytest.mark.kafka
def test_a_state_of_a_topic(spark, run, broker, tmp_path, monkeypatch):
    topic = clients.create_topic(broker.bootstrap, 2, cleanup_policy="compact")
    arguments = ["--bootstrap-servers", broker.bootstrap, "--topic", topic]
    first, second, third = [str(tmp_path / f"state-{at}") for at in range(3)]
    address = f"kafka://{broker.bootstrap}/{topic}"
    with open_log(address) as log:
        append(log, 0, {b"a": b"1", b"b": b"1"})
        append(log, 1, {b"c": b"1"})
        clients.append(broker.bootstrap, topic, "never", "seen", commit=False)
        assert run(*arguments, "--output", first)[0] == 0
        append(log, 0, {b"a": None, b"d": b"1"})
        assert run(*arguments, "--output", second, "--since", first)[1]["rows"] == 3
    found = bootstrap(spark, address)
    assert saved(spark, "parquet", second) == rows_of(found.state)
    assert place_of(spark, "parquet", second).load().at.expected_offsets == found.expected_offsets
    # Kafka may remove a tombstone before the program reads it, also while the program reads everything.
    write_rows = saved_state._Folder.write_rows

    def write_slowly(*given):
        rows = write_rows(*given)
        clients.configure(broker.bootstrap, topic, delete_retention_ms="1")
        return rows

    with monkeypatch.context() as slow:
        slow.setattr(saved_state._Folder, "write_rows", write_slowly)
        code, result, told = run(*arguments, "--output", third)
    assert (code, result["error"]) == (6, "TRIMMED")
    assert not Path(third, "offsets").exists()
    clients.configure(broker.bootstrap, topic, delete_retention_ms="1000")
    code, result, told = run(*arguments, "--output", third, "--since", second)
    assert (code, result["error"]) == (6, "TRIMMED")
    assert "keeps tombstones for 1 s" in told
