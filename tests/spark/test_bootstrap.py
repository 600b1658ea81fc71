"""Bootstrap on both backends: records, state and offsets at one bound, and a write that continues from there."""

import datetime as dt
import itertools
import json
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions, NewTopic
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf

from spark_cas import bootstrap, error_from_text, open_log, route, verify_log
from spark_cas.core.errors import ConflictError, LogNotFoundError, OptionError, StorageError, TruncatedError
from spark_cas.core.outcome import Appended
from spark_cas.core.records import RECORDS
from spark_cas.log.load.append_once import append_once
from spark_cas.spark.reading.bootstrap import STATE, PinnedLog
from spark_cas.spark.schema import OFFSETS
from tests.kafka import clients
from tests.spark.addresses import EMBEDDED_AND_KAFKA, new_log
from tests.support.writing import append_foreign, records_in

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

TIME_MS = 1_589_718_600_250
TIME = dt.datetime.fromtimestamp(TIME_MS / 1000, dt.UTC)


@pytest.fixture(params=EMBEDDED_AND_KAFKA)
def address(request, path):
    """The address of a log with four partitions, on each backend."""
    return new_log(request, path, 4)


@pytest.fixture
def log(address):
    with open_log(address) as opened:
        yield opened


def append(log, partition, *pairs):
    """Append records of keys and values, None for null, in one chunk. Return its base offset."""
    rows = [{"key": key, "value": value, "timestamp": TIME} for key, value in pairs]
    end = log.bounds(partition).end_offset
    outcome = append_once(
        log, partition, pa.Table.from_pylist(rows, RECORDS), job=f"{log.topic}-{partition}-{end}", expected_offset=end
    )
    assert isinstance(outcome, Appended), outcome
    return outcome.range.base_offset


def abort_some(address):
    """On Kafka, append records to partition 0 in a transaction and abort it."""
    if address.startswith("kafka:"):
        server, _, topic = address.removeprefix("kafka://").partition("/")
        clients.append(server, topic, "never", "seen", commit=False)


def write(df, address, job, expected_offsets):
    routed = route(df, address)
    options = {"job": job, "expectedOffsets": expected_offsets}
    routed.write.format("conditional-log").mode("append").options(**options).save(address)


def rows_of(df):
    return sorted((tuple(row) for row in df.collect()), key=repr)


def state_of(records):
    """Compute (partition, key, value, offset) of each row in `Bootstrap.state`, from (partition, offset, record)."""
    newest = {(partition, row["key"]): (row["value"], offset) for partition, offset, row in records}
    kept = {at: found for at, found in newest.items() if at[1] is not None and found[0] is not None}
    return sorted(((*at, *found) for at, found in kept.items()), key=repr)


def test_reader_omits_records_with_a_newer_one_of_their_key(spark, address, log):
    append(log, 0, (b"a", b"1"), (None, b"no key"), (b"b", b"1"), (b"a", None))
    again = append(log, 0, (b"b", b"2"), (b"c", b"1"))
    elsewhere = append(log, 1, (b"a", b"2"))
    pinned = PinnedLog(spark, address)
    read = pinned.read(pinned.at.start_offsets, STATE, newest=True)
    wanted = [(b"a", None, 0, 3), (b"a", b"2", 1, elsewhere), (b"b", b"2", 0, again), (b"c", b"1", 0, again + 1)]
    found = read.where("key IS NOT NULL").select("key", "value", "partition", "offset")
    assert rows_of(found) == sorted(wanted, key=repr)


def test_bootstrap_has_one_bound_which_a_write_expects(spark, address, log):
    base = append(log, 0, (b"a", b"1"), (b"b", b"1"), (None, b"no key"), (b"a", b"2"), (b"c", b""), (b"", b"empty"))
    again = append(log, 0, (b"b", None), (b"a", b"3"), (b"d", None), (b"d", b"back"))
    elsewhere = append(log, 1, (b"a", b"another"), (b"\xff\x00", b"\xfe"))
    append(log, 2, (b"x", None), (b"y", None), (None, None))
    abort_some(address)
    found = bootstrap(spark, address)
    ends = [log.bounds(partition).end_offset for partition in range(4)]
    state = [
        (b"", b"empty", 0, base + 5, TIME_MS),
        (b"a", b"3", 0, again + 1, TIME_MS),
        (b"a", b"another", 1, elsewhere, TIME_MS),
        (b"c", b"", 0, base + 4, TIME_MS),
        (b"d", b"back", 0, again + 3, TIME_MS),
        (b"\xff\x00", b"\xfe", 1, elsewhere + 1, TIME_MS),
    ]
    assert found.state.schema.simpleString() == STATE.simpleString()
    assert found.offsets.schema == OFFSETS
    assert json.loads(found.expected_offsets) == {str(partition): end for partition, end in enumerate(ends)}
    bound = [(log.topic, partition, 0, end) for partition, end in enumerate(ends)]
    assert rows_of(found.offsets.select("topic", "partition", "start_offset", "end_offset")) == bound
    records = [(p, offset, r["key"], r["value"]) for p in range(4) for offset, r in records_in(log, p)]
    assert len(records) == 15

    df = spark.range(8).select(sf.col("id").cast("string").alias("key"), sf.lit("v").alias("value"))
    write(df, address, "goes-on", found.expected_offsets)
    # Spark computes the frames only now, after the write, and still as of the bound.
    assert rows_of(found.state.withColumn("timestamp", sf.unix_millis("timestamp"))) == sorted(state, key=repr)
    assert rows_of(found.records.select("partition", "offset", "key", "value")) == sorted(records, key=repr)
    with pytest.raises(PySparkException, match=r"\[CONFLICT\]"):
        write(df, address, "comes-too-late", found.expected_offsets)
    newer = bootstrap(spark, {"path": address, "includeHeaders": True})
    assert newer.records.count() == 15 + 8
    assert "headers" in newer.records.columns
    append_foreign(log, 3, "in between")
    with pytest.raises(PySparkException) as caught:
        write(df.where("key = '1'"), address, "refused", newer.expected_offsets)
    assert isinstance(error_from_text(str(caught.value)), ConflictError)


def test_a_bootstrap_while_a_writer_runs_is_the_prefix_at_its_bound(spark, address, log):
    stopped, done = threading.Event(), []

    def keep_writing():
        with open_log(address) as writing:
            for number in itertools.count():
                if stopped.is_set():
                    return
                key = b"k%d" % (number % 5)
                value = None if number % 7 == 3 else b"%d" % number
                done.append(append(writing, number % 3, (key, value), (b"same", b"%d" % number)))

    def bootstrap_after_two_more():
        wanted = len(done) + 2
        while len(done) < wanted:
            assert not writing.done(), writing.exception()
            time.sleep(0.01)
        return bootstrap(spark, address)

    with ThreadPoolExecutor(1) as thread:
        writing = thread.submit(keep_writing)
        try:
            found = [bootstrap_after_two_more() for _ in range(3)]
            states = [rows_of(each.state.select("partition", "key", "value", "offset")) for each in found]
            read = [rows_of(each.records.select("partition", "offset", "value")) for each in found]
        finally:
            stopped.set()
    assert writing.exception() is None
    everything = [(p, offset, row) for p in range(4) for offset, row in records_in(log, p)]
    bounds = [json.loads(each.expected_offsets) for each in found]
    assert len({each.expected_offsets for each in found}) == len(found)
    for bound, state, records in zip(bounds, states, read, strict=True):
        prefix = [each for each in everything if each[1] < bound[str(each[0])]]
        assert records == sorted(((p, offset, row["value"]) for p, offset, row in prefix), key=repr)
        assert state == state_of(prefix)


@pytest.mark.kafka
def test_somebodys_open_transaction_is_waited_for_and_then_named(spark, broker):
    topic = clients.create_topic(broker.bootstrap)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "Topic": topic, "openTransactionWaitMs": 700}
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"open/{topic}"})
    producer.init_transactions(clients.SECONDS)
    producer.begin_transaction()
    producer.produce(topic, "v", "k", partition=0)
    assert producer.flush(clients.SECONDS) == 0
    with pytest.raises(StorageError, match=f"partition 0 of topic {topic}: a transaction has been open"):
        bootstrap(spark, options)
    ended = threading.Timer(1.0, producer.commit_transaction, [clients.SECONDS])
    ended.start()
    found = bootstrap(spark, {**options, "openTransactionWaitMs": 60_000})
    ended.join()
    admin = clients.admin_of(broker.bootstrap)
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(clients.SECONDS)
    clients.append(broker.bootstrap, topic, "later")
    assert rows_of(found.state.select("key", "value", "offset")) == [(b"k", b"v", 0)]


def test_frames_do_not_read_a_recreated_log(spark, address, log):
    append(log, 0, (b"a", b"1"), (b"b", b"1"))
    append(log, 0, (b"c", b"1"))
    found = bootstrap(spark, address)
    another = spark.read.format("conditional-log").option("logId", "another").load(address)
    assert f"log {log.topic} is not the one that is to be read" in truncated(another)
    make_anew(address)
    with open_log(address) as other:
        # The new log is empty at first, then as long as the old one, then longer.
        for values in ("", "xyz", "z"):
            if values:
                append_foreign(other, 0, *values)
            for frame in (found.records, found.state):
                assert f"log {log.topic} is not the one that is to be read" in truncated(frame)


def test_truncated_log_is_named(spark, path):
    with open_log(path) as log:
        log.create(1)
        append(log, 0, (b"a", b"1"))
        append(log, 0, (b"b", b"1"))
        found = bootstrap(spark, path)
    Path(path, f"partition=00000/{1:020}.parquet").unlink()
    assert "ends at 1, but the read was planned up to offset 2" in truncated(found.state)


def truncated(frame):
    with pytest.raises(PySparkException) as caught:
        frame.collect()
    error = error_from_text(str(caught.value))
    assert isinstance(error, TruncatedError), str(caught.value)
    return error.message


def make_anew(address):
    """Replace a log with an empty one of the same name."""
    if not address.startswith("kafka:"):
        shutil.rmtree(address)
        with open_log(address) as log:
            log.create(4)
        return
    server, _, topic = address.removeprefix("kafka://").partition("/")
    admin = clients.admin_of(server)
    admin.delete_topics([topic])[topic].result(clients.SECONDS)
    deadline = time.monotonic() + clients.SECONDS
    # The broker rejects the new topic until it has deleted the old one.
    while admin.create_topics([NewTopic(topic, 4)])[topic].exception(clients.SECONDS) is not None:
        assert time.monotonic() < deadline


def test_an_empty_log_a_missing_one_and_a_part_of_one(spark, path, tmp_path):
    with open_log(path) as log:
        log.create(2)
    found = bootstrap(spark, path)
    assert (found.records.count(), found.state.count(), found.expected_offsets) == (0, 0, '{"0": 0, "1": 0}')
    write(spark.sql("SELECT 'a' AS key, 'v' AS value"), path, "first", found.expected_offsets)
    assert bootstrap(spark, path).state.count() == 1
    with pytest.raises(LogNotFoundError):
        bootstrap(spark, str(tmp_path / "missing"))
    for part in ("startingOffsets", "endingTimestamp", "VIEW", "assign", "logId"):
        with pytest.raises(OptionError, match="all of it"):
            bootstrap(spark, {"path": path, part: "latest"})
    topics = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "one,other"}
    with pytest.raises(OptionError, match="for one log"):
        bootstrap(spark, topics)
    with pytest.raises(OptionError, match="for one log"):
        verify_log(found.records, topics)
