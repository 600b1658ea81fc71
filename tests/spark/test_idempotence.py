"""The option ``idempotence`` of a write. The tests call the writer as Spark does, but in this process."""

import json
import pickle
import warnings
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from spark_cas.core.errors import (
    LayoutChangedError,
    LogNotFoundError,
    NotRoutedError,
    NotStoredError,
    OptionError,
    StorageError,
)
from spark_cas.core.partitioner import partition_of_key
from spark_cas.core.plan import Completion
from spark_cas.core.recorded_fields import from_json
from spark_cas.log.open import open_log
from spark_cas.options.parse import parse_write, parse_write_stream
from spark_cas.spark.schema import Mark
from spark_cas.spark.source import ConditionalLogSource
from spark_cas.spark.worker import planned_log
from spark_cas.spark.writing import blind_write
from spark_cas.spark.writing.blind_write import BlindWriter
from spark_cas.spark.writing.write import ConditionalLogWriter
from tests.support.faults import Fault, FaultyLog, When
from tests.support.writing import append_foreign, values_in

KEYED = StructField("key", StringType())
VALUE = StructField("value", BinaryType())
PLACED = StructField("partition", IntegerType(), metadata=Mark(2, None).metadata())
FRAME = StructType([KEYED, VALUE, PLACED])
CLAIMING = StructType([StructField("expected_offset", LongType()), KEYED, VALUE, PLACED])


def batch(partition, *values):
    ids = pa.array([partition] * len(values), pa.int32())
    texts = [value.encode() for value in values]
    return pa.RecordBatch.from_pydict({"key": pa.array(values, pa.string()), "value": texts, "partition": ids})


@pytest.fixture
def write(path, monkeypatch):
    """Plan a write of two tasks, run them and commit."""
    monkeypatch.delenv("SPARK_CAS_CONF", raising=False)

    def write(schema=FRAME, **options):
        given = {"path": path, "partitions": "2", **options}
        writer = pickle.loads(pickle.dumps(ConditionalLogSource(given).writer(schema, False)))  # noqa: S301
        assert isinstance(writer, BlindWriter)
        messages: list[WriterCommitMessage | None] = []
        for number, task in enumerate(([batch(0, "a", "b"), batch(0, "c")], [batch(1, "d")])):
            monkeypatch.setattr(blind_write, "task_number", lambda number=number: number)
            messages.append(writer.write(iter(task)))
        writer.commit(messages)

    return write


def planned(path, schema=FRAME, **options):
    return ConditionalLogSource({"path": path, "partitions": "2", **options}).writer(schema, False)


def found(path):
    with open_log(path) as log:
        return [values_in(log, partition) for partition in range(2)], log.jobs()


def test_off_needs_no_route_and_any_task_has_rows_of_any_partition(path, tmp_path, monkeypatch):
    monkeypatch.setattr(blind_write, "task_number", lambda: 0)
    schema = StructType([KEYED, VALUE, StructField("partition", IntegerType())])
    report = tmp_path / "report.json"
    writer = planned(path, schema, idempotence="off", report=str(report))
    writer.commit([writer.write(iter([batch(0, "a"), batch(1, "b")])) for _ in range(2)])
    assert found(path) == ([["a", "a"], ["b", "b"]], ())
    assert from_json(Completion, report.read_text()).rows == 4
    with pytest.raises(NotRoutedError):
        planned(path, schema, expectedOffsets="none")


@pytest.mark.parametrize("partitioner", ["murmur2", "crc32"])
def test_off_assigns_rows_without_a_partition_as_route_does(path, partitioner, monkeypatch):
    monkeypatch.setattr(blind_write, "task_number", lambda: 0)
    schema = StructType([KEYED, VALUE])
    with open_log(path) as log:
        log.create(2, partitioner)
    writer = pickle.loads(pickle.dumps(planned(path, schema, idempotence="off")))  # noqa: S301 - made here
    keys = [f"N{number}" for number in range(20)]
    rows = pa.RecordBatch.from_pydict({"key": keys, "value": [key.encode() for key in keys]})
    writer.commit([writer.write(iter([rows]))])
    ids = [partition_of_key(key.encode(), 2, partitioner) for key in keys]
    expected = [[key for key, number in zip(keys, ids, strict=True) if number == partition] for partition in (0, 1)]
    assert found(path)[0] == expected
    other = {"murmur2": "crc32", "crc32": "murmur2"}[partitioner]
    with pytest.raises(OptionError):
        planned(path, schema, idempotence="off", partitioner=other)


def test_off_appends_at_the_end_and_again_when_it_is_run_again(write, path, tmp_path):
    report = tmp_path / "report.json"
    write(idempotence="off", report=str(report))
    with open_log(path) as log:
        append_foreign(log, 0, "x")
    write(idempotence="OFF", expectedOffsets="none")
    assert found(path) == ([["a", "b", "c", "x", "a", "b", "c"], ["d", "d"]], ())
    done = from_json(Completion, report.read_text())
    assert [(each.progress.partition, each.progress.rows, each.guarantee) for each in done.partitions] == [
        (0, 3, "at-least-once"),
        (1, 1, "at-least-once"),
    ]
    assert json.loads(report.read_text())["partitions"][0]["appends"]["attempts"] == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"job": "load-1"}, "option job needs idempotence, which an option or the log's defaults set to off"),
        ({"job": "load-1", "batchId": "3"}, "idempotence of a stream must be required"),
        ({"expectedOffsets": "end"}, "expectedOffsets=end"),
        ({"expectedOffsets": '{"0": 3}'}, "expectedOffsets=offsets"),
        ({"checkExpectedOffsets": "true"}, "expectedOffsets=end"),
        ({"atomic": "true"}, "atomic=true"),
        ({"compare": "key"}, "compare=key"),
        ({"schema": CLAIMING}, "the column expected_offset"),
    ],
)
def test_off_takes_no_job_and_no_condition(path, given, said):
    schema = given.get("schema", FRAME)
    options = {name: value for name, value in given.items() if name != "schema"}
    with pytest.raises(OptionError, match=said):
        planned(path, schema, idempotence="off", **options)
    with open_log(path) as log, pytest.raises(LogNotFoundError):
        log.layout()


def test_a_log_that_gives_exactly_once_gives_it_where_it_is_requested(path):
    assert isinstance(planned(path, idempotence="requested", job="load-1"), ConditionalLogWriter)
    # Rows with expected offsets get exactly once too, if the write sets expectedOffsets=none.
    claiming = planned(path, CLAIMING, idempotence="requested", expectedOffsets="none")
    assert isinstance(claiming, ConditionalLogWriter)
    assert found(path)[1][-1] == "load-1"


@pytest.mark.parametrize(("word", "means"), [("true", "required"), ("false", "off"), ("False", "off")])
def test_legacy_values_are_accepted_and_deprecated(path, word, means):
    with pytest.warns(FutureWarning, match=f"deprecated .KIP-192.. Use {means}"):
        options = parse_write({"path": path, "idempotence": word})
    assert options.idempotence == means


def test_the_words_of_now_are_not(path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for word in ("required", "requested", "off"):
            assert parse_write({"path": path, "idempotence": word}).idempotence == word
        assert parse_write({"path": path}).idempotence == "required"
    with pytest.raises(OptionError, match="one of required, requested, off"):
        parse_write({"path": path, "idempotence": "yes"})


def test_option_of_a_write_overrides_the_defaults(path, tmp_path):
    conf = tmp_path / "conf.toml"
    conf.write_text(f'[defaults]\nidempotence = "requested"\n[logs."{path}"]\nidempotence = "off"\n')
    asked = {"path": path, "conf": str(conf)}
    assert parse_write(asked).idempotence == "off"
    assert parse_write({**asked, "path": f"{path}-other"}).idempotence == "requested"
    assert parse_write({**asked, "idempotence": "required", "job": "j"}).idempotence == "required"
    with pytest.raises(OptionError, match="needs idempotence, which an option or the log's defaults set to off"):
        parse_write({**asked, "job": "j"})
    assert parse_write_stream(asked).idempotence == "required"


@pytest.mark.parametrize("word", ["off", "requested", "false"])
def test_a_stream_is_exactly_once(path, word):
    with pytest.raises(OptionError, match="idempotence of a stream must be required"):
        parse_write_stream({"path": path, "idempotence": word})
    with pytest.raises(OptionError, match="idempotence of a stream must be required"):
        parse_write({"path": path, "idempotence": word, "job": "j", "batchId": "1"})
    assert parse_write_stream({"path": path, "idempotence": "required"}).idempotence == "required"


def test_rows_that_were_routed_for_another_layout_are_refused(path):
    with open_log(path) as log:
        log.create(2)
    old = StructType([KEYED, VALUE, StructField("partition", IntegerType(), metadata=Mark(2, 7).metadata())])
    with pytest.raises(LayoutChangedError):
        planned(path, old, idempotence="off")


@pytest.mark.parametrize("error", [NotStoredError, StorageError])
def test_permanently_rejected_rows_are_not_retried(path, monkeypatch, error):
    writer = planned(path, idempotence="off", maxRecordsPerChunk="2")

    def refuse():
        raise error("rows are too old.")

    @contextmanager
    def refusing(spec, log_id, **how):
        with planned_log(spec, log_id, **how) as log:
            yield FaultyLog(log, Fault("append_blind", 2, When.BEFORE, refuse))

    monkeypatch.setattr(blind_write, "planned_log", refusing)
    monkeypatch.setattr(blind_write, "task_number", lambda: 0)
    said = r"rows are too old\. .* has appended 2 rows for certain, which stay.* appends all of its rows again"
    if error is StorageError:
        with pytest.raises(StorageError, match=said):
            writer.write(iter([batch(0, "a", "b", "c")]))
    else:
        message = writer.write(iter([batch(0, "a", "b", "c")]))
        with pytest.raises(NotStoredError, match=said) as raised:
            writer.commit([message])
        assert not raised.value.retriable
    assert found(path)[0] == [["a", "b"], []]


def test_partition_in_two_tasks_fails_and_reports_the_append(path, monkeypatch):
    writer = planned(path, idempotence="off")
    monkeypatch.setattr(blind_write, "task_number", lambda: 0)
    messages = [writer.write(iter([batch(0, value)])) for value in "ab"]
    with pytest.raises(NotRoutedError) as raised:
        writer.commit(messages)
    assert raised.value.appended_rows == {0: 2}
    assert found(path)[0] == [["a", "b"], []]


@pytest.mark.parametrize("idempotence", ["off", "required"])
@pytest.mark.parametrize("file", ["nowhere/report.json", "."])
def test_a_report_that_cannot_be_written_is_refused_before_a_row_is_appended(path, tmp_path, file, idempotence):
    with pytest.raises(OptionError, match="option report names no file that can be written"):
        planned(path, idempotence=idempotence, report=str(tmp_path / file))
    with open_log(path) as log, pytest.raises(LogNotFoundError):
        log.layout()


def test_failed_report_states_that_the_rows_are_appended(write, path, tmp_path, monkeypatch):
    report = tmp_path / "report.json"
    report.write_text("of before")

    def no_space(file, text, **_):
        with file.open("w") as torn:
            torn.write(text[:5])
        raise OSError

    monkeypatch.setattr(Path, "write_text", no_space)
    with pytest.raises(StorageError, match="the rows are appended"):
        write(idempotence="off", report=str(report))
    assert found(path)[0] == [["a", "b", "c"], ["d"]]
    assert report.read_text() == "of before"
    assert list(tmp_path.glob("report.json*")) == [report]
