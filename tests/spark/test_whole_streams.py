"""Streams with atomic=load: a micro-batch becomes visible in all of its partitions or in none."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql import functions as sf
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from spark_cas import open_log, route
from spark_cas.core.errors import ConflictError, InputChangedError, OptionError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.micro_batch import Batch
from spark_cas.log.load.append_micro_batch import load_batch
from spark_cas.log.load.atomic_load import with_group
from spark_cas.log.load.locking import Applicant, acquire_lock
from spark_cas.log.load.planning import job_progress
from spark_cas.options.parse import parse_write
from spark_cas.spark.writing.stream_write import BatchReport, plan_batch_write
from tests.contract.streaming import WIDE
from tests.contract.whole import bounded, everything
from tests.kafka.clients import create_topic
from tests.long import full
from tests.spark.addresses import EMBEDDED, ON_KAFKA
from tests.spark.sinks import FORMAT, Source, finish, keys, replay, run, values_of
from tests.support.loads import batches_of, rows_of
from tests.support.writing import append_foreign

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

BATCH = 40
ROWS = rows_of(4, 0, 1)
COLUMNS = (("key", StringType()), ("value", BinaryType()), ("partition", IntegerType()))


@pytest.fixture
def source(spark, tmp_path):
    return Source(spark, tmp_path / "source")


@pytest.fixture
def checkpoint(tmp_path):
    return str(tmp_path / "checkpoint")


def run_atomic(frame, checkpoint, options):
    """Run a query until it has read all files. On Kafka, only a write within foreachBatch can be atomic."""
    if not options["path"].startswith("kafka:"):
        run(route(frame, {"job": "none", **options}), checkpoint, **options)
        return

    def write(rows, batch_id):
        each = {**options, "batchId": str(batch_id)}
        route(rows, each).write.format(FORMAT).mode("append").options(**each).save()

    writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    finish(writer.trigger(availableNow=True).start())


@pytest.mark.parametrize("job", ["copy", *full(None)])
def test_batches_are_visible_as_a_whole_once_through_restarts_and_replays(source, checkpoint, address, job):
    options = {"path": address, "atomic": "load"} | ({"job": job} if job else {})
    if address.startswith("kafka:") and job is None:
        pytest.skip("a write within foreachBatch needs a job")
    counts, done = set(), threading.Event()

    def look():
        with open_log(address) as log:
            while not done.is_set():
                counts.add(sum(len(values) for values in bounded(log).values()))

    rows = [row for name in "abc" for row in source.add(name, *keys(BATCH))]
    with ThreadPoolExecutor(1) as threads:
        looking = threads.submit(look)
        try:
            run_atomic(source.stream(), checkpoint, options)
            replay(checkpoint, 2)
            run_atomic(source.stream(), checkpoint, options)
        finally:
            done.set()
        looking.result()
    assert {count % BATCH for count in counts} == {0}
    assert values_of(address) == sorted(rows)

    replay(checkpoint, 2)
    file = source.folder / "c"
    file.write_text(file.read_text().replace("c-003", "c-xxx"))
    with pytest.raises(InputChangedError) as raised:
        run_atomic(source.stream(), checkpoint, options)
    assert job is None or raised.value.job == job
    assert values_of(address) == sorted(rows)


@pytest.mark.parametrize("address", ON_KAFKA, indirect=True)
def test_refused_in_one_partition_a_batch_leaves_nothing_in_the_other(source, checkpoint, address):
    options = {"path": address, "atomic": "load", "job": "copy", "expectedOffsets": "end"}
    rows = source.add("a", *keys(BATCH))
    run_atomic(source.stream(), checkpoint, options)
    with open_log(address) as log:
        append_foreign(log, 1, "x")
        source.add("b", *keys(BATCH))
        with pytest.raises(ConflictError, match=r"40 rows of job .copy. are in the log and stay"):
            run_atomic(source.stream(), checkpoint, options)
        assert values_of(address) == sorted([*rows, "x"])
        # The aborted rows of the batch do not block other writers.
        append_foreign(log, 0, "y")
    assert values_of(address) == sorted([*rows, "x", "y"])


@pytest.mark.parametrize("address", EMBEDDED, indirect=True)
def test_batch_with_a_failed_task_restarts(spark, source, checkpoint, address):
    options = {"path": address, "atomic": "load", "job": "copy"}
    source.add("a", *keys(BATCH))
    broken = source.stream().withColumn(
        "value",
        sf.when(sf.col("value") == "a-039", sf.raise_error(sf.lit("out of order"))).otherwise(sf.col("value")),
    )
    with pytest.raises(Exception, match="out of order"):
        run_atomic(broken, checkpoint, options)
    assert values_of(address) == []
    run_atomic(source.stream(), checkpoint, options)
    assert len(values_of(address)) == BATCH
    with open_log(address) as log:
        assert {each.batch.id for each in job_progress(log, "copy") if each.batch} == {0}


@pytest.mark.parametrize("address", EMBEDDED, indirect=True)
def test_within_foreach_batch_it_is_a_whole_too(source, checkpoint, address):
    def write(frame, batch_id):
        options = {"path": address, "atomic": "load", "job": "copy", "batchId": str(batch_id)}
        route(frame, options).write.format(FORMAT).mode("append").options(**options).save()

    def query():
        finish(
            source.stream()
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )

    rows = source.add("a", *keys(BATCH)) + source.add("b", *keys(3))
    query()
    replay(checkpoint, 1)
    query()
    assert values_of(address) == sorted(rows)


@pytest.mark.kafka
def test_query_on_kafka_is_rejected_outside_foreach_batch(source, checkpoint, broker):
    address = f"kafka://{broker.bootstrap}/{create_topic(broker.bootstrap, 2)}"
    source.add("a", *keys(BATCH))
    options = {"path": address, "job": "copy"}
    with pytest.raises(OptionError, match="foreachBatch"):
        route(source.stream(), {**options, "atomic": "load"})
    with pytest.raises(OptionError, match="foreachBatch"):
        run(route(source.stream(), options), checkpoint, atomic="load", **options)
    assert values_of(address) == []


def test_aborted_run_does_not_abort_the_load_of_another_run(path):
    """The first run is a driver that hung while its query was restarted from the checkpoint."""
    schema = StructType([StructField(name, kind) for name, kind in COLUMNS])
    named = {"path": path, "partitions": "2", "job": "copy", "batchId": "0"}
    options = parse_write({**named, "atomic": "load", "routed": "true"})
    first, second = (plan_batch_write(options, schema) for _ in range(2))
    with open_log(path) as log:
        assert second.task.plan is not None
        plan = with_group(log, second.task.plan, 0)
        runs = [f"{each.task.run}/0" for each in (first, second)]
        for run in runs:
            acquire_lock(log, Applicant("copy", run, batch_id=0), ExpectedOffsets("none"), whole=True)
        results = load_batch(log, plan, Batch("q", 0), batches_of(ROWS, 20), task="run/0/0", limits=WIDE)
        reports = [
            BatchReport(found, job="copy", batch=Batch("q", 0), run=run, planning_ms=(0, 0), group=plan.group)
            for run, found in zip(runs, ((), results), strict=True)
        ]
        first.abort([reports[0]])
        second.commit([reports[1]])
        assert everything(log) == ROWS
        assert log.load_locks().held == ()
