"""The number of requests of the driver, in a process that is already connected."""

from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from spark_cas.core.errors import InputChangedError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.append.fence import _MOST_INSTANCES
from spark_cas.log.kafka.client import kept_clients
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.log.load.planning import pin_plan
from spark_cas.options.parse import parse_write, parse_write_stream
from spark_cas.spark import worker
from spark_cas.spark.writing import stream_write, write
from spark_cas.spark.writing.stream_write import Sink, StreamWriter, plan_stream_write
from spark_cas.spark.writing.write import plan_write
from tests.kafka.clients import SECONDS, admin_of, create_topic
from tests.kafka.proxy.frames import Api
from tests.support.loads import load, rows_of

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180), pytest.mark.filterwarnings("ignore:.*:UserWarning")]

FRAME = StructType(
    [StructField("key", BinaryType()), StructField("value", BinaryType()), StructField("partition", IntegerType())]
)
ROWS = pa.RecordBatch.from_pydict({"key": [b"a"], "value": [b"a"], "partition": pa.array([0], pa.int32())})
DESCRIBE_TOPICS = "describe_topics"
"""A call of the admin client. Its frames are Metadata requests, which clients also send on their own."""


@pytest.fixture
def options(proxied, monkeypatch, set_timing):
    """The options of a write by a Spark worker, whose clients stay connected."""
    # Answers are never late or old, however slow the machine is.
    set_timing(fresh_age=60.0, metadata_lag=30.0)
    monkeypatch.setattr(worker, "in_worker", lambda: True)
    for module in (write, stream_write):
        monkeypatch.setattr(module, "task_number", lambda: 0)
    topic = create_topic(proxied.direct)
    yield {"kafka.bootstrap.servers": proxied.bootstrap, "topic": topic, "routed": "true"}
    while kept_clients._idle:
        kept_clients._idle.popitem()[1][1].close()


@pytest.fixture
def requests(proxied, monkeypatch):
    """Return a function that counts the requests since its last call."""
    calls: Counter[object] = Counter()
    own = AdminClient.describe_topics

    def describe(*given, **more):
        calls[DESCRIBE_TOPICS] += 1
        return own(*given, **more)

    def counted():
        result = calls + proxied.proxy.traffic.requests
        calls.clear()
        proxied.proxy.traffic.clear()
        return result

    monkeypatch.setattr(AdminClient, DESCRIBE_TOPICS, describe)
    return counted


def test_driver_requests_of_a_load(options, requests):
    for number in range(2):
        request = parse_write({**options, "job": f"job-{number}"})
        requests()
        writer = plan_write(request, FRAME)
        planned = requests()
        message = writer.write(iter([ROWS]))
        requests()
        writer.commit([message])
        committed = requests()
    # Descriptions: the layout, one of three topics in the preflight, and the layout under the lock.
    # Producers: the lock and the plan.
    assert (planned[DESCRIBE_TOPICS], planned[Api.DESCRIBE_CONFIGS]) == (3, 1)
    assert (planned[Api.OFFSET_FETCH], planned[Api.INIT_PRODUCER_ID]) == (2, 2)
    assert (committed[DESCRIBE_TOPICS], committed[Api.DESCRIBE_CONFIGS]) == (1, 0)
    assert (committed[Api.OFFSET_FETCH], committed[Api.INIT_PRODUCER_ID]) == (2, 2)


def test_driver_requests_of_a_micro_batch(options, requests, monkeypatch):
    properties = {"sql.streaming.queryId": "query", "streaming.sql.batchId": "0"}
    monkeypatch.setattr(stream_write, "local_property", properties.get)
    request = parse_write_stream({**options, "job": "stream", "checkpointLocation": "/nowhere"})
    for _ in range(2):  # record the plan, and cache the preflight
        plan_stream_write(request, FRAME)
    requests()
    writer, committer = plan_stream_write(request, FRAME), StreamWriter(Sink(request, None))
    planned = requests()
    # The layout before and after the plan is read, which takes one request for an offset.
    assert (planned[DESCRIBE_TOPICS], planned[Api.DESCRIBE_CONFIGS]) == (2, 1)
    assert (planned[Api.OFFSET_FETCH], planned[Api.LIST_OFFSETS]) == (1, 1)
    message = writer.write(iter([]))
    requests()
    committer.commit([message], 0)
    committed = requests()
    assert (committed[DESCRIBE_TOPICS], committed[Api.DESCRIBE_CONFIGS]) == (1, 0)
    assert (committed[Api.OFFSET_FETCH], committed[Api.LIST_OFFSETS]) == (1, 0)
    message = writer.write(iter([ROWS]))
    committer.commit([message], 0)
    with pytest.raises(InputChangedError):
        committer.commit([replace(message, results=())], 0)


def test_recent_description_is_used_for_the_partitions_that_it_has(proxied, proxied_topic, set_timing, requests):
    set_timing(fresh_age=60.0)
    with KafkaLog(KafkaSpec(proxied.bootstrap, proxied_topic)) as log:
        pin_plan(log, "job", ExpectedOffsets("end"))
        requests()
        log.bounds_of([0], waiting=True)
        log.progress_of([0], "job")
        assert requests()[DESCRIBE_TOPICS] == 0
        # The ledger entries of a job that resumes are those of the current topic.
        log.progress_of([0], "job", proven=True)
        assert requests()[DESCRIBE_TOPICS] == 1
        admin = admin_of(proxied.direct)
        admin.create_partitions([NewPartitions(proxied_topic, 2)])[proxied_topic].result(SECONDS)
        assert log.bounds_of([1], waiting=True)[0].end_offset == 0
        for partition in (-1, 2):
            with pytest.raises(ValueError, match=f"partition {partition}"):
                log.bounds_of([partition], waiting=True)


def test_task_claims_each_partition_once(proxied, requests, set_timing):
    """A process has a limited number of producers, so a claim far ahead of the append would be made twice."""
    set_timing(fresh_age=60.0, metadata_lag=30.0)
    rows = rows_of(2, *range(_MOST_INSTANCES + 4))
    topic = create_topic(proxied.direct, len(rows))
    with KafkaLog(KafkaSpec(proxied.bootstrap, topic)) as log:
        plan = pin_plan(log, "job", ExpectedOffsets("end"))
        requests()
        load(log, plan, rows)
        assert requests()[Api.INIT_PRODUCER_ID] == len(rows)
