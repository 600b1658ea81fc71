"""A broker that stalls while Spark reads and writes: no task fails, and no query ends.

The timeouts keep the ratios of the default ones: the broker stalls for six request timeouts, which is half of the
retry timeout.
"""

import time
from contextlib import contextmanager
from threading import Thread

import pytest

from spark_cas import bootstrap, open_log, route
from tests.kafka.clients import create_topic
from tests.long import full
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
