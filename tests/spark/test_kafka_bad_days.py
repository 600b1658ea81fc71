"""A broker that stalls while Spark reads and writes: no task fails, and no query ends.

The timeouts keep the ratios of the default ones: the broker stalls for six request timeouts, which is half of the
retry timeout.
"""

import re
import time
from contextlib import contextmanager
from threading import Thread

import pytest

from spark_cas import bootstrap, open_log, route
from tests.kafka.clients import create_topic
from tests.long import full
from tests.spark.session_settings import session_settings
from tests.spark.tasks import failed_tasks
from tests.support.writing import append_foreign, values_in

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(300)]

REQUEST_MS = 2000
TIMES = {
    "kafka.request.timeout.ms": f"{REQUEST_MS}",
    "kafka.delivery.timeout.ms": f"{12 * REQUEST_MS}",
    "openTransactionWaitMs": f"{12 * REQUEST_MS}",
}
TRANSACTION = {"transactionTimeoutMs": f"{6 * REQUEST_MS}"}
STANDS_STILL_SECONDS = 6 * REQUEST_MS / 1000
WITHIN_SECONDS = (0.0, 0.6)
"""Seconds after which the broker stalls: during planning, and while workers connect or records are in flight."""

KILLED = "terminated due to idle timeout|Python worker exited unexpectedly"
"""Spark's errors after an idle timeout. A killed worker with unread rows resets its connection: the second error."""
ATTEMPTS = 4
"""The attempts of a task in the session of the tests."""


@contextmanager
def standing_still(broker, after):
    """Stop the broker ``after`` seconds from now, and resume it before the block ends."""

    def stand_still():
        time.sleep(after)
        broker.freeze()
        time.sleep(STANDS_STILL_SECONDS)
        broker.thaw()

    thread = Thread(target=stand_still)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def new_topic(broker, *values):
    """Create a topic with these values. Return its name and the options of a read."""
    topic = create_topic(broker.bootstrap)
    if values:
        with open_log(f"kafka://{broker.bootstrap}/{topic}") as log:
            append_foreign(log, 0, *values)
    return topic, {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic, **TIMES}


def values_of(broker, topic):
    with open_log(f"kafka://{broker.bootstrap}/{topic}") as log:
        return list(values_in(log, 0))


def is_begun(broker, topic):
    with open_log(f"kafka://{broker.bootstrap}/{topic}") as log:
        return log.bounds(0).end_offset > 0


@pytest.mark.full
def test_each_row_is_there_once_after_spark_killed_idle_workers(spark, own_broker):
    topic, _ = new_topic(own_broker)
    options = {"kafka.bootstrap.servers": own_broker.bootstrap, "topic": topic, "job": "write"}
    options |= {"maxRecordsPerChunk": "1000", "lockWaitTimeout": "5s"}
    spark.sparkContext.setJobGroup("idle", "")
    rows = spark.range(200_000).selectExpr("cast(null as binary) key", "cast(id as string) value")

    def save():
        routed = route(rows, options)
        routed.write.format("conditional-log").mode("append").options(**options).save()

    def stand_still():
        while not is_begun(own_broker, topic):
            time.sleep(0.01)
        own_broker.freeze()

    freezing = Thread(target=stand_still)
    freezing.start()
    idle = "spark.sql.execution.pyspark.udf."
    settings = {f"{idle}killOnIdleTimeout": "true", f"{idle}idleTimeoutSeconds": "5"}
    try:
        with (
            session_settings(spark, settings),
            pytest.warns(UserWarning, match="killOnIdleTimeout"),
            pytest.raises(Exception, match=KILLED),
        ):
            save()
    finally:
        freezing.join()
        own_broker.thaw()
    failed = failed_tasks(spark.sparkContext, "idle")
    assert len(failed) == ATTEMPTS
    assert all(re.search(KILLED, each) for each in failed)
    before = len(values_of(own_broker, topic))
    assert 0 < before < 200_000
    save()
    assert values_of(own_broker, topic) == sorted(str(number) for number in range(200_000))


@pytest.mark.full
@pytest.mark.parametrize("after", WITHIN_SECONDS)
def test_write_resumes_with_the_broker(spark, own_broker, after):
    topic, options = new_topic(own_broker)
    options |= {**TRANSACTION, "job": "write"}
    spark.sparkContext.setJobGroup(f"write-{after}", "")
    rows = spark.range(100_000).selectExpr("cast(null as binary) key", "cast(id as string) value")
    with standing_still(own_broker, after):
        routed = route(rows, options)
        routed.write.format("conditional-log").mode("append").options(**options).save()
    assert values_of(own_broker, topic) == sorted(str(number) for number in range(100_000))
    assert failed_tasks(spark.sparkContext, f"write-{after}") == []


@pytest.mark.full
@pytest.mark.parametrize("after", WITHIN_SECONDS)
def test_bootstrap_resumes_with_the_broker(spark, own_broker, after):
    values = [f"{number:01000}" for number in range(50_000)]
    _, options = new_topic(own_broker, *values)
    spark.sparkContext.setJobGroup(f"bootstrap-{after}", "")
    with standing_still(own_broker, after):
        found = bootstrap(spark, options)
        [row] = found.records.selectExpr("sum(length(value)) bytes").collect()
    assert row.bytes == 1000 * len(values)
    assert failed_tasks(spark.sparkContext, f"bootstrap-{after}") == []


@pytest.mark.parametrize("times", [WITHIN_SECONDS[1:], *full(WITHIN_SECONDS)], ids=len)
def test_stream_copy_resumes_with_the_broker(spark, own_broker, tmp_path, times):
    source, reading = new_topic(own_broker)
    target, writing = new_topic(own_broker)
    writing |= {**TRANSACTION, "job": "copy"}
    expected = []
    routed = route(
        spark.readStream.format("conditional-log").options(**reading, startingOffsets="earliest").load(), writing
    )
    writer = routed.select("partition", "key", "value").writeStream.format("conditional-log").options(**writing)
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(processingTime="100 milliseconds").start()
    try:
        for after in times:
            values = [f"{after}-{number}" for number in range(20_000)]
            with open_log(f"kafka://{own_broker.bootstrap}/{source}") as log:
                append_foreign(log, 0, *values)
            expected += values
            with standing_still(own_broker, after):
                query.processAllAvailable()
        assert query.exception() is None
        assert failed_tasks(spark.sparkContext, str(query.runId)) == []
    finally:
        query.stop()
    assert values_of(own_broker, target) == expected
